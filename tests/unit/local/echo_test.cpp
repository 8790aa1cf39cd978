// The whole local path: a client through include/nexar.h, rings, a server with a fake engine, and back.
#include <poll.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "calls.hpp"
#include "nexar.h"
#include "test_daemon.hpp"

using namespace nexar;
using namespace nexar::test;

namespace {

nexar_session* open_session(const std::string& path) {
    nexar_session_options options;
    nexar_session_options_init(&options, sizeof options);
    options.socket_path = path.c_str();
    nexar_session* session = nullptr;
    const auto status = nexar_session_open(&options, &session);
    CHECK(status == NEXAR_OK);
    return session;
}

nexar_status open_group(nexar_session* session, const char* name, uint32_t size, nexar_group** group,
                        int64_t timeout_ms = 10000) {
    nexar_group_options options;
    nexar_group_options_init(&options, sizeof options);
    options.name = name;
    options.size = size;
    options.timeout_ms = timeout_ms;
    return nexar_group_open(session, &options, group);
}

nexar_error last_error() {
    nexar_error error{};
    error.struct_size = sizeof error;
    CHECK(nexar_last_error(&error) == NEXAR_OK);
    return error;
}

}  // namespace

TEST_CASE("one rank: an all_reduce of ordinary memory goes to the daemon and comes back", "[local]") {
    ThreadDaemon daemon;
    nexar_session* session = open_session(daemon.path());
    nexar_group* group = nullptr;
    REQUIRE(open_group(session, "alone", 1, &group) == NEXAR_OK);
    std::vector<uint64_t> in(1000), out(1000, 99);
    std::iota(in.begin(), in.end(), 7u);

    REQUIRE(nexar_all_reduce(group, in.data(), out.data(), 1000, NEXAR_U64, NEXAR_SUM, nullptr) == NEXAR_OK);

    REQUIRE(out == in);
    nexar_session_stats stats{};
    stats.struct_size = sizeof stats;
    REQUIRE(nexar_session_stats_get(session, &stats) == NEXAR_OK);
    REQUIRE(stats.bytes_copied == 16000);
    REQUIRE(nexar_group_free(group) == NEXAR_OK);
    REQUIRE(nexar_session_close(session) == NEXAR_OK);
    REQUIRE(daemon.eventually([&] { return daemon.counters.sessions == 0; }));
}

TEST_CASE("three processes: every collective gives every rank its own right result", "[local]") {
    ProcessDaemon daemon;
    const auto rank_main = [&] {
        nexar_session* session = open_session(daemon.path());
        nexar_group* group = nullptr;
        if (open_group(session, "trio", 3, &group) != NEXAR_OK) return 1;
        uint32_t rank = 99, size = 99;
        if (nexar_group_rank(group, &rank) != NEXAR_OK || nexar_group_size(group, &size) != NEXAR_OK ||
            size != 3)
            return 2;
        for (int shared = 0; shared < 2; ++shared) {
            uint64_t* x = nullptr;
            std::vector<uint64_t> ordinary(300);
            void* memory = ordinary.data();
            if (shared && nexar_alloc(session, 300 * 8, nullptr, &memory) != NEXAR_OK) return 3;
            x = static_cast<uint64_t*>(memory);
            const auto mine = [&](uint64_t i) { return 1000 * (rank + 1) + i; };

            for (uint64_t i = 0; i < 100; ++i) x[i] = mine(i);  // in place
            if (nexar_all_reduce(group, x, x, 100, NEXAR_U64, NEXAR_SUM, nullptr) != NEXAR_OK) return 4;
            for (uint64_t i = 0; i < 100; ++i)
                if (x[i] != 6000 + 3 * i) return 5;

            for (uint64_t i = 0; i < 100; ++i) x[100 + i] = mine(i);
            if (nexar_reduce(group, x + 100, rank == 2 ? x : nullptr, 100, NEXAR_U64, NEXAR_SUM, 2,
                             nullptr) != NEXAR_OK)
                return 6;
            if (rank == 2 && x[99] != 6000 + 3 * 99) return 7;

            for (uint64_t i = 0; i < 100; ++i) x[i] = rank == 1 ? mine(i) : 0;
            if (nexar_broadcast(group, x, 100, NEXAR_U64, 1, nullptr) != NEXAR_OK) return 8;
            if (x[42] != 2042) return 9;

            for (uint64_t i = 0; i < 100; ++i) x[100 * rank + i] = mine(i);  // own block in place
            if (nexar_all_gather(group, x, x, 100, NEXAR_U64, nullptr) != NEXAR_OK) return 10;
            for (uint64_t r = 0; r < 3; ++r)
                if (x[100 * r + 17] != 1000 * (r + 1) + 17) return 11;

            for (uint64_t i = 0; i < 300; ++i) x[i] = mine(i);
            if (nexar_reduce_scatter(group, x, x + 100 * rank, 100, NEXAR_U64, NEXAR_SUM, nullptr) !=
                NEXAR_OK)
                return 12;
            if (x[100 * rank + 5] != 6000 + 3 * (100 * rank + 5)) return 13;
            if (nexar_barrier(group, nullptr) != NEXAR_OK) return 14;
            if (shared && nexar_free(session, memory) != NEXAR_OK) return 15;
        }
        char node[NEXAR_NODE_TEXT];
        if (nexar_group_node(group, 2, node, sizeof node) != NEXAR_OK || std::strncmp(node, "abcd00", 6) != 0)
            return 16;
        if (nexar_group_free(group) != NEXAR_OK || nexar_session_close(session) != NEXAR_OK) return 17;
        return 0;
    };
    Child a(rank_main), b(rank_main), c(rank_main);

    CHECK(a.wait() == 0);
    CHECK(b.wait() == 0);
    CHECK(c.wait() == 0);
}

TEST_CASE("messages: any source, any tag, and what was received", "[local]") {
    ThreadDaemon daemon;
    nexar_session* session = open_session(daemon.path());
    nexar_group* group = nullptr;
    REQUIRE(open_group(session, "self", 1, &group) == NEXAR_OK);
    const uint16_t sent[] = {5, 6, 7};
    nexar_request send = 0;
    REQUIRE(nexar_send_start(group, sent, 3, NEXAR_U16, 0, 77, nullptr, &send) == NEXAR_OK);
    uint16_t got[10] = {};
    nexar_completion completion{};
    completion.struct_size = sizeof completion;

    REQUIRE(nexar_recv(group, got, 10, NEXAR_U16, NEXAR_ANY_SOURCE, NEXAR_ANY_TAG, &completion, nullptr) ==
            NEXAR_OK);

    REQUIRE(completion.bytes == 6);
    REQUIRE(completion.tag == 77);
    REQUIRE(completion.source == 0);
    REQUIRE((got[2] == 7 && got[3] == 0));
    REQUIRE(nexar_request_wait(send, 60'000, nullptr) == NEXAR_OK);
    REQUIRE(nexar_request_free(send) == NEXAR_OK);
    REQUIRE(nexar_recv(group, got, 10, NEXAR_U16, 0, 77, nullptr, within(0)) == NEXAR_ERR_TIMED_OUT);
    REQUIRE(nexar_session_close(session) == NEXAR_OK);
}

TEST_CASE("a request: pending, cancelled, freed once; a second free and every later use are BAD_HANDLE",
          "[local]") {
    ThreadDaemon daemon;
    nexar_session* session = open_session(daemon.path());
    nexar_group* group = nullptr;
    REQUIRE(open_group(session, "stuck", 1, &group) == NEXAR_OK);
    uint64_t x = 1;
    nexar_request request = 0;
    REQUIRE(nexar_all_reduce_start(group, &x, &x, 1, NEXAR_U64, NEXAR_SUM, nullptr, &request) == NEXAR_OK);

    REQUIRE(nexar_request_test(request, nullptr) == NEXAR_PENDING);
    REQUIRE(nexar_request_wait(request, 20, nullptr) == NEXAR_PENDING);
    REQUIRE(nexar_request_free(request) == NEXAR_ERR_BAD_STATE);
    REQUIRE(nexar_request_cancel(request) == NEXAR_OK);
    REQUIRE(nexar_request_wait(request, 60'000, nullptr) == NEXAR_ERR_CANCELLED);
    REQUIRE(nexar_request_test(request, nullptr) == NEXAR_ERR_CANCELLED);
    REQUIRE(nexar_request_free(request) == NEXAR_OK);
    REQUIRE(nexar_request_free(request) == NEXAR_ERR_BAD_HANDLE);
    REQUIRE(nexar_request_test(request, nullptr) == NEXAR_ERR_BAD_HANDLE);
    REQUIRE(nexar_request_wait(request, 0, nullptr) == NEXAR_ERR_BAD_HANDLE);
    REQUIRE(nexar_request_cancel(0) == NEXAR_ERR_BAD_HANDLE);
    REQUIRE(nexar_session_close(session) == NEXAR_OK);
    REQUIRE(nexar_session_close(session) == NEXAR_ERR_CLOSED);
    REQUIRE(nexar_barrier(group, nullptr) == NEXAR_ERR_CLOSED);
    REQUIRE(nexar_group_free(group) == NEXAR_ERR_CLOSED);
}

TEST_CASE("a blocking call ends at its deadline, with the daemon's words about who is late", "[local]") {
    ThreadDaemon daemon;
    nexar_session* session = open_session(daemon.path());
    nexar_group* group = nullptr;
    REQUIRE(open_group(session, "stuck", 1, &group) == NEXAR_OK);

    REQUIRE(nexar_barrier(group, within(50)) == NEXAR_ERR_TIMED_OUT);

    const auto error = last_error();
    REQUIRE(error.rank == 1);
    REQUIRE(std::string(error.op) == "barrier");
    REQUIRE(std::string(error.text) == "late: rank 1");
    REQUIRE(error.error_class == NEXAR_CLASS_OPERATION);
    nexar_group* missing = nullptr;
    REQUIRE(open_group(session, "lonely", 2, &missing, 50) == NEXAR_ERR_GROUP_INCOMPLETE);
    REQUIRE(nexar_session_close(session) == NEXAR_OK);
}

TEST_CASE("a full table is TABLE_FULL, commands still work, and it recovers", "[local]") {
    ThreadDaemon daemon;
    nexar_session_options options;
    nexar_session_options_init(&options, sizeof options);
    options.socket_path = daemon.path().c_str();
    options.slots = 16;
    nexar_session* session = nullptr;
    REQUIRE(nexar_session_open(&options, &session) == NEXAR_OK);
    nexar_group* group = nullptr;
    REQUIRE(open_group(session, "stuck", 1, &group) == NEXAR_OK);
    std::vector<nexar_request> requests;
    nexar_request request = 0;
    nexar_status status = NEXAR_OK;
    for (int i = 0; i < 20 && status == NEXAR_OK; ++i) {
        status = nexar_barrier_start(group, nullptr, &request);
        if (status == NEXAR_OK) requests.push_back(request);
    }

    REQUIRE(status == NEXAR_ERR_TABLE_FULL);
    REQUIRE(requests.size() == 12);  // 16 less those for commands
    void* memory = nullptr;
    REQUIRE(nexar_alloc(session, 100, nullptr, &memory) == NEXAR_OK);
    for (auto r : requests) {
        REQUIRE(nexar_request_cancel(r) == NEXAR_OK);
        REQUIRE(nexar_request_wait(r, 60'000, nullptr) == NEXAR_ERR_CANCELLED);
        REQUIRE(nexar_request_free(r) == NEXAR_OK);
    }
    REQUIRE(nexar_barrier_start(group, nullptr, &request) == NEXAR_OK);
    REQUIRE(nexar_session_close(session) == NEXAR_OK);
}

TEST_CASE("bad arguments are refused by name and reach nobody", "[local]") {
    ThreadDaemon daemon;
    nexar_session* session = open_session(daemon.path());
    nexar_group* group = nullptr;
    REQUIRE(open_group(session, "alone", 1, &group) == NEXAR_OK);
    uint64_t x[8] = {};
    const auto bad = NEXAR_ERR_INVALID_ARGUMENT;

    CHECK(nexar_all_reduce(group, nullptr, x, 1, NEXAR_U64, NEXAR_SUM, nullptr) == bad);
    CHECK(std::string(last_error().text).contains("input"));
    CHECK(nexar_all_reduce(group, x, nullptr, 1, NEXAR_U64, NEXAR_SUM, nullptr) == bad);
    CHECK(nexar_all_reduce(group, x, x, 1, 19, NEXAR_SUM, nullptr) == bad);
    CHECK(nexar_all_reduce(group, x, x, 1, -1, NEXAR_SUM, nullptr) == bad);
    CHECK(nexar_all_reduce(group, x, x, 1, NEXAR_U64, 14, nullptr) == bad);
    CHECK(nexar_all_reduce(group, x, x, 1, NEXAR_U64, NEXAR_MINLOC, nullptr) == bad);
    CHECK(nexar_all_reduce(group, x, x, 1, NEXAR_U64, NEXAR_PREMUL_SUM, nullptr) == bad);
    CHECK(nexar_all_reduce(group, x, x, UINT64_MAX / 4, NEXAR_U64, NEXAR_SUM, nullptr) == bad);
    CHECK(nexar_all_reduce(group, x, x, UINT64_C(1) << 60, NEXAR_U64, NEXAR_SUM, nullptr) == bad);
    CHECK(nexar_all_reduce(group, x, x + 1, 4, NEXAR_U64, NEXAR_SUM, nullptr) == bad);
    CHECK(nexar_all_reduce(group, x, x, 1, NEXAR_U64, NEXAR_SUM, within(-3)) == bad);
    CHECK(nexar_broadcast(group, x, 1, NEXAR_U64, 1, nullptr) == bad);
    CHECK(nexar_send(group, x, 1, NEXAR_U64, 1, 0, nullptr) == bad);
    CHECK(nexar_send(group, x, 1, NEXAR_U64, 0, NEXAR_ANY_TAG, nullptr) == bad);
    CHECK(nexar_barrier_start(group, nullptr, nullptr) == bad);
    CHECK(nexar_barrier(nullptr, nullptr) == NEXAR_ERR_BAD_HANDLE);
    CHECK(nexar_barrier(reinterpret_cast<nexar_group*>(session), nullptr) == NEXAR_ERR_BAD_HANDLE);
    CHECK(nexar_barrier(reinterpret_cast<nexar_group*>(&x), nullptr) == NEXAR_ERR_BAD_HANDLE);
    CHECK(nexar_session_open(nullptr, nullptr) == bad);
    CHECK(nexar_alloc(session, 0, nullptr, reinterpret_cast<void**>(&x)) == bad);
    CHECK(nexar_free(session, x) == NEXAR_ERR_NOT_FOUND);
    CHECK(nexar_all_reduce(group, nullptr, nullptr, 0, NEXAR_U64, NEXAR_SUM, nullptr) == NEXAR_OK);
    CHECK(daemon.counters.ops <= 1);
    CHECK(nexar_last_error(nullptr) == bad);
    REQUIRE(nexar_session_close(session) == NEXAR_OK);
    nexar_session_options options;
    nexar_session_options_init(&options, sizeof options);
    options.socket_path = "/nonexistent/nexar.sock";
    CHECK(nexar_session_open(&options, &session) == NEXAR_ERR_NOT_FOUND);
}

TEST_CASE("scratch has a limit that names itself and nexar_alloc", "[local]") {
    ThreadDaemon daemon;
    nexar_session_options options;
    nexar_session_options_init(&options, sizeof options);
    options.socket_path = daemon.path().c_str();
    options.scratch_limit = 6 << 20;
    nexar_session* session = nullptr;
    REQUIRE(nexar_session_open(&options, &session) == NEXAR_OK);
    nexar_group* group = nullptr;
    REQUIRE(open_group(session, "alone", 1, &group) == NEXAR_OK);
    std::vector<uint64_t> big(1 << 20);

    REQUIRE(nexar_all_reduce(group, big.data(), big.data(), big.size(), NEXAR_U64, NEXAR_SUM, nullptr) ==
            NEXAR_ERR_NO_MEMORY);
    const std::string text = last_error().text;
    REQUIRE(text.find("scratch_limit is 6291456") != std::string::npos);
    REQUIRE(text.find("nexar_alloc") != std::string::npos);
    for (uint64_t count :
         {1u, 1000u, 100000u, 500000u, 200000u, 400000u})  // sizes of many classes: idle blocks make room
        REQUIRE(nexar_all_reduce(group, big.data(), big.data(), count, NEXAR_U64, NEXAR_SUM, nullptr) ==
                NEXAR_OK);
    REQUIRE(nexar_session_close(session) == NEXAR_OK);
}

TEST_CASE("wait_any and poll report what has ended, each once", "[local]") {
    ThreadDaemon daemon;
    nexar_session* session = open_session(daemon.path());
    nexar_group *stuck = nullptr, *group = nullptr;
    REQUIRE(open_group(session, "stuck", 1, &stuck) == NEXAR_OK);
    REQUIRE(open_group(session, "alone", 1, &group) == NEXAR_OK);
    int fd = -1;
    REQUIRE(nexar_session_fd(session, &fd) == NEXAR_OK);
    nexar_request requests[2] = {};
    REQUIRE(nexar_barrier_start(stuck, nullptr, &requests[0]) == NEXAR_OK);
    size_t index = 9;
    REQUIRE(nexar_request_wait_any(requests, 1, 30, &index, nullptr) == NEXAR_PENDING);
    REQUIRE(nexar_barrier_start(group, nullptr, &requests[1]) == NEXAR_OK);

    REQUIRE(nexar_request_wait_any(requests, 2, 60'000, &index, nullptr) == NEXAR_OK);
    REQUIRE(index == 1);

    nexar_completion ended[4] = {};
    size_t count = 0;
    REQUIRE(nexar_session_poll(session, ended, sizeof *ended, 4, &count) == NEXAR_OK);
    REQUIRE(count == 1);
    REQUIRE(ended[0].request == requests[1]);
    REQUIRE(nexar_session_poll(session, ended, sizeof *ended, 4, &count) == NEXAR_OK);
    REQUIRE(count == 0);
    // 600 more, waited for one by one: the completion ring goes round unread; the one that is not freed is
    // still found.
    nexar_request kept = 0;
    REQUIRE(nexar_barrier_start(group, nullptr, &kept) == NEXAR_OK);
    for (int i = 0; i < 600; ++i) REQUIRE(nexar_barrier(group, nullptr) == NEXAR_OK);
    REQUIRE(nexar_session_poll(session, ended, sizeof *ended, 4, &count) == NEXAR_OK);
    REQUIRE(std::ranges::find(ended, ended + count, kept, &nexar_completion::request) != ended + count);
    REQUIRE(nexar_session_close(session) == NEXAR_OK);
}

TEST_CASE("wait_some gives all that have ended, in the array's order, as often as it is asked", "[local]") {
    ThreadDaemon daemon;
    nexar_session* session = open_session(daemon.path());
    nexar_group *stuck = nullptr, *group = nullptr;
    REQUIRE(open_group(session, "stuck", 1, &stuck) == NEXAR_OK);
    REQUIRE(open_group(session, "alone", 1, &group) == NEXAR_OK);
    nexar_request requests[6] = {};  // [0] and [3] are 0
    for (const size_t i : {1u, 4u}) REQUIRE(nexar_barrier_start(stuck, nullptr, &requests[i]) == NEXAR_OK);
    uint64_t indices[6] = {99, 99, 99, 99, 99, 99}, count = 9;
    nexar_completion ends[6] = {};
    const auto some = [&](int64_t timeout_ms) {
        return nexar_request_wait_some(requests, 6, timeout_ms, indices, &count, ends, sizeof *ends);
    };
    REQUIRE(some(30) == NEXAR_PENDING);
    CHECK(count == 0);
    CHECK(nexar_request_test_some(requests, 6, indices, &count, nullptr, 0) == NEXAR_PENDING);
    CHECK(indices[0] == 99);

    for (const size_t i : {5u, 2u}) {
        nexar_op_options options = NEXAR_OP_OPTIONS_INIT;
        options.user_data = i;
        REQUIRE(nexar_barrier_start(group, &options, &requests[i]) == NEXAR_OK);
        REQUIRE(nexar_request_wait(requests[i], 60'000, nullptr) == NEXAR_OK);
    }
    for (int again = 0; again < 2; ++again) {
        REQUIRE(some(NEXAR_TIMEOUT_NONE) == NEXAR_OK);
        REQUIRE(count == 2);
        for (const size_t k : {0u, 1u}) {
            const size_t place = k == 0 ? 2 : 5;
            CHECK(indices[k] == place);
            CHECK(ends[k].request == requests[place]);
            CHECK(ends[k].user_data == place);
            CHECK(ends[k].status == NEXAR_OK);
        }
        CHECK(ends[2].struct_size == 0);
    }
    // One that failed is one that has ended.
    REQUIRE(nexar_request_cancel(requests[4]) == NEXAR_OK);
    REQUIRE(nexar_request_wait(requests[4], 60'000, nullptr) == NEXAR_ERR_CANCELLED);
    REQUIRE(some(0) == NEXAR_OK);
    REQUIRE(count == 3);
    CHECK(indices[1] == 4);
    CHECK(ends[1].status == NEXAR_ERR_CANCELLED);
    CHECK(nexar_request_test_some(requests, 6, nullptr, &count, nullptr, 0) == NEXAR_ERR_INVALID_ARGUMENT);
    CHECK(nexar_request_test_some(requests, 6, indices, nullptr, nullptr, 0) == NEXAR_ERR_INVALID_ARGUMENT);
    CHECK(nexar_request_test_some(requests, 6, indices, &count, ends, 3) == NEXAR_ERR_INVALID_ARGUMENT);
    REQUIRE(nexar_request_free(requests[5]) == NEXAR_OK);
    CHECK(some(0) == NEXAR_ERR_BAD_HANDLE);
    REQUIRE(nexar_session_close(session) == NEXAR_OK);
}

TEST_CASE("the session's descriptor is readable when something ended or the daemon went, and not before",
          "[local]") {
    auto daemon = std::make_unique<ThreadDaemon>();
    nexar_session* session = open_session(daemon->path());
    nexar_group* stuck = nullptr;
    REQUIRE(open_group(session, "stuck", 1, &stuck) == NEXAR_OK);
    pollfd watched{-1, POLLIN, 0};
    REQUIRE(nexar_session_fd(session, &watched.fd) == NEXAR_OK);
    nexar_request request = 0;
    nexar_completion ended[4] = {};
    size_t count = 9;
    REQUIRE(nexar_barrier_start(stuck, nullptr, &request) == NEXAR_OK);
    REQUIRE(nexar_session_poll(session, ended, sizeof *ended, 4, &count) == NEXAR_OK);
    CHECK(count == 0);
    CHECK(::poll(&watched, 1, 30) == 0);

    REQUIRE(nexar_request_cancel(request) == NEXAR_OK);

    CHECK(::poll(&watched, 1, 60'000) == 1);
    REQUIRE(nexar_session_poll(session, ended, sizeof *ended, 4, &count) == NEXAR_OK);
    CHECK((count == 1 && ended[0].request == request));
    CHECK(::poll(&watched, 1, 0) == 0);
    daemon.reset();
    CHECK(::poll(&watched, 1, 60'000) == 1);
    CHECK(nexar_session_poll(session, ended, sizeof *ended, 4, &count) == NEXAR_ERR_DAEMON_LOST);
    REQUIRE(nexar_session_close(session) == NEXAR_OK);
}

TEST_CASE("the session's descriptor is readable also for a request that completed before it was asked for",
          "[local]") {
    ThreadDaemon daemon;
    for (const bool by_doorbell : {false, true}) {
        Child client([&] {
            if (by_doorbell) ::setenv("NEXAR_WITHOUT_WAITV", "1", 1);
            nexar_session* session = open_session(daemon.path());
            nexar_group* group = nullptr;
            nexar_request request = 0;
            nexar_completion ended[4] = {};
            if (open_group(session, "alone", 1, &group) != NEXAR_OK) return 1;
            if (nexar_barrier_start(group, nullptr, &request) != NEXAR_OK) return 2;
            while (nexar_request_test(request, nullptr) == NEXAR_PENDING)
                ::usleep(1000);  // sleep: between two looks

            pollfd watched{-1, POLLIN, 0};
            if (nexar_session_fd(session, &watched.fd) != NEXAR_OK) return 3;
            if (::poll(&watched, 1, 60'000) != 1) return 4;
            size_t count = 0;
            if (nexar_session_poll(session, ended, sizeof *ended, 4, &count) != NEXAR_OK) return 5;
            if (count != 1 || ended[0].request != request) return 6;
            if (nexar_session_fd(session, &watched.fd) != NEXAR_OK) return 7;
            if (::poll(&watched, 1, 30) != 0) return 8;  // and not for ever
            return 0;
        });
        CAPTURE(by_doorbell);
        CHECK(client.wait() == 0);
    }
}

TEST_CASE("memory of nexar_alloc is used in place, ordinary memory is copied, and both are counted",
          "[local]") {
    ThreadDaemon daemon;
    nexar_session* session = open_session(daemon.path());
    nexar_group* group = nullptr;
    REQUIRE(open_group(session, "alone", 1, &group) == NEXAR_OK);
    const auto copied = [&] {
        nexar_session_stats stats{};
        stats.struct_size = sizeof stats;
        REQUIRE(nexar_session_stats_get(session, &stats) == NEXAR_OK);
        return stats.bytes_copied;
    };
    void* memory = nullptr;
    REQUIRE(nexar_alloc(session, 16000, nullptr, &memory) == NEXAR_OK);
    auto* x = static_cast<uint64_t*>(memory);
    std::iota(x, x + 1000, 7u);

    REQUIRE(nexar_all_reduce(group, x, x + 1000, 1000, NEXAR_U64, NEXAR_SUM, nullptr) == NEXAR_OK);
    REQUIRE(std::equal(x, x + 1000, x + 1000));
    REQUIRE(copied() == 0);

    std::vector<uint64_t> ordinary(1000);
    REQUIRE(nexar_all_reduce(group, x, ordinary.data(), 1000, NEXAR_U64, NEXAR_SUM, nullptr) == NEXAR_OK);
    REQUIRE(std::equal(x, x + 1000, ordinary.begin()));
    REQUIRE(copied() == 8000);  // the side that is ordinary memory
    REQUIRE(nexar_session_close(session) == NEXAR_OK);
}

// How long a wait may stay awake is the application's choice; the counters say what it came to.
TEST_CASE("waits yield before they sleep, as long as they may, and sleep at once where they may not",
          "[local]") {
    const auto waits = [](int64_t spin_us, uint32_t bulk_threads = 0) {
        DaemonOptions daemon_options;
        daemon_options.bulk_threads = bulk_threads;
        ThreadDaemon daemon(daemon_options);
        nexar_session_options options;
        nexar_session_options_init(&options, sizeof options);
        options.socket_path = daemon.path().c_str();
        options.spin_us = spin_us;
        nexar_session* session = nullptr;
        nexar_group *group = nullptr, *stuck = nullptr;
        REQUIRE(nexar_session_open(&options, &session) == NEXAR_OK);
        REQUIRE(open_group(session, "alone", 1, &group) == NEXAR_OK);
        REQUIRE(open_group(session, "stuck", 1, &stuck) == NEXAR_OK);
        uint64_t x = 1;
        for (int i = 0; i < 200; ++i)
            REQUIRE(nexar_all_reduce(group, &x, &x, 1, NEXAR_U64, NEXAR_SUM, nullptr) == NEXAR_OK);
        REQUIRE(nexar_barrier(stuck, within(150)) ==
                NEXAR_ERR_TIMED_OUT);  // a wait that is too long to stay awake
        nexar_session_stats stats{};
        stats.struct_size = sizeof stats;
        REQUIRE(nexar_session_stats_get(session, &stats) == NEXAR_OK);
        REQUIRE(nexar_session_close(session) == NEXAR_OK);
        return stats;
    };

    const auto awake = waits(100'000), asleep = waits(0);
    const auto beside_bulk = waits(100'000, UINT32_MAX);  // more than this machine has processors [K35]

    CHECK(awake.waits_yielded + awake.waits_spun > 0);
    CHECK(awake.waits_slept > 0);
    CHECK(asleep.waits_yielded + asleep.waits_spun == 0);
    CHECK(asleep.waits_slept > 0);
    CHECK(beside_bulk.waits_yielded + beside_bulk.waits_spun == 0);
    CHECK(beside_bulk.waits_slept > 0);
}
