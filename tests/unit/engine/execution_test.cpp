// Execution: one collective's data on this node. Here all ranks are on it, and small jobs are done at once;
// what crosses the network is tested in sim/.
#include "engine/execution.hpp"

#include <catch2/catch_test_macros.hpp>
#include <optional>

#include "engine/known_operation.hpp"
#include "run_fixture.hpp"

namespace nexar::engine {
namespace {

struct Owner final : Execution::Owner {
    void run() override { ++runs; }
    void segments_done(const Staging::Member& member, uint32_t done) override {
        progress.emplace_back(member.rank, done);
    }
    size_t runs = 0;
    std::vector<std::pair<uint32_t, uint32_t>> progress;
};

// Two ranks on one node add up four numbers.
struct Scene {
    NoPorts ports;
    GroupFacts facts = facts_of({0, 0});
    Owner owner;
    std::vector<int32_t> in[2]{{1, 2, 3, 4}, {10, 20, 30, 40}}, out[2]{{0, 0, 0, 0}, {0, 0, 0, 0}};
    const OpDescriptor sum{OpKind::all_reduce, Dtype::i32, ReduceOp::sum, 4, 0};
    Gathering gathering{facts, 0};
    Execution execution{ports.context, facts, 0, owner};

    std::shared_ptr<KnownOperation> known;  // of rank 0

    void post(uint32_t rank, Stage stage = {}, std::optional<Priority> priority = {}) {
        OpRequest request = call_of(sum, rank + 1);
        request.priority = priority;
        if (rank == 0) request.known = known;
        request.in = memory_of(in[rank]);
        request.out = memory_of(out[rank]);
        request.stage = stage;
        REQUIRE(!gathering.post(rank, request, Time{}));
        execution.add(request, rank);
    }
    void start() {
        execution.start(sum, gathering.counts(), gathering.posts(), {}, {});
        ports.context.run_ready();
    }
};

}  // namespace

TEST_CASE("the plan of a persistent operation is made once, and found again by its next start", "[S23]") {
    const auto known = std::make_shared<KnownOperation>();
    for (const uint32_t segments : {1u, 2u}) {
        CAPTURE(segments);
        Scene s;
        s.known = known;
        s.post(0);
        s.post(1);
        s.start();
        REQUIRE(s.execution.idle());
        CHECK(s.execution.take_result());
        CHECK(s.out[0] == std::vector<int32_t>{11, 22, 33, 44});
        CHECK(s.out[1] == s.out[0]);
        CHECK(s.execution.segments() == segments);
        REQUIRE(known->plan);
        CHECK(!known->staged_plan);
        known->plan->segments = 2;  // it would not be planned so: the next start has it from here
    }
}

TEST_CASE("an execution leaves the result with every rank, then it is idle and its owner runs") {
    Scene s;
    s.post(0);
    s.post(1);
    CHECK(!s.execution.started());
    s.start();

    REQUIRE(s.execution.idle());
    CHECK(s.execution.take_result());
    CHECK(s.owner.runs > 0);
    CHECK(s.out[0] == std::vector<int32_t>{11, 22, 33, 44});
    CHECK(s.out[1] == s.out[0]);
    CHECK(s.execution.segments_ended() == s.execution.segments());
    CHECK(s.ports.unexpected == 0);
}

TEST_CASE(
    "a staged rank's segment begins when its window is filled, and a rank that leaves earlier gave nothing") {
    Scene s;
    Stage stage;
    stage.windows = 1;
    stage.in = true;
    stage.in_stride = 16;
    s.post(0, stage);
    s.post(1);
    s.start();
    REQUIRE(!s.execution.idle());
    CHECK(s.execution.waits_for_bytes_of(0));
    CHECK(!s.execution.has_filled(0));
    CHECK(s.execution.has_filled(1));
    CHECK(s.out[1] == std::vector<int32_t>{0, 0, 0, 0});

    SECTION("it fills it") {
        CHECK(!s.execution.on_progress(SessionId(77), 1, 1, 0));
        CHECK(s.execution.on_progress(SessionId(1), 1, 1, 0));
        s.ports.context.run_ready();
        REQUIRE(s.execution.idle());
        CHECK(s.execution.has_filled(0));
        CHECK(s.out[1] == std::vector<int32_t>{11, 22, 33, 44});
        CHECK(s.owner.progress == std::vector<std::pair<uint32_t, uint32_t>>{{0, 1}});
        CHECK(s.execution.leave(0));
    }
    SECTION("it leaves") {
        CHECK(!s.execution.leave(0));
    }
    SECTION("it is stopped") {
        s.execution.stop({Errc::aborted, "another rank gave up", 1, -1, {}});
        s.ports.context.run_ready();
        REQUIRE(s.execution.idle());
        const Result<void> result = s.execution.take_result();
        REQUIRE(!result);
        CHECK(result.error().code == Errc::aborted);
        CHECK(s.out[1] == std::vector<int32_t>{0, 0, 0, 0});
        CHECK(s.execution.leave(0));  // it ends without that rank anyway
    }
}

TEST_CASE("a node works on a collective with the most urgent priority of its own ranks", "[K21]") {
    using P = std::optional<Priority>;
    const auto of = [](P first, P second) {
        Scene s;
        s.post(0, {}, first);
        s.post(1, {}, second);
        s.start();
        return s.execution.priority();
    };
    CHECK(of({}, {}) == Priority::realtime);  // a small one's own
    CHECK(of(Priority::bulk, Priority::bulk) == Priority::bulk);
    CHECK(of(Priority::bulk, {}) == Priority::realtime);
    CHECK(of(Priority::bulk, Priority::critical) == Priority::critical);
    CHECK(of(Priority::critical, {}) == Priority::critical);
}

TEST_CASE("an operation's own priority: barrier critical, small collectives realtime, others bulk",
          "[K21][B2]") {
    const auto of = [](OpKind kind, uint64_t count) {
        NoPorts ports;
        GroupFacts facts = facts_of({0});
        Owner owner;
        Gathering gathering(facts, 0);
        Execution execution(ports.context, facts, 0, owner);
        std::vector<int32_t> in(count), out(count);
        const OpDescriptor what{kind, Dtype::i32, ReduceOp::sum, count, 0};
        OpRequest request = call_of(what, 1);
        request.in = memory_of(in);
        request.out = memory_of(out);
        REQUIRE(!gathering.post(0, request, Time{}));
        execution.add(request, 0);
        REQUIRE(execution.start(what, {}, gathering.posts(), {}, {}));
        const Priority priority = execution.priority();
        ports.context.run_ready();
        REQUIRE(execution.idle());
        return priority;
    };
    CHECK(of(OpKind::barrier, 0) == Priority::critical);
    CHECK(of(OpKind::broadcast, 2) == Priority::realtime);
    CHECK(of(OpKind::broadcast, 64 * 1024) == Priority::realtime);
    CHECK(of(OpKind::broadcast, 64 * 1024 + 1) == Priority::bulk);
}

}  // namespace nexar::engine
