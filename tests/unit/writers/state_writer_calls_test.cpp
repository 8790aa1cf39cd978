// The loop hands batches over, and waits for them at the start, without the wake of a futex.
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <string>

#include "support/faults.hpp"
#include "support/forbidden_calls.hpp"
#include "support/temporary.hpp"
#include "writers/state_writer.hpp"

using namespace nexar;
using namespace nexar::test;
using namespace nexar::writers;

namespace {

constexpr int cannot_try = 77;

// A child's, which must not run its parent's ends.
int save_without_futexes(const StateDir& state) {
    loop::Wakeup wakeup;
    StateWriter writer(state, wakeup);
    if (!forbid_calls({SYS_futex}, EPERM)) ::_exit(cannot_try);
    for (int i = 0; i < 20; ++i) {
        ::usleep(1000);  // sleep: the thread sleeps by now, or else the round shows nothing
        const storage::Saving saving = writer.save({{"file", Secret(std::to_string(i))}});
        if (i % 2 == 0) {
            writer.wait_for(saving);
            continue;
        }
        while (!saving.outcome()) {
            wakeup.announce_sleep();
            if (writer.step()) break;
            pollfd one{wakeup.fd(), POLLIN, 0};
            if (::poll(&one, 1, 10'000) != 1) ::_exit(1);
            wakeup.drain();
        }
        wakeup.awake();
    }
    ::_exit(0);  // joining is a futex, too
}

}  // namespace

TEST_CASE("[N20] the loop hands a batch to the thread, and waits for it at the start, without a futex",
          "[writers]") {
    Folder folder;
    const StateDir state = open_state(folder.file("state"));
    const pid_t child = ::fork();
    if (child == 0) {
        ::alarm(30);
        save_without_futexes(state);
    }
    REQUIRE(child > 0);
    int status = -1;
    REQUIRE(::waitpid(child, &status, 0) == child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == cannot_try) SKIP("this place allows no seccomp filters");
    REQUIRE(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
}
