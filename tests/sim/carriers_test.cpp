// Bulk connections over TCP and over QUIC, and moves between them in the middle of operations: production
// connections over two simulated carriers.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>

#include "job.hpp"
#include "nodes.hpp"
#include "seeds.hpp"

namespace nexar::sim {
namespace {

using connections::CarrierKind;

ClusterShape shape_of(Random& random) {
    ClusterShape shape;
    shape.nodes = 0;
    shape.connected = false;
    shape.tcp_bulk = true;
    shape.plan = {1, 1024, 256, 512, 8192, 2};
    shape.network.jitter = Duration(static_cast<int64_t>(random.below(300'000)));
    return shape;
}

struct World {
    explicit World(uint64_t seed) : random(seed), cluster(seed, shape_of(random)), nodes(cluster) {
        for (uint32_t i = 0; i < 3; ++i) {
            std::vector<std::string> seeds;
            if (i > 0) seeds.emplace_back("10.0.0.1:1");
            hosts.push_back(nodes.start(i, 1, "10.0.0." + std::to_string(i + 1) + ":1", std::move(seeds)));
        }
        cluster.run_for(3s);
        REQUIRE(nodes.meshed(hosts));
    }
    // Applications on all hosts; `fault` is called at random moments while they work. Empty: all right.
    template <class Fault>
    std::string run_job(Fault fault) {
        std::vector<std::unique_ptr<App>> apps;
        std::vector<App*> members;
        for (const uint32_t host : hosts) {
            apps.push_back(std::make_unique<App>(cluster, host));
            members.push_back(apps.back().get());
        }
        Job job(cluster, "job", members);
        for (int round = 0; round < 6; ++round)
            for (const OpKind kind :
                 {OpKind::all_reduce, OpKind::all_gather, OpKind::broadcast, OpKind::reduce_scatter})
                job.add({kind, Dtype::i32, ReduceOp::sum, 30'000, 0});
        job.start(50us, 2);
        for (int i = 0; i < 60; ++i) {
            cluster.run_for(cluster.clock.some(3ms));
            fault();
        }
        for (const uint32_t host : hosts) nodes.refuse_tcp(host, false);
        cluster.run(60s);
        std::string wrong = job.wrong();
        for (auto& app : apps) app->kill();
        cluster.run_for(10ms);
        return wrong;
    }
    std::pair<uint32_t, uint32_t> two() {
        const auto a = static_cast<uint32_t>(random.below(hosts.size()));
        const auto b = static_cast<uint32_t>((a + 1 + random.below(hosts.size() - 1)) % hosts.size());
        return {hosts[a], hosts[b]};
    }
    size_t moves(CarrierKind to) const {
        size_t out = 0;
        for (const uint32_t host : hosts) out += nodes.carrier_moves(host, to);
        return out;
    }
    bool all_over(CarrierKind kind) const {
        return std::ranges::all_of(hosts, [&](uint32_t a) {
            return std::ranges::all_of(hosts,
                                       [&](uint32_t b) { return a == b || nodes.carrier(a, b) == kind; });
        });
    }

    Random random;
    Cluster cluster;
    Nodes nodes;
    std::vector<uint32_t> hosts;
};

}  // namespace

TEST_CASE("TCP carries where both ends have it", "[B6][B8]") {
    for (const uint64_t seed : seeds(5)) {
        CAPTURE(seed);
        World world(seed);
        CHECK(world.all_over(CarrierKind::tcp));
        CHECK(world.run_job([] {}) == "");
        CHECK(world.moves(CarrierKind::quic) == 0);
    }
}

TEST_CASE("QUIC carries while TCP is refused, with the reason, and TCP again when it answers", "[B8]") {
    for (const uint64_t seed : seeds(5)) {
        CAPTURE(seed);
        World world(seed);
        for (const uint32_t host : world.hosts) world.nodes.refuse_tcp(host, true);
        for (const uint32_t a : world.hosts)
            for (const uint32_t b : world.hosts)
                if (a != b) world.nodes.reset_tcp(a, b);
        world.cluster.run_for(2s);
        REQUIRE(world.nodes.meshed(world.hosts));
        CHECK(world.all_over(CarrierKind::quic));
        size_t refused = 0;
        for (const uint32_t a : world.hosts)
            for (const uint32_t b : world.hosts)
                if (a != b) refused += world.nodes.carrier_why(a, b).starts_with("tcp refused at ") ? 1u : 0u;
        CHECK(refused == 3);  // the one that dials knows
        for (const uint32_t host : world.hosts) world.nodes.refuse_tcp(host, false);
        world.cluster.run_for(15s);
        CHECK(world.all_over(CarrierKind::tcp));
        CHECK(world.nodes.meshed(world.hosts));
    }
}

TEST_CASE("results are right while connections move between TCP and QUIC at any moment", "[B8]") {
    size_t to_tcp = 0, to_quic = 0, worlds = 0;
    for (const uint64_t seed : seeds(40)) {
        CAPTURE(seed);
        ++worlds;
        World world(seed);
        const std::string wrong = world.run_job([&] {
            const auto [a, b] = world.two();
            switch (world.random.below(5)) {
                case 0:
                    return world.nodes.refuse_tcp(a, true);
                case 1:
                    return world.nodes.refuse_tcp(a, false);
                case 2:
                    return world.nodes.reset_bulk(a, b);
                default:
                    return world.nodes.reset_tcp(a, b);
            }
        });
        CHECK(wrong == "");
        to_tcp += world.moves(CarrierKind::tcp);
        to_quic += world.moves(CarrierKind::quic);
        world.cluster.run_for(15s);
        CHECK(world.nodes.meshed(world.hosts));
        CHECK(world.all_over(CarrierKind::tcp));
    }
    CHECK(to_tcp > worlds);
    CHECK(to_quic > worlds);
}

}  // namespace nexar::sim
