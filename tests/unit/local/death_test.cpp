// Deaths: of the daemon, of clients, of forks, at several moments. Every wait ends, at once, and says why.
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "calls.hpp"
#include "local/futex.hpp"
#include "nexar.h"
#include "shm/control.hpp"
#include "shm/words.hpp"
#include "test_daemon.hpp"

using namespace nexar;
using namespace nexar::test;

namespace {

struct Joined {
    nexar_session* session = nullptr;
    nexar_group* group = nullptr;
};

Joined join(const std::string& path, const char* name, uint32_t size, int64_t unresponsive_ms = 10000,
            int64_t spin_us = -1) {
    Joined out;
    nexar_session_options options;
    nexar_session_options_init(&options, sizeof options);
    options.socket_path = path.c_str();
    options.daemon_unresponsive_ms = unresponsive_ms;
    if (spin_us >= 0) options.spin_us = spin_us;  // 0: a wait sleeps at once
    if (nexar_session_open(&options, &out.session) != NEXAR_OK) return out;
    nexar_group_options group;
    nexar_group_options_init(&group, sizeof group);
    group.name = name;
    group.size = size;
    if (nexar_group_open(out.session, &group, &out.group) != NEXAR_OK) out.group = nullptr;
    return out;
}

int64_t now_ms() {
    timespec t{};
    ::clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1'000'000;
}

// Eight threads that wait on eight requests; what each got, and when the last one had it.
struct Sleepers {
    explicit Sleepers(nexar_group* group) {
        for (int i = 0; i < 8; ++i) {
            nexar_request request = 0;
            if (nexar_barrier_start(group, nullptr, &request) != NEXAR_OK) continue;
            requests.push_back(request);
            threads.emplace_back([this, i, request] {
                ++waiting;
                got[i] = nexar_request_wait(request, 20000, nullptr);
                done_at[i] = now_ms();
            });
        }
        while (waiting != 8) ::usleep(1000);  // sleep: between two looks
        ::usleep(30000);                      // sleep: into theirs, or not: both are right
    }
    int64_t join() {
        int64_t last = 0;
        for (auto& t : threads) t.join();
        for (auto& at : done_at) last = std::max<int64_t>(last, at);
        return last;
    }
    bool all(nexar_status status) const {
        for (auto& s : got)
            if (s != status) return false;
        return true;
    }
    std::vector<nexar_request> requests;
    std::vector<std::thread> threads;
    std::atomic<int> waiting{0};
    std::atomic<nexar_status> got[8] = {};
    std::atomic<int64_t> done_at[8] = {};
};

// Until every other thread of this process waits for something; false: one never does.
bool others_fall_asleep() {
    const auto all_asleep = [] {
        for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
            if (thread.path().filename() == std::to_string(::gettid())) continue;
            std::ifstream file(thread.path() / "stat");
            const std::string stat{std::istreambuf_iterator<char>(file), {}};
            const size_t name_end = stat.rfind(") ");  // "ID (NAME) STATE ..."
            if (name_end != std::string::npos && stat[name_end + 2] != 'S') return false;
        }
        return true;
    };
    for (int i = 0; i < 10000; ++i) {
        if (all_asleep()) return true;
        ::usleep(1000);  // sleep: between two looks
    }
    return false;
}

// How often the other threads of this process have gone to sleep.
uint64_t switches_of_others() {
    uint64_t sum = 0;
    for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
        if (thread.path().filename() == std::to_string(::getpid())) continue;
        std::ifstream status(thread.path() / "status");
        for (std::string word; status >> word;)
            if (word == "voluntary_ctxt_switches:" && status >> word) sum += std::stoull(word);
    }
    return sum;
}

// Where this process has mapped a memfd of that name for writing; null: nowhere.
std::byte* mapped(const std::string& name) {
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);)
        if (line.find("/memfd:" + name) != std::string::npos && line.find(" rw-s ") != std::string::npos)
            return reinterpret_cast<std::byte*>(std::stoull(line, nullptr, 16));
    return nullptr;
}

}  // namespace

TEST_CASE("a waiter that wakes because its own request ended passes a daemon's death on [S8]",
          "[local][death]") {
    Child client([] {
        ThreadDaemon daemon;  // in this process: its mapping of the word can be written to
        Joined rank = join(daemon.path(), "stuck", 1, -1);
        if (!rank.group) return 1;
        Sleepers sleepers(rank.group);
        std::byte* const control = mapped("nexar-control");
        std::byte* const alive = mapped("nexar-alive");
        if (!control || !alive) return 2;
        const auto view = shm::ControlView::over({control, nexar_shm_control_bytes(NEXAR_SHM_SLOTS_DEFAULT)},
                                                 NEXAR_SHM_SLOTS_DEFAULT);
        if (!view) return 3;
        const auto slot = [&](int i) -> nexar_shm_slot& {
            return view->slot(static_cast<uint32_t>(sleepers.requests[static_cast<size_t>(i)] & 0xfff));
        };
        for (int i = 0; i < 8; ++i)
            while (shm::load_acquire(slot(i).waiters) == 0) ::usleep(1000);  // sleep: between two looks
        if (!others_fall_asleep()) return 7;

        // As the kernel leaves it when its one wake goes to somebody who is waking up anyway.
        const int64_t died_at = now_ms();
        shm::store_release(*reinterpret_cast<uint32_t*>(alive),
                           uint32_t{NEXAR_ALIVE_OWNER_DIED | NEXAR_ALIVE_WAITERS});
        const auto generation = static_cast<uint32_t>(sleepers.requests[0] >> 24);
        shm::store_release(slot(0).state, NEXAR_SLOT_WORD(generation, uint32_t{NEXAR_SLOT_DONE}));
        local::futex_wake(&slot(0).state);

        if (sleepers.join() - died_at > 10000) return 4;  // their waits would end after 20 s
        if (sleepers.got[0] != NEXAR_OK) return 5;
        for (int i = 1; i < 8; ++i)
            if (sleepers.got[i] != NEXAR_ERR_DAEMON_LOST) return 6;
        return 0;
    });
    CHECK(client.wait(40) == 0);
}

TEST_CASE("a killed daemon releases all eight waiting threads at once with DAEMON_LOST", "[local][death]") {
    for (const bool by_doorbell : {false, true}) {
        ProcessDaemon daemon;
        Child client([&] {
            if (by_doorbell) ::setenv("NEXAR_WITHOUT_WAITV", "1", 1);
            Joined rank = join(daemon.path(), "stuck", 1);
            if (!rank.group) return 1;
            Sleepers sleepers(rank.group);
            const int64_t killed_at = now_ms();
            ::kill(daemon.process().pid(), SIGKILL);
            const int64_t last = sleepers.join();
            if (!sleepers.all(NEXAR_ERR_DAEMON_LOST)) return 2;
            if (last - killed_at > 5000)
                return 3;  // their waits would end after 20 s, the daemon's tick ends them after 10
            if (nexar_barrier(rank.group, nullptr) != NEXAR_ERR_DAEMON_LOST) return 4;
            if (nexar_request_test(sleepers.requests[0], nullptr) != NEXAR_ERR_DAEMON_LOST) return 5;
            if (nexar_request_free(sleepers.requests[0]) != NEXAR_OK) return 6;
            nexar_completion none[1];
            size_t count = 0;
            if (nexar_session_poll(rank.session, none, sizeof *none, 1, &count) != NEXAR_OK &&
                nexar_session_poll(rank.session, none, sizeof *none, 1, &count) != NEXAR_ERR_DAEMON_LOST)
                return 7;
            if (nexar_session_close(rank.session) != NEXAR_OK) return 8;
            return 0;
        });
        CAPTURE(by_doorbell);
        CHECK(client.wait() == 0);
    }
}

TEST_CASE("who waits for nothing does not wake up, with futex_waitv and without", "[local][death][S9]") {
    for (const bool by_doorbell : {false, true}) {
        ProcessDaemon daemon;
        Child client([&] {
            if (by_doorbell) ::setenv("NEXAR_WITHOUT_WAITV", "1", 1);
            Joined rank = join(daemon.path(), "stuck", 1);
            if (!rank.group) return 1;
            Sleepers sleepers(rank.group);
            // The first second may have their way into their sleep.
            uint64_t before = 0, after = switches_of_others();
            for (int second = 0; second < 3 && after != before; ++second) {
                before = after;
                ::usleep(1'000'000);  // sleep: the time over which nobody wakes up
                after = switches_of_others();
            }
            if (before == 0 || after != before) return 2;
            for (const nexar_request request : sleepers.requests)
                if (nexar_request_cancel(request) != NEXAR_OK) return 3;
            sleepers.join();
            return sleepers.all(NEXAR_ERR_CANCELLED) ? 0 : 4;
        });
        CAPTURE(by_doorbell);
        CHECK(client.wait() == 0);
    }
}

TEST_CASE("a daemon that stops in order releases its waiters too, and can be replaced", "[local][death]") {
    auto daemon = std::make_unique<ThreadDaemon>();
    Joined rank = join(daemon->path(), "stuck", 1);
    REQUIRE(rank.group);
    Sleepers sleepers(rank.group);

    daemon.reset();
    sleepers.join();

    REQUIRE(sleepers.all(NEXAR_ERR_DAEMON_LOST));
    REQUIRE(nexar_session_close(rank.session) == NEXAR_OK);
}

TEST_CASE("a daemon killed at any moment of a busy client: every call ends", "[local][death]") {
    for (int round = 0; round < 12; ++round) {
        ProcessDaemon daemon;
        Child client([&] {
            Joined rank = join(daemon.path(), "alone", 1);
            if (!rank.group) return 0;  // killed before
            std::vector<std::thread> threads;
            std::atomic<int> bad{0};
            for (int t = 0; t < 3; ++t)
                threads.emplace_back([&, t] {
                    std::vector<uint64_t> x(t == 0 ? 200000 : 10, 3);
                    nexar_group_options options = NEXAR_GROUP_OPTIONS_INIT;
                    const std::string name = "alone" + std::to_string(t);
                    options.name = name.c_str();
                    options.size = 1;
                    nexar_group* own = nullptr;
                    nexar_status status = nexar_group_open(rank.session, &options, &own);
                    while (status == NEXAR_OK)
                        status = nexar_all_reduce(own, x.data(), x.data(), x.size(), NEXAR_U64, NEXAR_SUM,
                                                  nullptr);
                    if (status != NEXAR_ERR_DAEMON_LOST) bad = status;
                });
            for (auto& t : threads) t.join();
            return bad == 0 ? 0 : 1;
        });
        ::usleep(static_cast<useconds_t>(round * round * 700));  // sleep: each round another moment
        daemon.process().kill(SIGKILL);
        CAPTURE(round);
        CHECK(client.wait() == 0);
    }
}

TEST_CASE("who only asks, and never waits, finds out that the daemon stands still", "[local][death]") {
    ProcessDaemon daemon;
    Child client([&] {
        Joined rank = join(daemon.path(), "stuck", 1, 500);
        if (!rank.group) return 1;
        nexar_request request = 0;
        if (nexar_barrier_start(rank.group, nullptr, &request) != NEXAR_OK) return 2;
        ::kill(daemon.process().pid(), SIGSTOP);
        const int64_t until = now_ms() + 20000;
        nexar_completion end = NEXAR_COMPLETION_INIT;
        uint64_t index = 7;
        nexar_status found = NEXAR_PENDING;
        while (found == NEXAR_PENDING && now_ms() < until) {
            found = nexar_request_test_any(&request, 1, &index, &end);
            ::usleep(1000);  // sleep: between two questions
        }
        if (found != NEXAR_OK || index != 0) return 3;
        return end.status == NEXAR_ERR_DAEMON_UNRESPONSIVE ? 0 : 4;
    });
    CHECK(client.wait() == 0);
    daemon.process().kill(SIGCONT);
}

TEST_CASE("a stopped daemon is DAEMON_UNRESPONSIVE after the limit, not before", "[local][death][S9]") {
    ProcessDaemon daemon;
    Child client([&] {
        Joined rank = join(daemon.path(), "stuck", 1, 1500);
        if (!rank.group) return 1;
        Sleepers sleepers(rank.group);
        const int64_t stopped_at = now_ms();
        ::kill(daemon.process().pid(), SIGSTOP);
        const int64_t last = sleepers.join();
        if (!sleepers.all(NEXAR_ERR_DAEMON_UNRESPONSIVE)) return 2;
        if (last - stopped_at < 900) return 3;
        if (last - stopped_at > 6000) return 4;
        return 0;
    });
    CHECK(client.wait() == 0);
    daemon.process().kill(SIGCONT);
}

TEST_CASE("a client killed at any moment is noticed, and its siblings learn which rank", "[local][death]") {
    ThreadDaemon daemon;
    for (int round = 0; round < 8; ++round) {
        const std::string name = "pair" + std::to_string(round);
        const size_t ops_before = daemon.counters.ops;
        Child victim([&] {
            Joined rank = join(daemon.path(), name.c_str(), 2);
            if (!rank.group) return 1;
            uint64_t x[64] = {};
            while (nexar_all_reduce(rank.group, x, x, 64, NEXAR_U64, NEXAR_SUM, nullptr) == NEXAR_OK) {
            }
            return 0;
        });
        Child survivor([&] {
            Joined rank = join(daemon.path(), name.c_str(), 2);
            if (!rank.group) return 1;
            uint64_t x[64] = {};
            nexar_status status = NEXAR_OK;
            while (status == NEXAR_OK)
                status = nexar_all_reduce(rank.group, x, x, 64, NEXAR_U64, NEXAR_SUM, within(15000));
            nexar_error error{};
            error.struct_size = sizeof error;
            uint32_t mine = 9;
            if (nexar_last_error(&error) != NEXAR_OK || nexar_group_rank(rank.group, &mine) != NEXAR_OK)
                return 2;
            if (status != NEXAR_ERR_PEER_LOST) return 3;
            if (error.rank != 1 - static_cast<int64_t>(mine)) return 4;
            if (std::string(error.node).substr(0, 4) != "abcd" || error.error_class != NEXAR_CLASS_GROUP)
                return 5;
            return 0;
        });
        REQUIRE(
            daemon.eventually([&] { return daemon.counters.ops >= ops_before + 2; }));  // both have the group
        ::usleep(static_cast<useconds_t>(20000 + round * 1500));  // sleep: each round another moment
        victim.kill(SIGKILL);
        CAPTURE(round);
        CHECK(survivor.wait() == 0);
        REQUIRE(daemon.eventually([&] { return daemon.counters.sessions == 0; }));
        REQUIRE(daemon.counters.regions == 0);
    }
}

TEST_CASE("a killed client whose forked child still runs is noticed", "[local][death]") {
    ThreadDaemon daemon;
    int fds[2];
    REQUIRE(::pipe(fds) == 0);
    Child client([&] {
        Joined rank = join(daemon.path(), "stuck", 1);
        const pid_t child = ::fork();
        if (child == 0) {
            ::sleep(30);  // sleep: meanwhile it holds the socket open
            ::_exit(0);
        }
        if (::write(fds[1], &child, sizeof child) != sizeof child) return 1;
        return nexar_barrier(rank.group, nullptr) == NEXAR_OK ? 0 : 2;
    });
    pid_t grandchild = 0;
    REQUIRE(::read(fds[0], &grandchild, sizeof grandchild) == sizeof grandchild);
    REQUIRE(daemon.eventually([&] { return daemon.counters.pending == 1; }));

    client.kill(SIGKILL);

    CHECK(daemon.eventually([&] { return daemon.counters.sessions == 0 && daemon.counters.pending == 0; }));
    ::kill(grandchild, SIGKILL);
    ::close(fds[0]);
    ::close(fds[1]);
}

TEST_CASE("a fork's child owns nothing of its parent's, may open its own, and its death hurts nobody",
          "[local][death]") {
    ThreadDaemon daemon;
    Child parent([&] {
        Joined rank = join(daemon.path(), "alone", 1);
        if (!rank.group) return 1;
        void* memory = nullptr;
        if (nexar_alloc(rank.session, 4096, nullptr, &memory) != NEXAR_OK) return 2;
        nexar_request pending = 0;
        if (nexar_barrier_start(rank.group, nullptr, &pending) != NEXAR_OK) return 3;
        Child child([&] {
            if (nexar_barrier(rank.group, nullptr) != NEXAR_ERR_CLOSED) return 1;
            if (nexar_request_test(pending, nullptr) != NEXAR_ERR_CLOSED) return 2;
            if (nexar_session_close(rank.session) != NEXAR_ERR_CLOSED) return 3;
            if (nexar_free(rank.session, memory) != NEXAR_ERR_CLOSED) return 4;
            Joined own = join(daemon.path(), "childs", 1);
            if (!own.group || nexar_barrier(own.group, nullptr) != NEXAR_OK) return 5;
            ::raise(SIGKILL);
            return 6;
        });
        if (const int status = child.wait(); status != -SIGKILL) return 10 + status;
        uint64_t x[3] = {1, 2, 3};
        if (nexar_all_reduce(rank.group, x, x, 3, NEXAR_U64, NEXAR_SUM, nullptr) != NEXAR_OK || x[2] != 3)
            return 4;
        if (nexar_request_wait(pending, 60'000, nullptr) != NEXAR_OK) return 5;
        return nexar_session_close(rank.session) == NEXAR_OK ? 0 : 6;
    });
    CHECK(parent.wait() == 0);
}

TEST_CASE("closing a session on one thread ends the waits of the others with CLOSED", "[local][death]") {
    ThreadDaemon daemon;
    Joined rank = join(daemon.path(), "stuck", 1);
    REQUIRE(rank.group);
    Sleepers sleepers(rank.group);

    REQUIRE(nexar_session_close(rank.session) == NEXAR_OK);
    sleepers.join();

    REQUIRE(sleepers.all(NEXAR_ERR_CLOSED));
    REQUIRE(nexar_request_test(sleepers.requests[3], nullptr) == NEXAR_ERR_CLOSED);
    REQUIRE(daemon.eventually([&] { return daemon.counters.sessions == 0; }));
}

TEST_CASE("a signal ends a wait and leaves the request as it was", "[local][death]") {
    ThreadDaemon daemon;
    Child client([&] {
        struct sigaction action{};
        action.sa_handler = [](int) {};
        ::sigaction(SIGUSR1, &action, nullptr);
        Joined rank = join(daemon.path(), "stuck", 1);
        nexar_request request = 0;
        if (!rank.group || nexar_barrier_start(rank.group, nullptr, &request) != NEXAR_OK) return 1;
        std::atomic<bool> over{false};
        const auto waiter = ::pthread_self();
        std::thread signals([&] {
            while (!over) {
                ::usleep(20000);  // sleep: between two signals
                ::pthread_kill(waiter, SIGUSR1);
            }
        });
        const auto status = nexar_request_wait(request, 15000, nullptr);
        over = true;
        signals.join();
        if (status != NEXAR_ERR_INTERRUPTED) return 2;
        return nexar_request_test(request, nullptr) == NEXAR_PENDING ? 0 : 3;
    });
    CHECK(client.wait() == 0);
}

TEST_CASE("a lost wake-up in the daemon is noticed: waits end late", "[local][death][sabotage]") {
    // What this test would say if the daemon forgot sleepers: it does so here on purpose, every 8th time.
    // Each barrier ends while its waiter is known to be asleep, so that each forgotten one is late; without
    // the sabotage none is.
    for (const bool sabotage : {true, false}) {
        DaemonOptions options;
        options.sabotage.lose_a_wakeup = sabotage;
        ThreadDaemon daemon(options);
        Joined first;
        std::thread opens([&] { first = join(daemon.path(), "pair", 2, 10000, 0); });
        Joined second = join(daemon.path(), "pair", 2, 10000, 0);
        opens.join();
        REQUIRE(first.group);
        REQUIRE(second.group);
        int late = 0;
        const int64_t limit_ms = sabotage ? 1000 : 15000;  // without, only a busy machine could take so long
        for (int i = 0; i < 8; ++i) {
            nexar_request waits = 0, ends = 0;
            REQUIRE(nexar_barrier_start(first.group, nullptr, &waits) == NEXAR_OK);
            std::atomic<bool> entered{false};
            std::atomic<nexar_status> got{NEXAR_PENDING};
            std::atomic<int64_t> took_ms{0};
            std::thread waiter([&] {
                const int64_t from = now_ms();
                entered = true;
                got = nexar_request_wait(waits, limit_ms, nullptr);
                took_ms = now_ms() - from;
            });
            while (!entered) ::usleep(1000);  // sleep: between two looks
            const bool asleep = others_fall_asleep();
            const auto started = nexar_barrier_start(second.group, nullptr, &ends);
            waiter.join();
            REQUIRE(asleep);
            REQUIRE(started == NEXAR_OK);
            REQUIRE(got == NEXAR_OK);  // at the time-out it looks, and the barrier has ended
            late += took_ms >= limit_ms;
            REQUIRE(nexar_request_wait(ends, 15000, nullptr) == NEXAR_OK);
        }
        CHECK(late == (sabotage ? 1 : 0));
        REQUIRE(nexar_session_close(first.session) == NEXAR_OK);
        REQUIRE(nexar_session_close(second.session) == NEXAR_OK);
    }
}
