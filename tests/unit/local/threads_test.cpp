// Many threads of one process on one session, daemon and client both in sight of the thread sanitizer.
#include <poll.h>

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <thread>
#include <vector>

#include "calls.hpp"
#include "nexar.h"
#include "test_daemon.hpp"

using namespace nexar;
using namespace nexar::test;

namespace {

struct Joined {
    nexar_session* session = nullptr;
    nexar_group* group = nullptr;
};

Joined join(const std::string& path, const std::string& name, uint32_t size, int64_t spin_us) {
    Joined out;
    nexar_session_options options;
    nexar_session_options_init(&options, sizeof options);
    options.socket_path = path.c_str();
    options.spin_us = spin_us;
    if (nexar_session_open(&options, &out.session) != NEXAR_OK) return out;
    nexar_group_options group;
    nexar_group_options_init(&group, sizeof group);
    group.name = name.c_str();
    group.size = size;
    if (nexar_group_open(out.session, &group, &out.group) != NEXAR_OK) out.group = nullptr;
    return out;
}

// A group of one for this thread: collectives of one group are no business of several threads.
nexar_group* own_group(nexar_session* session, uint64_t thread) {
    nexar_group_options options = NEXAR_GROUP_OPTIONS_INIT;
    const std::string name = "thread " + std::to_string(thread);
    options.name = name.c_str();
    options.size = 1;
    nexar_group* out = nullptr;
    return nexar_group_open(session, &options, &out) == NEXAR_OK ? out : nullptr;
}

}  // namespace

TEST_CASE("six threads of one session: every call gets its own answer, asleep or awake",
          "[local][tsan][S7]") {
    for (const int64_t spin_us : {0, 50}) {
        ThreadDaemon daemon;
        Joined rank = join(daemon.path(), "alone", 1, spin_us);
        REQUIRE(rank.group);
        std::atomic<int> wrong{0};
        std::vector<std::thread> threads;
        for (uint64_t t = 0; t < 6; ++t)
            threads.emplace_back([&, t] {
                nexar_group* group = own_group(rank.session, t);
                for (uint64_t i = 0; i < 300; ++i) {
                    uint64_t in[4] = {t, i, t * i, 9}, out[4] = {};
                    if (i % 3 == 0) {
                        nexar_request request = 0;
                        if (nexar_all_reduce_start(group, in, out, 4, NEXAR_U64, NEXAR_SUM, nullptr,
                                                   &request) != NEXAR_OK)
                            ++wrong;
                        size_t index = 7;
                        if (nexar_request_wait_any(&request, 1, 20000, &index, nullptr) != NEXAR_OK ||
                            index != 0)
                            ++wrong;
                        if (nexar_request_test(request, nullptr) != NEXAR_OK ||
                            nexar_request_free(request) != NEXAR_OK)
                            ++wrong;
                    } else if (nexar_all_reduce(group, in, out, 4, NEXAR_U64, NEXAR_SUM, within(20000)) !=
                               NEXAR_OK) {
                        ++wrong;
                    }
                    if (out[0] != t || out[1] != i || out[2] != t * i) ++wrong;
                }
            });
        for (auto& thread : threads) thread.join();
        CHECK(wrong == 0);
        CHECK(nexar_session_close(rank.session) == NEXAR_OK);
    }
}

TEST_CASE("without futex_waitv: waiters, an event loop and polls share one socket, and nobody misses an end",
          "[local][tsan]") {
    ::setenv("NEXAR_WITHOUT_WAITV", "1", 1);
    ThreadDaemon daemon;
    Joined rank = join(daemon.path(), "alone", 1, 0);
    ::unsetenv("NEXAR_WITHOUT_WAITV");
    REQUIRE(rank.group);
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (uint64_t t = 0; t < 5; ++t)
        threads.emplace_back([&, t] {
            nexar_group* group = own_group(rank.session, t);
            for (uint64_t i = 0; i < 200; ++i) {
                uint64_t x = t * 1000 + i, out = 0;
                nexar_request request = 0;
                if (nexar_all_reduce_start(group, &x, &out, 1, NEXAR_U64, NEXAR_SUM, nullptr, &request) !=
                    NEXAR_OK)
                    ++wrong;
                size_t index = 7;
                const nexar_status waited = t % 2
                                                ? nexar_request_wait(request, 20000, nullptr)
                                                : nexar_request_wait_any(&request, 1, 20000, &index, nullptr);
                if (waited != NEXAR_OK || nexar_request_test(request, nullptr) != NEXAR_OK || out != x ||
                    nexar_request_free(request) != NEXAR_OK)
                    ++wrong;
            }
        });
    // An event loop: its own requests, one at a time, whose completions only the descriptor reports.
    threads.emplace_back([&] {
        int fd = -1;
        nexar_group* group = own_group(rank.session, 99);
        if (nexar_session_fd(rank.session, &fd) != NEXAR_OK) ++wrong;
        for (uint64_t i = 0; i < 200; ++i) {
            uint64_t x = i, out = 0;
            nexar_request request = 0;
            if (nexar_all_reduce_start(group, &x, &out, 1, NEXAR_U64, NEXAR_SUM, nullptr, &request) !=
                NEXAR_OK)
                ++wrong;
            for (bool ended = false; !ended;) {
                nexar_completion some[16];
                size_t count = 0;
                do {
                    if (nexar_session_poll(rank.session, some, sizeof *some, 16, &count) != NEXAR_OK) ++wrong;
                    for (size_t k = 0; k < count; ++k) ended = ended || some[k].request == request;
                } while (count == 16);
                pollfd wait{fd, POLLIN, 0};
                if (!ended && ::poll(&wait, 1, 20000) != 1) {
                    ++wrong;
                    break;
                }
            }
            if (nexar_request_test(request, nullptr) != NEXAR_OK || out != x ||
                nexar_request_free(request) != NEXAR_OK)
                ++wrong;
        }
    });
    for (auto& thread : threads) thread.join();
    CHECK(wrong == 0);
    CHECK(nexar_session_close(rank.session) == NEXAR_OK);
}

TEST_CASE("four threads wait on one request; all get its one answer, and one of them frees it",
          "[local][tsan]") {
    ThreadDaemon daemon;
    Joined rank = join(daemon.path(), "stuck", 1, 50);
    REQUIRE(rank.group);
    for (int round = 0; round < 50; ++round) {
        nexar_request request = 0;
        REQUIRE(nexar_barrier_start(rank.group, nullptr, &request) == NEXAR_OK);
        std::atomic<int> cancelled{0}, freed{0}, bad{0};
        std::vector<std::thread> threads;
        for (int t = 0; t < 4; ++t)
            threads.emplace_back([&] {
                const auto status = nexar_request_wait(request, 20000, nullptr);
                if (status == NEXAR_ERR_CANCELLED)
                    ++cancelled;
                else if (status != NEXAR_ERR_BAD_HANDLE)
                    ++bad;  // freed by a quicker one
                if (nexar_request_free(request) == NEXAR_OK) ++freed;
            });
        REQUIRE(nexar_request_cancel(request) == NEXAR_OK);
        for (auto& thread : threads) thread.join();
        CHECK(cancelled >= 1);
        CHECK(freed == 1);
        CHECK(bad == 0);
    }
    CHECK(nexar_session_close(rank.session) == NEXAR_OK);
}

TEST_CASE("sessions, memory and groups come and go while others work", "[local][tsan]") {
    ThreadDaemon daemon;
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
        threads.emplace_back([&, t] {
            for (int i = 0; i < 15; ++i) {
                Joined rank = join(daemon.path(), "own" + std::to_string(t), 1, 50);
                void* memory = nullptr;
                if (!rank.group || nexar_alloc(rank.session, 10000, nullptr, &memory) != NEXAR_OK) {
                    ++wrong;
                    continue;
                }
                auto* x = static_cast<uint64_t*>(memory);
                x[0] = static_cast<uint64_t>(i);
                if (nexar_all_reduce(rank.group, x, x + 64, 1, NEXAR_U64, NEXAR_SUM, within(20000)) !=
                    NEXAR_OK)
                    ++wrong;
                if (x[64] != static_cast<uint64_t>(i)) ++wrong;
                if (nexar_free(rank.session, memory) != NEXAR_OK || nexar_group_free(rank.group) != NEXAR_OK)
                    ++wrong;
                if (nexar_session_close(rank.session) != NEXAR_OK) ++wrong;
            }
        });
    for (auto& thread : threads) thread.join();
    CHECK(wrong == 0);
    CHECK(daemon.eventually([&] { return daemon.counters.sessions == 0; }));
}

// The receive ends only by a cancel, so one that is lost shows as a wait that never ends.
TEST_CASE("a persistent request is started, cancelled, polled and tested by four threads",
          "[local][S21][tsan]") {
    ThreadDaemon daemon;
    Joined rank = join(daemon.path(), "all of them", 1, 50);
    REQUIRE(rank.group);
    uint64_t in[16] = {}, out[16] = {}, got = 0;
    nexar_request sum = 0, endless = 0;
    REQUIRE(nexar_all_reduce_init(rank.group, in, out, 16, NEXAR_U64, NEXAR_SUM, nullptr, &sum) == NEXAR_OK);
    REQUIRE(nexar_recv_init(rank.group, &got, 1, NEXAR_U64, 0, 9, nullptr, &endless) == NEXAR_OK);
    std::atomic<int> wrong{0};
    std::atomic<bool> over{false};
    std::vector<std::thread> others;
    others.emplace_back([&] {
        while (!over) wrong += nexar_request_cancel(endless) != NEXAR_OK;
    });
    others.emplace_back([&] {
        nexar_completion ended[4];
        uint64_t count = 0;
        while (!over)
            wrong += nexar_session_poll(rank.session, ended, sizeof ended[0], 4, &count) != NEXAR_OK;
    });
    others.emplace_back([&] {
        while (!over) wrong += nexar_request_test(sum, nullptr) < 0;
    });
    for (uint64_t start = 1; start <= 300; ++start) {
        for (uint64_t& value : in) value = start;
        wrong += nexar_request_start(sum) != NEXAR_OK;
        wrong += nexar_request_start(endless) != NEXAR_OK;
        wrong += nexar_request_wait(sum, 20000, nullptr) != NEXAR_OK;
        wrong += nexar_request_wait(endless, 20000, nullptr) != NEXAR_ERR_CANCELLED;
        wrong += out[15] != start;
    }
    over = true;
    for (std::thread& thread : others) thread.join();
    CHECK(wrong == 0);
    CHECK(nexar_request_free(sum) == NEXAR_OK);
    CHECK(nexar_request_free(endless) == NEXAR_OK);
    CHECK(nexar_session_close(rank.session) == NEXAR_OK);
}
