// Scratch memory of the daemon: a user has a share of it, and what waits for it gets on in the end.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>

#include "program.hpp"
#include "seeds.hpp"

namespace nexar::sim {
namespace {

constexpr uint64_t segment_bytes = 4096, total_bytes = 64 * 1024;

ClusterShape little_scratch(uint32_t nodes) {
    ClusterShape shape;
    shape.nodes = nodes;
    shape.plan = {1, 256, 64, 128, segment_bytes, 2};
    shape.tenants.total(Resource::scratch_bytes) = total_bytes;
    return shape;
}

uint64_t scratch_of(const Cluster& cluster, uint32_t host) {
    return cluster.hosts[host]->tenants.totals().used[static_cast<size_t>(Resource::scratch_bytes)].load();
}

}  // namespace

TEST_CASE("reduces to a root that does not call take a share of the daemon's scratch, and end when it calls",
          "[N8][N9][N10][H9]") {
    Cluster cluster(1, little_scratch(2));
    Program program(cluster, cluster.make_group({0, 0, 1}));  // the two ranks' sum is kept in scratch
    constexpr size_t reduces = 16;
    for (size_t i = 0; i < reduces; ++i)
        program.add({OpKind::reduce, Dtype::u8, ReduceOp::sum, 32 * 1024, 2});
    for (size_t i = 0; i < reduces; ++i)
        for (uint32_t rank = 0; rank < 2; ++rank) program.post(i, rank);
    cluster.run_for(1s);
    const uint64_t share = cluster.shape.tenants.share(Resource::scratch_bytes);
    CHECK(scratch_of(cluster, 0) > 0);
    CHECK(scratch_of(cluster, 0) <= share / 2 + segment_bytes);

    for (size_t i = 0; i < reduces; ++i) program.post(i, 2);
    REQUIRE(cluster.run());
    CHECK(program.wrong() == "");
    CHECK(scratch_of(cluster, 0) == 0);
    cluster.check();
}

TEST_CASE("a leaf with one rank reduces from that rank's memory", "[H9]") {
    Cluster cluster(1, little_scratch(3));
    Program program(cluster, cluster.make_group({0, 1, 2}));
    for (uint32_t root = 0; root < 3; ++root)
        for (const uint64_t count : {100u, 32u * 1024})
            program.add({OpKind::reduce, Dtype::u8, ReduceOp::sum, count, root});
    program.start(Duration{0});
    REQUIRE(cluster.run());
    CHECK(program.wrong() == "");

    Program late(cluster, cluster.make_group({0, 1}));
    late.add({OpKind::reduce, Dtype::u8, ReduceOp::sum, 32 * 1024, 1});
    late.post(0, 0);
    cluster.run_for(1s);
    CHECK(scratch_of(cluster, 0) == 0);
    late.post(0, 1);
    REQUIRE(cluster.run());
    CHECK(late.wrong() == "");
    cluster.check();
}

TEST_CASE("however many groups a user has, it takes its share of the scratch and one segment",
          "[N9][N10][H9]") {
    Cluster cluster(1, little_scratch(2));
    std::vector<std::unique_ptr<Program>> programs;
    for (int i = 0; i < 50; ++i) {
        programs.push_back(std::make_unique<Program>(cluster, cluster.make_group({0, 0, 1})));
        programs.back()->add({OpKind::reduce, Dtype::u8, ReduceOp::sum, 32 * 1024, 2});
        for (uint32_t rank = 0; rank < 2; ++rank) programs.back()->post(0, rank);
    }
    cluster.run_for(1s);
    const uint64_t share = cluster.shape.tenants.share(Resource::scratch_bytes);
    for (const TenantRef& user : cluster.hosts[0]->tenants.all()) {
        CHECK(user->used(Resource::scratch_bytes) >= share);
        CHECK(user->used(Resource::scratch_bytes) <= share + segment_bytes);
    }

    for (const auto& program : programs) program->post(0, 2);
    REQUIRE(cluster.run());
    size_t refused = 0;
    for (const auto& program : programs) {
        if (program->wrong() == "") continue;
        ++refused;
        for (const Call* call : program->steps[0].calls) {
            CHECK(call->outcome.error.code == Errc::no_memory);
            CHECK(call->outcome.error.text.contains("scratch_bytes_max"));
            CHECK(call->outcome.error.host == "host0");
        }
    }
    CHECK(refused > 0);
    CHECK(refused < programs.size());
    CHECK(scratch_of(cluster, 0) == 0);
    cluster.check();
}

TEST_CASE("an operation whose lanes need more than the share runs one segment at a time", "[N9][H9]") {
    ClusterShape shape = little_scratch(2);
    shape.tenants.total(Resource::scratch_bytes) = segment_bytes;
    Cluster cluster(1, shape);
    Program program(cluster, cluster.make_group({0, 0, 1}));
    program.add({OpKind::reduce, Dtype::u8, ReduceOp::sum, 64 * 1024, 2});
    program.start(Duration{0});
    REQUIRE(cluster.run());
    CHECK(program.wrong() == "");
    cluster.check();
}

namespace {

// Collectives of four groups on three hosts, in random orders. Returns how many ended for want of scratch.
size_t run_many(uint64_t seed, uint64_t scratch_bytes) {
    ClusterShape shape = little_scratch(3);
    shape.tenants.total(Resource::scratch_bytes) = scratch_bytes;
    Cluster cluster(seed, shape);
    Random& random = cluster.clock.random;
    std::vector<std::unique_ptr<Program>> programs;
    for (int i = 0; i < 4; ++i) {
        std::vector<uint32_t> placement;
        for (int rank = 0; rank < 5; ++rank) placement.push_back(static_cast<uint32_t>(random.below(3)));
        programs.push_back(std::make_unique<Program>(cluster, cluster.make_group(placement)));
        for (int op = 0; op < 8; ++op) {
            const OpKind kinds[] = {OpKind::reduce, OpKind::reduce_scatter, OpKind::all_to_all};
            const uint64_t count = 1 + random.below(random.one_in(2) ? 4000 : 20'000);
            programs.back()->add({kinds[random.below(3)], Dtype::u8, ReduceOp::sum, count, 0});
        }
        programs.back()->start(Duration{200'000}, 4);
    }
    const bool finished = cluster.run();
    INFO(cluster.unfinished());
    REQUIRE(finished);
    size_t refused = 0;
    for (const auto& program : programs)
        for (const Step& step : program->steps) {
            const bool failed = std::ranges::any_of(
                step.calls, [](const Call* c) { return c->outcome.error.code == Errc::no_memory; });
            refused += failed ? 1 : 0;
            if (!failed) CHECK(program->wrong(step) == "");
        }
    for (uint32_t host = 0; host < 3; ++host) CHECK(scratch_of(cluster, host) == 0);
    cluster.check();
    return refused;
}

}  // namespace

TEST_CASE("collectives of many groups end, whatever order their ranks call in", "[N9][H9]") {
    size_t refused = 0;
    for (const uint64_t seed : seeds(40)) {
        CAPTURE(seed);
        refused += run_many(seed, 4096);
        const uint64_t share_percent = 30, segment_scratch_max = 4 * segment_bytes;
        CHECK(run_many(seed, 4 * segment_scratch_max * 2 * 100 / share_percent) == 0);
    }
    CHECK(met(refused));
}

}  // namespace nexar::sim
