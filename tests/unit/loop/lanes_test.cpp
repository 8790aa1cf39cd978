// Who adds work waits for no thread of the lanes: also when threads that were called do not get the
// processor.
#include "loop/lanes.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <latch>
#include <thread>
#include <utility>
#include <vector>

#include "loop/fd.hpp"
#include "support/forbidden_calls.hpp"

using namespace nexar;
using loop::Fd;
using loop::Lanes;

namespace {

constexpr size_t lane_threads = 3;
using Threads = std::array<pid_t, lane_threads>;

struct Pipe {
    Pipe() { REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0); }
    ~Pipe() {
        ::close(ends[0]);
        ::close(ends[1]);
    }
    void put(auto value) const { REQUIRE(::write(ends[1], &value, sizeof value) == sizeof value); }
    template <typename T>
    T get() const {
        pollfd one{ends[0], POLLIN, 0};
        T out{};
        REQUIRE(::poll(&one, 1, 60'000) == 1);
        REQUIRE(::read(ends[0], &out, sizeof out) == sizeof out);
        return out;
    }
    std::array<int, 2> ends{};
};

// Has each of the lanes' threads do one thing, and returns their numbers.
Threads threads_of(Lanes& lanes) {
    Threads out{};
    std::latch all(lane_threads);
    for (size_t i = 0; i < lane_threads; ++i)
        lanes.add(i, 0, [&out, &all, i] {
            out[i] = ::gettid();
            all.arrive_and_wait();
        });
    REQUIRE(lanes.idle_within(60));
    return out;
}

// Stopped by this process, as threads are that wait long for the processor.
class Stopped {
  public:
    explicit Stopped(pid_t thread) : thread_(thread) {
        REQUIRE(::ptrace(PTRACE_SEIZE, thread, 0, 0) == 0);
        REQUIRE(::ptrace(PTRACE_INTERRUPT, thread, 0, 0) == 0);
        REQUIRE(::waitpid(thread, nullptr, __WALL) == thread);
    }
    // Its process may have ended already, and is not seen to end before its threads are.
    ~Stopped() {
        if (::ptrace(PTRACE_DETACH, thread_, 0, 0) != 0) ::waitpid(thread_, nullptr, __WALL);
    }
    Stopped(const Stopped&) = delete;
    Stopped& operator=(const Stopped&) = delete;

  private:
    pid_t thread_;
};

// What the child does: adds while all of the threads but one are stopped, and says when it has added.
int add_to_stopped(const Pipe& threads, const Pipe& go, const Pipe& added) {
    Lanes lanes = *Lanes::open(lane_threads);
    std::atomic<int> done{0};
    threads.put(threads_of(lanes));
    go.get<char>();
    for (uint64_t i = 0; i < 1000; ++i) {
        lanes.add(i, 0, [&] { ++done; });
        std::this_thread::yield();
    }
    added.put('a');
    return lanes.idle_within(60) && done == 1000 ? 0 : 1;
}

}  // namespace

TEST_CASE("[S16] who adds work to lanes does not wait for threads that were called and do not run",
          "[loop]") {
    const Pipe threads, go, added;
    const pid_t child = ::fork();
    if (child == 0) ::_exit(add_to_stopped(threads, go, added));
    REQUIRE(child > 0);
    {
        const Threads all = threads.get<Threads>();
        const Stopped first(all[1]), second(all[2]);
        go.put('g');
        pollfd one{added.ends[0], POLLIN, 0};
        CHECK(::poll(&one, 1, 20'000) == 1);
    }
    int status = -1;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
}

TEST_CASE("[S16] all threads of the lanes work when there is work for all", "[loop]") {
    Lanes lanes = *Lanes::open(lane_threads);
    for (int round = 0; round < 1000; ++round) {
        std::latch all(lane_threads);
        for (uint64_t lane = 0; lane < lane_threads; ++lane)
            lanes.add(lane, 0, [&] { all.arrive_and_wait(); });
        REQUIRE(lanes.idle_within(60));
    }
}

TEST_CASE("[N23] lanes for which no descriptor is left are an error that names the limit", "[loop]") {
    rlimit before{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
    rlimit few = before;
    // Threads of earlier lanes may close descriptors meanwhile: those that are opened then keep them.
    std::vector<Lanes> others;
    const auto open = [&](rlim_t spare) {
        const Fd next(::dup(0));  // the number that a new one gets
        REQUIRE(next);
        few.rlim_cur = static_cast<rlim_t>(next.get()) + 1 + spare;
        REQUIRE(::setrlimit(RLIMIT_NOFILE, &few) == 0);
        auto lanes = Lanes::open(lane_threads);
        REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
        return lanes;
    };
    for (rlim_t spare : {0u, 1u}) {
        Result<void> opened;
        while (opened && others.size() < 100) {
            auto lanes = open(spare);
            if (lanes)
                others.push_back(std::move(*lanes));
            else
                opened = fail(lanes.error());
        }
        REQUIRE_FALSE(opened);
        CHECK(opened.error().code == Errc::io);
        CHECK(opened.error().text.contains("Too many open files"));
        CHECK(opened.error().text.contains("is " + std::to_string(few.rlim_cur)));
        CHECK(opened.error().text.contains("LimitNOFILE"));
    }
}

TEST_CASE("[N23] lanes for which no thread is left are an error", "[loop]") {
    bool forbidden = false;
    Result<void> opened;
    std::thread([&] {
        forbidden = test::forbid_calls({SYS_clone, SYS_clone3}, EAGAIN);
        const auto lanes = Lanes::open(lane_threads);
        if (!lanes) opened = fail(lanes.error());
    }).join();
    REQUIRE(forbidden);
    REQUIRE_FALSE(opened);
    CHECK(opened.error().text.contains("cannot start a thread"));
}
