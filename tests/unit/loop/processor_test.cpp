#include "loop/processor.hpp"

#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
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

TEST_CASE("the control loop's slice is short, that of bulk longer than a program's", "[loop][K29]") {
    in_a_thread([] {
        const Attributes before = own();
        const bool has_choice = set_slice(Slice::control);
        const uint64_t control = own().runtime;
        CHECK(set_slice(Slice::bulk) == has_choice);
        const Attributes bulk = own();
        CHECK(bulk.policy == before.policy);
        CHECK(bulk.nice == before.nice);
        CHECK((!has_choice || (control < before.runtime && before.runtime < bulk.runtime)));
        CHECK(set_slice(Slice::usual) == has_choice);
        CHECK(own().runtime == before.runtime);
    });
}

TEST_CASE("a thread that has no slice of its own choice goes on without", "[loop][K29]") {
    in_a_thread([] {
        const sched_param none{};
        if (::sched_setscheduler(0, SCHED_IDLE, &none) != 0) return;
        CHECK_FALSE(set_slice(Slice::control));
        CHECK(::sched_getscheduler(0) == SCHED_IDLE);
    });
}

TEST_CASE("a slice keeps the nice value", "[loop][K29]") {
    in_a_thread([] {
        const int wanted = own().nice + 1;
        if (::setpriority(PRIO_PROCESS, 0, wanted) != 0) return;  // it was 19
        const int nice = own().nice;
        set_slice(Slice::bulk);
        CHECK(own().nice == nice);
    });
}

TEST_CASE("a quiet thread has the kernel's own slice, whatever the thread has that starts it",
          "[loop][K29]") {
    in_a_thread([] {
        const uint64_t before = own().runtime;
        set_slice(Slice::control);
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

TEST_CASE("a loop that waits has the short slice only while its yields are long", "[loop][K29][K30]") {
    in_a_thread([] {
        const uint64_t before = own().runtime;
        WaitPolicy policy;
        const bool has_choice = policy.try_slices();
        CHECK(own().runtime == before);
        bool was_short = false, was_long = false;
        const auto wait = [&] {
            Time now = Loop::now();
            const Time began = now;
            const bool goes_on = policy.yield(now, true);
            if (now == began) return;  // it did not pay
            (goes_on ? was_short : was_long) = true;
            if (has_choice) CHECK((own().runtime == before) == goes_on);
        };
        wait();
        std::atomic<bool> ends = false;
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(static_cast<unsigned>(::sched_getcpu()), &one);
        if (::sched_setaffinity(0, sizeof one, &one) != 0) return;
        std::thread beside([&] {  // on the same processor
            while (!ends) {
            }
        });
        const Time until = Loop::now() + std::chrono::minutes(1);
        while (!was_long && Loop::now() < until) wait();
        CHECK(was_long);
        ends = true;
        beside.join();
        was_short = false;
        while (!was_short && Loop::now() < until) wait();
        CHECK(was_short);
    });
}

TEST_CASE("a loop beside bulk does not yield, and has the short slice until it yields again", "[loop][K35]") {
    in_a_thread([] {
        const uint64_t before = own().runtime;
        WaitPolicy policy;
        const bool has_choice = policy.try_slices();
        Time now = Loop::now();
        const Time began = now;
        CHECK_FALSE(policy.yield(now, false));
        CHECK(now == began);
        if (has_choice) CHECK(own().runtime < before);
        const Time until = Loop::now() + std::chrono::minutes(1);
        while (!policy.yield(now, true) && now < until) now = Loop::now();
        CHECK(own().runtime == before);
    });
}

}  // namespace nexar::loop
