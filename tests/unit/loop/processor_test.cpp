#include "loop/processor.hpp"

#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <thread>

#include "loop/loop.hpp"
#include "loop/quiet_thread.hpp"

namespace nexar::loop {

namespace {

struct Attributes {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
};

Attributes own() {
    Attributes out{};
    REQUIRE(::syscall(SYS_sched_getattr, 0, &out, sizeof out, 0) == 0);
    return out;
}

void in_a_thread(auto run) {
    std::thread(run).join();
}

}  // namespace

TEST_CASE("a thread's slice is what it asked for, where the kernel has a choice", "[loop][K29]") {
    in_a_thread([] {
        const Attributes before = own();
        const bool has_choice = set_slice(control_slice);
        const Attributes after = own();
        CHECK(after.policy == before.policy);
        CHECK(after.nice == before.nice);
        if (has_choice) CHECK(after.runtime == uint64_t(control_slice.count()));
        if (!has_choice) CHECK(after.runtime == before.runtime);
        CHECK(set_slice(usual_slice) == has_choice);
        CHECK(own().runtime == before.runtime);
    });
}

TEST_CASE("a thread that has no slice of its own choice goes on without", "[loop][K29]") {
    in_a_thread([] {
        const sched_param none{};
        if (::sched_setscheduler(0, SCHED_IDLE, &none) != 0) return;
        CHECK_FALSE(set_slice(control_slice));
        CHECK(::sched_getscheduler(0) == SCHED_IDLE);
    });
}

TEST_CASE("a slice keeps the nice value", "[loop][K29]") {
    in_a_thread([] {
        const int wanted = own().nice + 1;
        if (::setpriority(PRIO_PROCESS, 0, wanted) != 0) return;  // it was 19
        const int nice = own().nice;
        set_slice(bulk_slice);
        CHECK(own().nice == nice);
    });
}

TEST_CASE("a quiet thread has the kernel's own slice, whatever the thread has that starts it",
          "[loop][K29]") {
    in_a_thread([] {
        const uint64_t before = own().runtime;
        set_slice(control_slice);
        uint64_t found = 0;
        quiet_thread([&] { found = own().runtime; }).join();
        CHECK(found == before);
    });
}

TEST_CASE("a yield that does not pay is none", "[loop][K30]") {
    Yields yields;
    Time now = Loop::now();
    yields.ended(now - std::chrono::seconds(1), now);  // a long one
    const Time before = now;
    CHECK_FALSE(yield(yields, now));
    CHECK(now == before);
    Yields others;
    yield(others, now);  // however long it takes
    CHECK(now > before);
}

}  // namespace nexar::loop
