// What takes long to give back takes it from nobody else.
#include "loop/releaser.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <catch2/catch_test_macros.hpp>
#include <cerrno>
#include <system_error>
#include <thread>
#include <vector>

#include "loop/quiet_thread.hpp"
#include "support/forbidden_calls.hpp"
#include "support/stuck_socket.hpp"

using namespace nexar;
using loop::Fd;
using loop::Releaser;
using test::StuckSocket;

namespace {

// The other end of a pipe whose write end `lane` gives back.
Fd pipe_through(Releaser& releaser, uint64_t lane) {
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    releaser.release(lane, Fd(ends[1]));
    return Fd(ends[0]);
}

bool hangs_up(const Fd& fd) {
    pollfd one{fd.get(), POLLIN, 0};
    return ::poll(&one, 1, 60'000) == 1 && (one.revents & POLLHUP) != 0;
}

}  // namespace

TEST_CASE("[S16] a lane that is stuck holds up no other", "[loop]") {
    const auto opened = *Releaser::open(3, true);
    Releaser& releaser = *opened;
    StuckSocket first, second;
    releaser.release(1, first.take());
    releaser.release(2, second.take());
    const Fd behind = pipe_through(releaser, 1);
    for (uint64_t lane = 3; lane < 20; ++lane) CHECK(hangs_up(pipe_through(releaser, lane)));
    CHECK(releaser.descriptors(1) == 2);
    CHECK(releaser.descriptors(2) == 1);

    first.let_go();
    CHECK(hangs_up(behind));
    second.let_go();
    CHECK(releaser.idle_within(60));
    CHECK(releaser.descriptors() == 0);
}

TEST_CASE("[S16] what would wait long to be closed is interrupted", "[loop]") {
    const auto opened = *Releaser::open(1);
    Releaser& releaser = *opened;
    std::vector<StuckSocket> stuck(20);
    for (StuckSocket& one : stuck) releaser.release(1, one.take());
    CHECK(hangs_up(pipe_through(releaser, 1)));
    CHECK(releaser.idle_within(60));
}

TEST_CASE("[S16] a releaser that ends waits for nothing, and what it has is given back all the same",
          "[loop]") {
    StuckSocket stuck;
    Fd behind;
    {
        const auto opened = *Releaser::open(1, true);
        Releaser& releaser = *opened;
        releaser.release(1, stuck.take());
        behind = pipe_through(releaser, 2);
    }
    stuck.let_go();
    CHECK(hangs_up(behind));
}

TEST_CASE("[S16] where the system has no thread left, what is released is given back all the same",
          "[loop]") {
    const auto opened = *Releaser::open(8);
    Releaser& releaser = *opened;
    std::vector<Fd> ends;
    bool forbidden = false;
    std::thread([&] {
        forbidden = test::forbid_calls({SYS_clone, SYS_clone3}, EAGAIN);
        for (uint64_t lane = 1; lane <= 4; ++lane) ends.push_back(pipe_through(releaser, lane));
    }).join();
    REQUIRE(forbidden);
    for (const Fd& end : ends) CHECK(hangs_up(end));
    CHECK(releaser.idle_within(60));
}

TEST_CASE("[S16] where the system has no thread left, who asks for one keeps its signals", "[loop]") {
    bool forbidden = false, refused = false;
    sigset_t before, after;
    std::thread([&] {
        forbidden = test::forbid_calls({SYS_clone, SYS_clone3}, EAGAIN);
        pthread_sigmask(SIG_SETMASK, nullptr, &before);
        try {
            loop::quiet_thread([] {}).join();
        } catch (const std::system_error&) {
            refused = true;
        }
        pthread_sigmask(SIG_SETMASK, nullptr, &after);
    }).join();
    REQUIRE((forbidden && refused));
    for (int number = 1; number < SIGRTMIN; ++number)
        CHECK(sigismember(&after, number) == sigismember(&before, number));
}

TEST_CASE("[S16] a mapping of several pieces is unmapped whole", "[loop]") {
    constexpr size_t bytes = (size_t{128} << 20) + 4096;
    void* at = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    REQUIRE(at != MAP_FAILED);
    const MutableBytes mapped(static_cast<std::byte*>(at), bytes);
    const auto opened = *Releaser::open(1);
    Releaser& releaser = *opened;
    releaser.release(0, {.mapping = mapped});
    REQUIRE(releaser.idle_within(60));
    for (size_t offset = 0; offset < bytes; offset += size_t{64} << 20)
        CHECK(::msync(mapped.data() + offset, 4096, MS_ASYNC) != 0);  // ENOMEM: nothing is there
}
