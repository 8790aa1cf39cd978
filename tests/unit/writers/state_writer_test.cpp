// The writer's thread: the loop that hands a batch over continues at once, whatever the disk does.
#include "writers/state_writer.hpp"

#include <poll.h>
#include <sys/resource.h>

#include "support/faults.hpp"
#include "support/temporary.hpp"

using namespace nexar;
using namespace nexar::test;
using namespace nexar::writers;

namespace {

struct World {
    Folder folder;
    StateDir state = open_state(folder.file("state"));
    loop::Wakeup wakeup;
    std::optional<StateWriter> writer{std::in_place, state, wakeup};

    // Sleeps and steps as the control loop does, until this is settled.
    void until_settled(const storage::Saving& saving) {
        while (!saving.outcome()) {
            wakeup.announce_sleep();
            if (!writer->step()) {
                pollfd one{wakeup.fd(), POLLIN, 0};
                REQUIRE(poll(&one, 1, 20000) == 1);
                wakeup.drain();
            }
            wakeup.awake();
        }
    }
};

}  // namespace

TEST_CASE(
    "what is handed over is on disk when the outcome comes, and no call of it is this thread's [K1] [K2]",
    "[writers][H11]") {
    World w;
    const Disk disk;
    const auto saving = w.writer->save({{"a", Secret("1")}, {"b", Secret("2")}});
    w.until_settled(saving);
    CHECK(saving.outcome()->result);
    CHECK(saving.outcome()->applied == 2);
    CHECK(faults().fsyncs == 0);
    CHECK(text_of(w.state, "a") == "1");
    CHECK(text_of(w.state, "b") == "2");
}

TEST_CASE("a disk that hangs delays outcomes only, and what is newer takes the place of what waits [K1] [K3]",
          "[writers][H11]") {
    World w;
    std::vector<storage::Saving> all;
    {
        const HungDisk hung;
        for (int i = 0; i < 1000; ++i) {
            all.push_back(w.writer->save({{"roster", Secret(std::to_string(i))}}));
            w.writer->step();
        }
        for (const auto& saving : all) CHECK_FALSE(saving.outcome());
    }
    w.until_settled(all.back());
    for (const auto& saving : all) {
        REQUIRE(saving.outcome());
        CHECK(saving.outcome()->result);
    }
    CHECK(text_of(w.state, "roster") == "999");
}

TEST_CASE("a failure is an outcome, and the next batch is tried", "[writers]") {
    World w;
    const auto failed = w.writer->save({{"no/such/folder", Secret("x")}});
    const auto next = w.writer->save({{"file", Secret("x")}});
    w.until_settled(next);
    REQUIRE(failed.outcome());
    CHECK_FALSE(failed.outcome()->result);
    CHECK(contains(failed.outcome()->result.error().text, "no/such/folder"));
    CHECK(next.outcome()->result);
}

TEST_CASE("what was handed over is done when the writer ends", "[writers]") {
    World w;
    for (int i = 0; i < 20; ++i) w.writer->save({{"file" + std::to_string(i), Secret("x")}});
    w.writer.reset();
    for (int i = 0; i < 20; ++i) CHECK(text_of(w.state, "file" + std::to_string(i)) == "x");
}

TEST_CASE("a daemon's start waits for its outcome", "[writers]") {
    World w;
    w.writer->save({{"first", Secret("x")}});
    const auto saving = w.writer->save({{"incarnation", Secret("7\n")}});
    w.writer->wait_for(saving);
    REQUIRE(saving.outcome());
    CHECK(saving.outcome()->result);
    CHECK(text_of(w.state, "incarnation") == "7\n");
}

TEST_CASE("[N23] a writer for which no descriptor is left says so, and its end waits for nothing",
          "[writers]") {
    Folder folder;
    const StateDir state = open_state(folder.file("state"));
    loop::Wakeup wakeup;
    rlimit before{}, few{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
    few = {3, before.rlim_max};  // standard input, output and error
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &few) == 0);
    Result<void> made;
    {
        StateWriter writer(state, wakeup);
        made = writer.made();
    }
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
    REQUIRE_FALSE(made);
    CHECK(made.error().text.contains("an eventfd"));
}
