// Tests of the tests: each switch breaks one thing in the production code, and the simulator must notice. A
// switch that goes unnoticed here means that a real bug of that kind would, too.
#include <catch2/catch_test_macros.hpp>

#include "program.hpp"
#include "seeds.hpp"

namespace nexar::sim {
namespace {

// Whether a run with breaking channels, bulk and small data, goes wrong in any way that a test would see.
bool noticed(const link::MeshConfig::Sabotage& link_sabotage,
             const engine::EngineConfig::Sabotage& engine_sabotage) {
    for (const uint64_t seed : seeds(30)) {
        ClusterShape shape;
        shape.nodes = 3;
        shape.plan = {1, 256, 64, 128, 4096, 2};
        shape.mesh.sabotage = link_sabotage;
        shape.engine.sabotage = engine_sabotage;
        Cluster cluster(seed, shape);
        Program program(cluster, cluster.make_group({0, 1, 2, 1}));
        for (uint64_t i = 0; i < 10; ++i)
            program.add(
                {i % 2 ? OpKind::all_reduce : OpKind::reduce_scatter, Dtype::i32, ReduceOp::sum, 1500, 0});
        program.start(5us, 4);
        for (int i = 0; i < 4; ++i)
            cluster.clock.after(cluster.clock.some(600us),
                                [&cluster] { cluster.break_channel(0, 1, cluster.clock.some(100us)); });
        if (!cluster.run(20s) || !program.wrong().empty() || !cluster.errors.empty()) return true;
    }
    return false;
}

}  // namespace

TEST_CASE("without sabotage the sabotage runs are right") {
    REQUIRE_FALSE(noticed({}, {}));
}

TEST_CASE("applying a chunk twice is noticed") {
    link::MeshConfig::Sabotage s;
    s.apply_chunk_twice = true;
    REQUIRE(noticed(s, {}));
}

TEST_CASE("dropping the de-duplication is noticed") {
    link::MeshConfig::Sabotage s;
    s.no_deduplication = true;
    REQUIRE(noticed(s, {}));
}

TEST_CASE("skipping a grant is noticed") {
    link::MeshConfig::Sabotage s;
    s.skip_grant = true;
    REQUIRE(noticed(s, {}));
}

TEST_CASE("losing a wake-up of the engine is noticed") {
    engine::EngineConfig::Sabotage s;
    s.lose_a_wakeup = true;
    REQUIRE(noticed({}, s));
}

TEST_CASE("losing a credit of messages is noticed", "[L9]") {
    const auto all_arrive = [](bool sabotaged) {
        ClusterShape shape;
        shape.engine.unexpected_per_group_max = 8;
        shape.engine.sabotage.lose_a_credit = sabotaged;
        Cluster cluster(1, shape);
        const SimGroup group = cluster.make_group({0, 1});
        const auto post = [&](OpKind kind, uint32_t rank) -> Call& {
            engine::OpRequest r = request_of({kind, Dtype::i32, ReduceOp::sum, 1, 0});
            r.peer = 1 - rank;
            return cluster.submit(group, rank, r, std::vector<std::byte>(4), 4);
        };
        for (int i = 0; i < 20; ++i) post(OpKind::send, 0), post(OpKind::recv, 1);
        return cluster.run(10s);
    };
    REQUIRE(all_arrive(false));
    REQUIRE_FALSE(all_arrive(true));
}

// Two layers check: the link compares the hash in every header with ours, before it touches memory; the
// engine compares announcements of ops that last, to name both sides. Each is missed alone: a short op ends
// before it is announced, and without the engine's words (its hashes are all alike then) the link has nothing
// to compare.
TEST_CASE(
    "skipping a descriptor check, in the link or in the engine, is noticed: a wrong result as success") {
    for (const bool in_engine : {true, false}) {
        CAPTURE(in_engine);
        ClusterShape shape;
        shape.plan = {1, 256, 64, 128, 4096, 2};  // a ring: one rank's partial result becomes the other's
        shape.mesh.sabotage.skip_descriptor_check = !in_engine;
        shape.engine.sabotage.skip_descriptor_check = in_engine;
        const auto wrong_success = [](const ClusterShape& s) {
            Cluster cluster(1, s);
            Program program(cluster, cluster.make_group({0, 1}));
            program.add({OpKind::all_reduce, Dtype::i32, ReduceOp::sum, 1500, 0});
            Program other(cluster, program.group_copy());
            other.add({OpKind::all_reduce, Dtype::i32, ReduceOp::max, 1500, 0});
            program.post(0, 0);
            other.post(0, 1);
            cluster.run(20s);
            const Call& call = *program.steps[0].calls[0];
            REQUIRE(call.ended);
            return call.ok() && !program.wrong_result(program.steps[0], 0).empty();
        };
        REQUIRE(wrong_success(shape));
        ClusterShape whole;
        whole.plan = shape.plan;
        REQUIRE_FALSE(wrong_success(whole));
    }
}

}  // namespace nexar::sim
