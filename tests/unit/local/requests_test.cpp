// What becomes of requests when threads, cancels and ends meet in unlucky ways.
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "calls.hpp"
#include "rank.hpp"
#include "test_daemon.hpp"

using namespace nexar;
using namespace nexar::test;

TEST_CASE("a cancel is not lost in a ring full of cancels", "[local][D12]") {
    ProcessDaemon daemon;
    const TestSession session(daemon.path(), {.slots = 16});
    nexar_group* group = session.group("stuck");
    nexar_request often = 0, once = 0;
    REQUIRE(nexar_barrier_start(group, nullptr, &often) == NEXAR_OK);
    REQUIRE(nexar_barrier_start(group, nullptr, &once) == NEXAR_OK);

    daemon.process().kill(SIGSTOP);
    for (int i = 0; i < 200; ++i) REQUIRE(nexar_request_cancel(often) == NEXAR_OK);
    REQUIRE(nexar_request_cancel(once) == NEXAR_OK);
    daemon.process().kill(SIGCONT);

    CHECK(nexar_request_wait(often, 10000, nullptr) == NEXAR_ERR_CANCELLED);
    CHECK(nexar_request_wait(once, 10000, nullptr) == NEXAR_ERR_CANCELLED);
}

TEST_CASE("a group whose handle did not fit into the caller's completion goes with its request", "[local]") {
    ThreadDaemon daemon;
    const TestSession session(daemon.path());
    nexar_group_options options = NEXAR_GROUP_OPTIONS_INIT;
    options.name = "alone";
    options.size = 1;
    // An older program's struct; and this one's.
    for (const uint32_t size :
         {uint32_t{8}, uint32_t{offsetof(nexar_completion, group)}, uint32_t{sizeof(nexar_completion)}}) {
        CAPTURE(size);
        nexar_request request = 0;
        REQUIRE(nexar_group_open_start(session.get(), &options, &request) == NEXAR_OK);
        nexar_completion end = NEXAR_COMPLETION_INIT;
        end.struct_size = size;
        const size_t before = daemon.counters.groups_freed;
        REQUIRE(nexar_request_wait(request, 10000, &end) == NEXAR_OK);
        CHECK(end.status == NEXAR_OK);
        REQUIRE(nexar_request_free(request) == NEXAR_OK);
        if (size != sizeof end) {
            CHECK(daemon.eventually([&] { return daemon.counters.groups_freed == before + 1; }));
        } else {
            uint32_t rank = 7;
            CHECK(nexar_group_rank(end.group, &rank) == NEXAR_OK);
            CHECK(nexar_group_free(end.group) == NEXAR_OK);
        }
    }
}

TEST_CASE("a forked child cannot free its parent's group, which stays open", "[local]") {
    ProcessDaemon daemon;
    const TestSession session(daemon.path());
    nexar_group* group = session.group("alone");
    Child child([&] {
        if (nexar_group_free(group) != NEXAR_ERR_CLOSED) return 1;
        return last_failure().code == NEXAR_ERR_CLOSED ? 0 : 2;
    });
    CHECK(child.wait() == 0);
    CHECK(nexar_barrier(group, within(10000)) == NEXAR_OK);
    CHECK(nexar_group_free(group) == NEXAR_OK);
}

TEST_CASE("the admin socket is not taken for the one of sessions", "[local]") {
    const std::string path = "/tmp/nexar-requests-test-" + std::to_string(::getpid()) + ".sock";
    const int listener = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    REQUIRE(::bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(::listen(listener, 1) == 0);
    nexar_session* session = nullptr;
    CHECK(try_open_session(path, &session) == NEXAR_ERR_IO);
    const std::string text = last_failure().text;
    CHECK(text.find("perhaps the admin or status socket") != std::string::npos);
    CHECK(text.find("/run/nexar/nexard.sock") != std::string::npos);
    ::close(listener);
    ::unlink(path.c_str());
}

TEST_CASE("waiting for none of the requests ends at once, and well", "[local]") {
    nexar_completion completion = NEXAR_COMPLETION_INIT;
    const nexar_request none[2] = {0, 0};
    CHECK(nexar_request_wait_all(nullptr, 0, NEXAR_TIMEOUT_NONE, nullptr, 0) == NEXAR_OK);
    CHECK(nexar_request_wait_all(none, 0, 0, &completion, sizeof completion) == NEXAR_OK);
    CHECK(nexar_request_wait_all(none, 2, NEXAR_TIMEOUT_NONE, nullptr, 0) == NEXAR_OK);
    CHECK(nexar_request_wait_all(nullptr, 1, 0, nullptr, 0) == NEXAR_ERR_INVALID_ARGUMENT);
    // There is no first one of none.
    uint64_t index = 7;
    CHECK(nexar_request_wait_any(nullptr, 0, NEXAR_TIMEOUT_NONE, &index, nullptr) ==
          NEXAR_ERR_INVALID_ARGUMENT);
    CHECK(nexar_request_test_any(none, 0, &index, &completion) == NEXAR_ERR_INVALID_ARGUMENT);
    CHECK(nexar_request_test_any(none, 2, &index, &completion) == NEXAR_ERR_INVALID_ARGUMENT);
    uint64_t ended = 8;
    CHECK(nexar_request_wait_some(none, 2, 0, &index, &ended, &completion, sizeof completion) ==
          NEXAR_ERR_INVALID_ARGUMENT);
    CHECK(nexar_request_test_some(nullptr, 0, &index, &ended, nullptr, 0) == NEXAR_ERR_INVALID_ARGUMENT);
    CHECK(ended == 8);
    CHECK(index == 7);
    CHECK(completion.status == NEXAR_PENDING);
}

namespace {

// Polls like an event loop, and frees whatever it is offered, from two threads.
class Poller {
  public:
    explicit Poller(nexar_session* session) {
        for (std::thread& thread : threads_)
            thread = std::thread([this, session] {
                nexar_completion ended[64];
                size_t count = 0;
                while (!stop_ && nexar_session_poll(session, ended, sizeof *ended, 64, &count) == NEXAR_OK) {
                    reported += count;
                    for (size_t i = 0; i < count; ++i) nexar_request_free(ended[i].request);
                    std::this_thread::yield();
                }
            });
    }
    ~Poller() {
        stop_ = true;
        for (std::thread& thread : threads_) thread.join();
    }
    std::atomic<size_t> reported{0};

  private:
    std::atomic<bool> stop_{false};
    std::thread threads_[2];
};

}  // namespace

TEST_CASE("a poll never reports a blocking call, whose failure stays one", "[local][D1]") {
    ThreadDaemon daemon;
    const TestSession session(daemon.path());
    nexar_group* alone = session.group("alone");
    nexar_group* failed = nullptr;
    {
        const TestSession peer(daemon.path());
        nexar_group* theirs = nullptr;
        std::thread other([&] { theirs = peer.group("pair", 2); });
        failed = session.group("pair", 2);
        other.join();
    }
    REQUIRE(daemon.eventually([&] { return daemon.counters.sessions == 1; }));

    const Poller poller(session.get());
    int failed_ok = 0, received_ok = 0;
    for (int i = 0; i < 3000; ++i) {
        uint64_t x = 1, y = 0;
        failed_ok += nexar_all_reduce(failed, &x, &y, 1, NEXAR_U64, NEXAR_SUM, within(20000)) == NEXAR_OK;
        REQUIRE(nexar_all_reduce(alone, &x, &y, 1, NEXAR_U64, NEXAR_SUM, within(20000)) == NEXAR_OK);
        REQUIRE(y == 1);
    }
    for (int i = 0; i < 100; ++i) {  // nobody sends
        uint64_t x = 0;
        received_ok += nexar_recv(alone, &x, 1, NEXAR_U64, 0, 9, nullptr, within(0)) == NEXAR_OK;
    }
    CHECK(poller.reported == 0);
    CHECK(failed_ok == 0);
    CHECK(received_ok == 0);
}

// A handle is session, slot and generation: who guesses right has no more rights than who guesses wrong.
TEST_CASE("a blocking call's request has no handle, not even a guessed one", "[local][D1]") {
    ThreadDaemon daemon;
    const TestSession session(daemon.path(), {.slots = 16});
    nexar_group* stuck = session.group("stuck");
    nexar_request mine = 0;
    REQUIRE(nexar_barrier_start(stuck, nullptr, &mine) == NEXAR_OK);
    std::atomic<nexar_status> outcome{NEXAR_PENDING};
    std::jthread blocked([&] { outcome = nexar_barrier(stuck, within(60'000)); });
    REQUIRE(daemon.eventually([&] { return daemon.counters.pending == 2; }));

    int known = 0;
    const uint64_t session_bits = mine & 0xfff000;
    for (uint64_t generation = 1; generation < (mine >> 24) + 64; ++generation)
        for (uint64_t slot = 0; slot < 16; ++slot) {
            const nexar_request guess = generation << 24 | session_bits | slot;
            if (guess == mine) continue;
            known += nexar_request_test(guess, nullptr) != NEXAR_ERR_BAD_HANDLE;
            known += nexar_request_cancel(guess) != NEXAR_ERR_BAD_HANDLE;
            known += nexar_request_free(guess) != NEXAR_ERR_BAD_HANDLE;
        }
    CHECK(known == 0);
    REQUIRE(nexar_session_close(session.get()) == NEXAR_OK);  // ends the call
    blocked.join();
    CHECK(outcome == NEXAR_ERR_CLOSED);
}

// The thread that sees the completion copies bytes back to ordinary memory; after close() no thread may.
TEST_CASE("memory that was given to a request is the caller's again when the session is closed", "[local]") {
    constexpr size_t bytes = size_t{64} << 20;
    for (int round = 0; round < 8; ++round) {
        ThreadDaemon daemon;
        auto* out = static_cast<std::byte*>(
            ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        REQUIRE(out != MAP_FAILED);
        nexar_session* session = nullptr;
        nexar_group* group = nullptr;
        REQUIRE(try_open_session(daemon.path(), &session) == NEXAR_OK);
        REQUIRE(try_open_group(session, "alone", 1, &group) == NEXAR_OK);
        nexar_request send = 0, receive = 0;
        REQUIRE(nexar_recv_start(group, out, bytes, NEXAR_U8, 0, 1, nullptr, &receive) == NEXAR_OK);
        const std::vector<std::byte> data(bytes, std::byte{7});
        REQUIRE(nexar_send_start(group, data.data(), bytes, NEXAR_U8, 0, 1, nullptr, &send) == NEXAR_OK);
        nexar_status waited = NEXAR_PENDING;
        std::thread waiter([&] { waited = nexar_request_wait(receive, 20000, nullptr); });
        ::usleep(static_cast<useconds_t>(round * 2000));  // sleep: each round another moment
        CHECK(nexar_session_close(session) == NEXAR_OK);
        ::munmap(out, bytes);  // a copy to it would end this process
        waiter.join();
        CHECK((waited == NEXAR_OK || waited == NEXAR_ERR_CLOSED));
    }
}

// A stage that is installed late stands in a slot that is another's by then. While a session believes in a
// staged request its waiters take another path, on which a wait is counted only when it sleeps.
TEST_CASE("a staged request that ends at once and is freed by another thread leaves no stage behind",
          "[local][D2]") {
    ThreadDaemon daemon;
    const TestSession session(daemon.path(), {.slots = 64, .scratch_limit = 2 << 20, .spin_us = 1'000'000});
    nexar_group* refused = session.group("refused");
    nexar_group* alone = session.group("alone");
    {
        const Poller poller(session.get());
        std::atomic<int> unexpected{0}, started{0};
        std::thread starters[3];
        for (std::thread& thread : starters)
            thread = std::thread([&] {
                std::vector<uint64_t> memory(512 * 1024);  // 4 MiB: beyond scratch_limit
                while (started < 30000 && unexpected == 0) {
                    nexar_request request = 0;
                    const nexar_status status =
                        nexar_all_reduce_start(refused, memory.data(), memory.data(), memory.size(),
                                               NEXAR_U64, NEXAR_SUM, nullptr, &request);
                    started += status == NEXAR_OK;
                    // BAD_STATE: another thread is just starting one.
                    unexpected += status != NEXAR_OK && status != NEXAR_ERR_NO_MEMORY &&
                                  status != NEXAR_ERR_TABLE_FULL && status != NEXAR_ERR_BAD_STATE;
                    if (status != NEXAR_OK) std::this_thread::yield();
                }
            });
        for (std::thread& thread : starters) thread.join();
        CHECK(unexpected == 0);
        // What the daemon has seen by now may be fewer.
        CHECK(daemon.eventually([&] { return poller.reported == static_cast<size_t>(started); }));
    }
    const auto waits = [&] {
        const nexar_session_stats s = session.stats();
        return s.waits_ready + s.waits_spun + s.waits_yielded + s.waits_slept;
    };
    const uint64_t before = waits();
    for (uint64_t i = 0; i < 50; ++i) REQUIRE(nexar_barrier(alone, within(20000)) == NEXAR_OK);
    CHECK(waits() - before == 50);
}

// A starved host: the daemon runs, as its tick shows, and a deadline of 300 ms has passed long ago.
TEST_CASE("an operation that the daemon ends late does not cost the session", "[local][D9]") {
    ThreadDaemon daemon;
    const TestSession session(daemon.path());
    nexar_group* slow = session.group("slow");
    nexar_group* alone = session.group("alone");
    CHECK(nexar_barrier(slow, within(300)) == NEXAR_ERR_TIMED_OUT);
    CHECK(nexar_barrier(alone, within(10000)) == NEXAR_OK);
}

// daemon_unresponsive_ms -1: a debugger, a frozen container.
TEST_CASE("a daemon that stands still for long is waited for when the session says so", "[local][D9]") {
    ProcessDaemon daemon;
    const TestSession session(daemon.path(), {.daemon_unresponsive_ms = NEXAR_TIMEOUT_NONE});
    nexar_group* alone = session.group("alone");
    daemon.process().kill(SIGSTOP);
    std::atomic<nexar_status> outcome{NEXAR_PENDING};
    std::thread blocked([&] { outcome = nexar_barrier(alone, within(300)); });
    ::usleep(10'700'000);  // sleep: the time itself is what is tested
    daemon.process().kill(SIGCONT);
    blocked.join();
    CHECK(outcome == NEXAR_OK);
    CHECK(nexar_barrier(alone, within(10000)) == NEXAR_OK);
}
