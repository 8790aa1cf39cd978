// Ways through the engine that the general tests take rarely or never: words that come late or not at all.
#include <catch2/catch_test_macros.hpp>

#include "program.hpp"
#include "seeds.hpp"

namespace nexar::sim {
namespace {

constexpr OpDescriptor small_sum{OpKind::all_reduce, Dtype::i32, ReduceOp::sum, 500, 0};

}  // namespace

TEST_CASE("a process that crashes while its node's channel is down: the other node learns it all the same") {
    for (const uint64_t seed : seeds(60)) {
        CAPTURE(seed);
        ClusterShape shape;
        Cluster cluster(seed, shape);
        Program program(cluster, cluster.make_group({0, 1}));
        program.add(small_sum);
        Call& call = program.post(0, 0);
        cluster.run_for(cluster.clock.some(100us));
        const Duration down = cluster.clock.some(20ms);
        cluster.clock.after(cluster.clock.some(100us), [&, down] { cluster.break_channel(0, 1, down); });
        cluster.clock.after(cluster.clock.some(200us), [&] { cluster.end_session(program.group, 1); });

        cluster.run_for(10s);

        INFO(cluster.state());
        REQUIRE(call.ended);
        REQUIRE(call.outcome.error.code == Errc::peer_lost);
        REQUIRE(call.outcome.error.rank == 1);
    }
}

}  // namespace nexar::sim
