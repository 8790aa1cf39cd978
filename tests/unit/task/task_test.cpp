#include "task/task.hpp"

#include <catch2/catch_test_macros.hpp>
#include <memory>
#include <string>
#include <vector>

#include "task/op.hpp"

using namespace nexar;

namespace {

struct Ended : Runnable {
    int times = 0;
    void run() override { ++times; }
};

Task<int> forty_two() {
    co_return 42;
}
Task<int> failing() {
    co_return fail(Errc::peer_lost, "rank 3");
}

Task<> count_children(int n, int* sum) {
    for (int i = 0; i < n; ++i) *sum += co_await forty_two();
    co_return ok();
}
Task<> never_reaches(bool* reached) {
    co_await failing();
    *reached = true;
    co_return ok();
}
Task<int> catches() {
    auto result = co_await as_result(failing());
    if (result) co_return 0;
    co_return static_cast<int>(result.error().code);
}
Task<> waits(Op* op, std::string* trace, char mark) {
    *trace += mark;
    co_await done(*op);
    *trace += static_cast<char>(mark - 'a' + 'A');
    co_return ok();
}
Task<> outer(Op* op, std::string* trace) {
    co_await waits(op, trace, 'a');
    *trace += '!';
    co_return ok();
}
Task<> waits_all(std::vector<Op*> ops, std::string* trace) {
    co_await all(std::span<Op* const>(ops));
    *trace += '*';
    co_return ok();
}
Task<> runs_all(std::vector<Task<>> tasks, std::string* trace) {
    co_await all(std::span<Task<>>(tasks));
    *trace += '*';
    co_return ok();
}
struct Guard {
    std::string* trace;
    ~Guard() { *trace += '~'; }
};
Task<> holds_guard(Op* op, std::string* trace) {
    Guard guard{trace};
    co_await done(*op);
    co_return ok();
}

}  // namespace

TEST_CASE("a million children that end at once do not grow the stack") {
    Executor executor;
    int sum = 0;
    Task<> task = count_children(1'000'000, &sum);
    task.start(executor);
    REQUIRE(task.ended());
    REQUIRE(sum == 42'000'000);
}

TEST_CASE("awaiting a failure ends the function; as_result returns it as a value") {
    Executor executor;
    bool reached = false;
    Task<> task = never_reaches(&reached);
    task.start(executor);
    REQUIRE(task.ended());
    REQUIRE_FALSE(reached);
    REQUIRE(task.take_result().error().code == Errc::peer_lost);

    Task<int> caught = catches();
    caught.start(executor);
    REQUIRE(*caught.take_result() == static_cast<int>(Errc::peer_lost));
}

TEST_CASE("finishing an op queues the task and never runs it on the finisher's stack") {
    Executor executor;
    Ended ended;
    std::string trace;
    Op op;
    Task<> task = outer(&op, &trace);
    task.start(executor, &ended);
    REQUIRE(trace == "a");

    op.finish();
    REQUIRE(trace == "a");

    executor.run_ready();
    REQUIRE(trace == "aA!");
    REQUIRE(ended.times == 1);
    REQUIRE(task.take_result());
}

TEST_CASE("a failed op ends the task and every parent, and the root's owner is notified once") {
    Executor executor;
    Ended ended;
    std::string trace;
    Op op;
    Task<> task = outer(&op, &trace);
    task.start(executor, &ended);
    op.finish(fail(Errc::link_lost, "a-b"));
    executor.run_ready();
    REQUIRE(trace == "a");
    REQUIRE(ended.times == 1);
    REQUIRE(task.take_result().error().code == Errc::link_lost);
}

TEST_CASE("all(ops) goes on only when every op is over, and fails with the first failure in order") {
    Executor executor;
    std::string trace;
    Op a, b, c;
    b.finish(fail(Errc::mismatch, "b"));
    Task<> task = waits_all({&a, &b, &c}, &trace);
    task.start(executor);
    c.finish();
    executor.run_ready();
    REQUIRE_FALSE(task.ended());
    a.finish(fail(Errc::aborted, "a"));
    executor.run_ready();
    REQUIRE(task.take_result().error().code == Errc::aborted);
    REQUIRE(trace.empty());
}

TEST_CASE("all(ops) over finished ops does not suspend; over a finished failure it ends the task") {
    Executor executor;
    std::string trace;
    Op a, b;
    a.finish();
    b.finish();
    Task<> good = waits_all({&a, &b}, &trace);
    good.start(executor);
    REQUIRE(good.ended());
    REQUIRE(trace == "*");

    Op bad;
    bad.finish(fail(Errc::io, "disk"));
    Task<> task = waits_all({&a, &bad}, &trace);
    task.start(executor);
    REQUIRE(task.take_result().error().code == Errc::io);
}

TEST_CASE("all(tasks) runs them at the same time and ends after the last") {
    Executor executor;
    std::string trace;
    Op first, second;
    std::vector<Task<>> tasks;
    tasks.push_back(waits(&first, &trace, 'a'));
    tasks.push_back(waits(&second, &trace, 'b'));
    Task<> task = runs_all(std::move(tasks), &trace);
    task.start(executor);
    REQUIRE(trace == "ab");
    second.finish();
    executor.run_ready();
    REQUIRE(trace == "abB");
    first.finish();
    executor.run_ready();
    REQUIRE(trace == "abBA*");
}

TEST_CASE("all(tasks) fails with the first failure, after all have ended") {
    Executor executor;
    std::string trace;
    Op first, second;
    std::vector<Task<>> tasks;
    tasks.push_back(waits(&first, &trace, 'a'));
    tasks.push_back(waits(&second, &trace, 'b'));
    Task<> task = runs_all(std::move(tasks), &trace);
    task.start(executor);
    first.finish(fail(Errc::aborted, "first"));
    executor.run_ready();
    REQUIRE_FALSE(task.ended());
    second.finish();
    executor.run_ready();
    REQUIRE(task.take_result().error().code == Errc::aborted);
}

TEST_CASE("destroying a suspended task frees its locals") {
    Executor executor;
    std::string trace;
    Op op;
    {
        Task<> task = holds_guard(&op, &trace);
        task.start(executor);
        REQUIRE(trace.empty());
    }
    REQUIRE(trace == "~");
}
