// The thread that makes answers' texts: the loop hands work over without the wake of a futex.
#include "node/renderer.hpp"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <vector>

#include "support/forbidden_calls.hpp"

using namespace nexar;
using namespace nexar::node;

namespace {

constexpr int answers = 20, cannot_try = 77;

// Turns the loop until an answer came. False: none within ten seconds.
bool takes_answer(Renderer& renderer, loop::Wakeup& wakeup) {
    while (true) {
        wakeup.announce_sleep();
        if (renderer.step()) return true;
        pollfd one{wakeup.fd(), POLLIN, 0};
        if (::poll(&one, 1, 10'000) != 1) return false;
        wakeup.drain();
        wakeup.awake();
    }
}

int work_without_futexes() {
    loop::Wakeup wakeup;
    Renderer renderer(wakeup);
    if (!test::forbid_calls({SYS_futex}, EPERM)) ::_exit(cannot_try);
    for (int i = 0; i < answers; ++i) {
        ::usleep(1000);  // sleep: the thread sleeps by now, or else the round shows nothing
        std::string got;
        renderer.start([i] { return std::to_string(i); },
                       [&got](const Result<std::string>& text) { got = *text; });
        if (!takes_answer(renderer, wakeup)) ::_exit(1);
        if (got != std::to_string(i) || !renderer.is_free()) ::_exit(2);
    }
    ::_exit(0);  // joining is a futex, too
}

}  // namespace

TEST_CASE("[N20] the loop hands a text to its thread, and takes it, without a futex", "[node][N17]") {
    const pid_t child = ::fork();
    if (child == 0) work_without_futexes();
    REQUIRE(child > 0);
    int status = -1;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(WIFEXITED(status));
    if (WEXITSTATUS(status) == cannot_try) SKIP("this place allows no seccomp filters");
    CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("[N20] what is being made is made before the thread ends, and its answer is dropped", "[node]") {
    loop::Wakeup wakeup;
    bool made = false, answered = false;
    {
        Renderer renderer(wakeup);
        renderer.start([&made] { return made = true, std::string("text"); },
                       [&answered](const Result<std::string>&) { answered = true; });
    }
    CHECK(made);
    CHECK_FALSE(answered);
}
