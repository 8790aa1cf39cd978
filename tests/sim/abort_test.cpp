// A rank that aborts its group: all others get PEER_LOST with its reason, whatever they have called by then.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>

#include "program.hpp"
#include "seeds.hpp"

namespace nexar::sim {
namespace {

constexpr const char* reason = "ValueError: row 7 is empty";

ClusterShape three_nodes() {
    ClusterShape shape;
    shape.nodes = 3;
    shape.plan = {1, 1024, 256, 512, 8192, 2};
    shape.collective_timeout = Duration{0};  // nothing ends by itself
    return shape;
}

void expect_end(Cluster& cluster) {
    const bool finished = cluster.run();
    INFO(cluster.unfinished());
    REQUIRE(finished);
    cluster.check();
}

void expect_closed(const Call& call) {
    CAPTURE(call.outcome.error.text);
    REQUIRE(call.ended);
    REQUIRE(call.outcome.error.code == Errc::closed);
}
void expect_lost(const Call& call, uint32_t rank) {
    CAPTURE(call.outcome.error.text);
    REQUIRE(call.ended);
    REQUIRE(call.outcome.error.code == Errc::peer_lost);
    REQUIRE(call.outcome.error.rank == rank);
    REQUIRE(call.outcome.error.text.contains(std::string("it aborted the group: ") + reason));
}

engine::OpRequest message(OpKind kind, uint32_t peer) {
    engine::OpRequest r = request_of({kind, Dtype::i32, ReduceOp::sum, 100, 0});
    r.peer = peer;
    return r;
}

const std::vector<std::vector<uint32_t>> placements = {{0, 1, 2}, {0, 0, 0}, {0, 0, 1}, {0, 1, 0}};

}  // namespace

TEST_CASE("a rank that aborts ends its group for all, also for ranks that have called less or more",
          "[F22][U18]") {
    for (const std::vector<uint32_t>& placement : placements) {
        CAPTURE(placement);
        Cluster cluster(4, three_nodes());
        Program program(cluster, cluster.make_group(placement));
        for (int i = 0; i < 4; ++i) program.add({OpKind::all_reduce, Dtype::i32, ReduceOp::sum, 500, 0});
        program.post(0, 1);
        for (const size_t step : {0u, 1u, 2u}) program.post(step, 0);  // rank 2 has called nothing
        Call& own_recv = cluster.submit(program.group, 1, message(OpKind::recv, 2), {}, 400);
        Call& own_send = cluster.submit(program.group, 1, message(OpKind::send, 2),
                                        Reference::input(1, 0, 100, Dtype::i32), 0);
        Call& any = cluster.submit(program.group, 2, message(OpKind::recv, engine::any_rank), {}, 400);
        cluster.run_for(5ms);
        if (!any.ended) cluster.run_for(5ms);

        REQUIRE(cluster.abort_group(program.group, 1, reason));
        REQUIRE(cluster.abort_group(program.group, 1, reason).error().code == Errc::closed);
        REQUIRE(cluster.free_group(program.group, 1).error().code == Errc::closed);
        cluster.run_for(50ms);
        expect_closed(*program.steps[0].calls[1]);
        expect_closed(own_recv);
        REQUIRE((own_send.ok() || own_send.outcome.error.code == Errc::closed));
        for (const size_t step : {0u, 1u, 2u}) expect_lost(*program.steps[step].calls[0], 1);
        program.post(3, 0);
        for (const size_t step : {0u, 1u}) program.post(step, 2);
        expect_end(cluster);
        expect_lost(*program.steps[3].calls[0], 1);
        for (const size_t step : {0u, 1u}) expect_lost(*program.steps[step].calls[2], 1);
    }
}

TEST_CASE("aborting with collectives in flight, at any moment: one end per call, no wrong result", "[F22]") {
    size_t closed = 0, lost = 0, succeeded = 0;
    for (const uint64_t seed : seeds(120)) {
        CAPTURE(seed);
        Cluster cluster(seed, three_nodes());
        Random random(seed * 7 + 1);
        Program program(cluster, cluster.make_group(placements[seed % placements.size()]));
        if (seed % 3 == 0) program.stage(2);
        const OpKind kind = collective_kinds[random.below(collective_kinds.size())];
        const uint64_t count = count_for(kind, 20'000);
        for (int i = 0; i < 3; ++i) program.add({kind, Dtype::i32, ReduceOp::sum, count, 0});
        for (size_t step = 0; step < 3; ++step)
            for (uint32_t rank = 0; rank < 3; ++rank) program.post(step, rank);
        cluster.run_for(cluster.clock.some(600us));
        REQUIRE(cluster.abort_group(program.group, 1, reason));
        expect_end(cluster);
        for (const Step& step : program.steps)
            for (uint32_t rank = 0; rank < 3; ++rank) {
                const Call& call = *step.calls[rank];
                CAPTURE(rank, call.outcome.error.text);
                if (call.ok()) {
                    REQUIRE(program.wrong_result(step, rank) == "");
                    ++succeeded;
                } else if (rank == 1) {
                    expect_closed(call);
                    ++closed;
                } else {
                    expect_lost(call, 1);
                    ++lost;
                }
            }
    }
    REQUIRE(met(closed));
    REQUIRE(met(lost));
    REQUIRE(met(succeeded));
}

TEST_CASE("two ranks abort at one moment: all others get the same reason", "[F22]") {
    for (const uint64_t seed : seeds(30)) {
        CAPTURE(seed);
        Cluster cluster(seed, three_nodes());
        Program program(cluster, cluster.make_group({0, 1, 2, 2}));
        program.add({OpKind::barrier, Dtype::i32, ReduceOp::sum, 0, 0});
        for (const uint32_t rank : {2u, 3u}) program.post(0, rank);
        REQUIRE(cluster.abort_group(program.group, 0, reason));
        REQUIRE(cluster.abort_group(program.group, 1, reason));
        expect_end(cluster);
        const auto error_of = [&](uint32_t rank) { return program.steps[0].calls[rank]->outcome.error; };
        CHECK(error_of(2).code == Errc::peer_lost);
        CHECK(error_of(2).text == error_of(3).text);
        CHECK(error_of(2).rank == error_of(3).rank);
    }
}

}  // namespace nexar::sim
