// Nodes that know one address find each other by the production connections, and run jobs on what they found.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>

#include "job.hpp"
#include "nodes.hpp"
#include "seeds.hpp"

namespace nexar::sim {
namespace {

ClusterShape unconnected(Random& random) {
    ClusterShape shape;
    shape.nodes = 0;
    shape.connected = false;
    shape.plan = {1, 1024, 256, 512, 8192, 2};
    shape.network.jitter = Duration(static_cast<int64_t>(random.below(300'000)));
    return shape;
}

std::string address(uint32_t identity) {
    return "10.0.0." + std::to_string(identity + 1) + ":1";
}

// Nodes that are not connected yet: where every test here begins.
struct World {
    explicit World(uint64_t seed) : World(seed, seed) {}
    World(uint64_t seed, uint64_t random_seed)
        : random(random_seed), cluster(seed, unconnected(random)), nodes(cluster) {}
    World(uint64_t seed, const ClusterShape& shape) : random(seed), cluster(seed, shape), nodes(cluster) {}

    // Starts so many nodes, all of which know only the first one's address, at random moments.
    std::vector<uint32_t> start(uint32_t count) {
        std::vector<uint32_t> hosts;
        for (uint32_t i = 0; i < count; ++i) {
            std::vector<std::string> seeds;
            if (i > 0) seeds.push_back(address(0));
            hosts.push_back(nodes.start(i, 1, address(i), std::move(seeds)));
            if (cluster.clock.random.one_in(2)) cluster.run_for(cluster.clock.some(2ms));
        }
        return hosts;
    }
    // The same; `settle` later all are connected.
    std::vector<uint32_t> start(uint32_t count, Duration settle) {
        auto hosts = start(count);
        cluster.run_for(settle);
        require_meshed(hosts);
        return hosts;
    }
    void require_meshed(const std::vector<uint32_t>& hosts) {
        for (const uint32_t host : hosts)
            for (const std::string& note : nodes.notes(host)) UNSCOPED_INFO(host << ": " << note);
        REQUIRE(nodes.meshed(hosts));
    }

    Random random;
    Cluster cluster;
    Nodes nodes;
};

// Applications on these hosts run a job; empty: all right.
std::string run_job(Cluster& cluster, const std::vector<uint32_t>& hosts, const std::string& name) {
    std::vector<std::unique_ptr<App>> apps;
    std::vector<App*> members;
    for (const uint32_t host : hosts) {
        apps.push_back(std::make_unique<App>(cluster, host));
        members.push_back(apps.back().get());
    }
    Job job(cluster, name, members);
    for (const OpKind kind :
         {OpKind::all_reduce, OpKind::all_gather, OpKind::broadcast, OpKind::reduce_scatter})
        job.add({kind, Dtype::i32, ReduceOp::sum, 3000, 0});
    job.start(50us, 2);
    cluster.run(60s);
    const std::string wrong = job.wrong();
    for (auto& app : apps) app->kill();
    cluster.run_for(10ms);  // events that are on their way to the apps
    return wrong;
}

}  // namespace

TEST_CASE("nodes that know one address find all others by gossip, and a collective runs on what they found") {
    for (const uint64_t seed : seeds(25)) {
        CAPTURE(seed);
        World world(seed);
        auto& [random, cluster, nodes] = world;
        const auto hosts = world.start(static_cast<uint32_t>(2 + random.below(5)), 3s);
        REQUIRE(run_job(cluster, hosts, "job") == "");
        cluster.check();
        // It stays so: nobody dials any more.
        const size_t made = nodes.connections_made();
        cluster.run_for(20s);
        if (wire_mode() != WireMode::switching) REQUIRE(nodes.connections_made() == made);
        world.require_meshed(hosts);
    }
}

TEST_CASE("two nodes that dial each other at the same moment end with one connection, the same at both") {
    size_t doubled = 0, tried = 0;
    for (const uint64_t seed : seeds(100)) {
        CAPTURE(seed);
        ++tried;
        World world(seed);
        auto& [random, cluster, nodes] = world;
        const std::vector<uint32_t> hosts{nodes.start(0, 1, address(0), {address(1)}),
                                          nodes.start(1, 1, address(1), {address(0)})};
        cluster.run_for(2s);
        doubled += nodes.connections_made() > 1 ? 1 : 0;
        world.require_meshed(hosts);
        REQUIRE(run_job(cluster, hosts, "job") == "");
        cluster.check();
    }
    REQUIRE((4 * doubled > tried || !all_seeds()));  // or this test would be about nothing
}

TEST_CASE("a connection that breaks under a job is dialled again, and the job ends rightly") {
    for (const uint64_t seed : seeds(25)) {
        CAPTURE(seed);
        World world(seed);
        auto& [random, cluster, nodes] = world;
        const auto hosts = world.start(3, 5s);
        for (int i = 0; i < 3; ++i)
            cluster.clock.after(cluster.clock.some(3ms), [&] { nodes.reset(hosts[0], hosts[1]); });
        REQUIRE(run_job(cluster, hosts, "job") == "");
        cluster.check();
    }
}

TEST_CASE("a bulk connection that is cut alone ends the groups that need it, also without a deadline",
          "[D21][P13][F21]") {
    for (const uint64_t seed : seeds(10)) {
        CAPTURE(seed);
        ClusterShape shape;
        shape.nodes = 0;
        shape.connected = false;
        shape.engine.timeouts.collective = Duration{0};
        World world(seed, shape);
        auto& [random, cluster, nodes] = world;
        const auto hosts = world.start(3, 5s);
        App a(cluster, hosts[0]), b(cluster, hosts[1]), c(cluster, hosts[2]);
        Job needs_it(cluster, "large", {&a, &b}), small(cluster, "small", {&a, &b}),
            elsewhere(cluster, "elsewhere", {&a, &c});
        needs_it.add({OpKind::all_reduce, Dtype::i32, ReduceOp::sum, 1'000'000, 0});
        for (int i = 0; i < 20; ++i) {
            small.add({OpKind::all_reduce, Dtype::i32, ReduceOp::sum, 10, 0});
            elsewhere.add({OpKind::all_reduce, Dtype::i32, ReduceOp::sum, 100'000, 0});
        }
        nodes.cut_bulk(hosts[1]);
        for (Job* job : {&needs_it, &small, &elsewhere}) job->start(Duration{50'000}, 1);
        cluster.run_for(30s);

        CHECK(small.wrong() == "");
        CHECK(elsewhere.wrong() == "");
        CHECK(needs_it.calls_ok() == 0);
        const auto errors = needs_it.errors();
        REQUIRE(errors.size() == 1);
        INFO(*errors.begin());
        for (const uint32_t host : {hosts[0], hosts[1]})
            CHECK(errors.begin()->find(cluster.hosts[host]->id.short_hex()) != std::string::npos);
        for (App* app : {&a, &b, &c}) app->kill();
        cluster.run_for(10ms);
        cluster.check();
    }
}

TEST_CASE("a killed daemon that starts again is a new incarnation: old groups end, new ones form") {
    for (const uint64_t seed : seeds(25)) {
        CAPTURE(seed);
        World world(seed);
        auto& [random, cluster, nodes] = world;
        auto hosts = world.start(3, 3s);
        App a(cluster, hosts[0]), b(cluster, hosts[1]), c(cluster, hosts[2]);
        std::vector<uint32_t> names(3);
        App* apps[] = {&a, &b, &c};
        for (uint32_t i = 0; i < 3; ++i)
            apps[i]->open("old", 3, i, [&names, i](const Done& d) { names[i] = d.result.group; });
        REQUIRE(cluster.run(5s));
        REQUIRE(std::ranges::find(names, 0u) == names.end());
        nexar_shm_descriptor words{};
        words.kind = NEXAR_OP_BARRIER;
        words.timeout_ns = -1;
        std::set<std::string> errors;
        size_t ended = 0;
        for (uint32_t i = 0; i < 2; ++i) {
            words.group = names[i];
            apps[i]->start(words, [&](const Done& d) {
                ++ended;
                REQUIRE(d.status == static_cast<int32_t>(Errc::peer_lost));
                errors.insert(d.text);
            });
        }
        cluster.run_for(cluster.clock.some(2ms));
        nodes.kill(hosts[2]);
        cluster.run_for(cluster.clock.some(random.one_in(2) ? 1ms : 2s));
        hosts[2] = nodes.start(2, 2, address(2), {address(0), address(1)});
        cluster.run_for(10s);

        for (const auto& node : {hosts[0], hosts[1]})
            for (const std::string& note : nodes.notes(node)) UNSCOPED_INFO(node << ": " << note);
        REQUIRE(ended == 2);
        REQUIRE(errors.size() == 1);
        world.require_meshed(hosts);
        REQUIRE(run_job(cluster, hosts, "new") == "");
    }
}

// While one node still holds the old incarnation for alive [P3], the others have the new one and form a group
// with it.
TEST_CASE("a group formed within moments of a quick restart keeps working") {
    for (const uint64_t seed : seeds(60)) {
        CAPTURE(seed);
        World world(seed, seed * 7 + 1);
        auto& [random, cluster, nodes] = world;
        auto hosts = world.start(3, 3s);
        const auto victim = static_cast<uint32_t>(random.below(3));
        const uint32_t other = (victim + 1) % 3, unaware = (victim + 2) % 3;
        for (uint64_t incarnation = 2; incarnation < 5; ++incarnation) {
            nodes.kill(hosts[victim], {hosts[unaware]});
            cluster.run_for(cluster.clock.some(20ms));
            hosts[victim] =
                nodes.start(victim, incarnation, address(victim), {address(other), address(unaware)});
            cluster.run_for(cluster.clock.some(random.one_in(3) ? 400ms : 5ms));
            const std::string wrong = run_job(cluster, hosts, "job " + std::to_string(incarnation));
            for (const uint32_t host : hosts)
                for (const std::string& note : nodes.notes(host)) UNSCOPED_INFO(host << ": " << note);
            REQUIRE(wrong == "");
            cluster.check();
        }
    }
}

TEST_CASE("a node that says goodbye and comes back in its next incarnation is taken in again") {
    for (const uint64_t seed : seeds(10)) {
        CAPTURE(seed);
        World world(seed);
        auto& [random, cluster, nodes] = world;
        auto hosts = world.start(3, 3s);
        nodes.leave(hosts[1]);
        cluster.run_for(100ms);
        hosts[1] = nodes.start(1, 2, address(1), {address(2)});
        cluster.run_for(10s);
        world.require_meshed(hosts);
        REQUIRE(run_job(cluster, hosts, "job") == "");
    }
}

TEST_CASE("a daemon on a copied state directory is refused while the original runs, and hurts nobody") {
    for (const uint64_t seed : seeds(25)) {
        CAPTURE(seed);
        World world(seed);
        auto& [random, cluster, nodes] = world;
        const auto hosts = world.start(3, 3s);
        // Same key, a higher or the same counter, another address.
        const uint32_t clone = nodes.start(1, 1 + random.below(2), "10.0.9.9:1", {address(0)});
        cluster.run_for(5s);

        REQUIRE(nodes.noted(hosts[0], "clone_refused"));
        for (const uint32_t host : {hosts[0], hosts[2]}) {  // to them the node is still the one that it was
            const auto* info = nodes.table(host).info_of(cluster.hosts[clone]->id);
            REQUIRE(info != nullptr);
            REQUIRE(info->incarnation == cluster.hosts[hosts[1]]->incarnation);
        }
        world.require_meshed(hosts);
        REQUIRE(run_job(cluster, hosts, "job") == "");
    }
}

TEST_CASE("an old copy of a state directory is refused also when the original is gone") {
    World world(1);
    auto& [random, cluster, nodes] = world;
    const uint32_t stays = nodes.start(0, 1, address(0), {});
    const uint32_t original = nodes.start(1, 5, address(1), {address(0)});
    cluster.run_for(2s);
    REQUIRE(nodes.meshed({stays, original}));
    nodes.kill(original);
    cluster.run_for(1s);
    const uint32_t copy = nodes.start(1, 4, address(1), {address(0)});
    cluster.run_for(5s);
    REQUIRE(nodes.noted(stays, "stale_incarnation_refused"));
    REQUIRE_FALSE(nodes.table(stays).connection_of(cluster.hosts[copy]->id));
}

TEST_CASE("after any order of starts, resets, kills and restarts all living nodes are connected again") {
    for (const uint64_t seed : seeds(60)) {
        CAPTURE(seed);
        World world(seed, seed * 31 + 5);
        auto& [random, cluster, nodes] = world;
        const auto count = static_cast<uint32_t>(3 + random.below(3));
        auto hosts = world.start(count);
        std::vector<uint64_t> incarnations(count, 1);
        for (int event = 0; event < 12; ++event) {
            cluster.run_for(cluster.clock.some(random.one_in(3) ? 1s : 3ms));
            const auto who = static_cast<uint32_t>(random.below(count));
            const auto other = static_cast<uint32_t>(random.below(count));
            if (random.one_in(2)) {
                if (who != other) nodes.reset(hosts[who], hosts[other]);
                continue;
            }
            if (random.one_in(4)) {
                nodes.leave(hosts[who]);
                cluster.run_for(6ms);
            } else {
                nodes.kill(hosts[who]);
                if (random.one_in(2)) cluster.run_for(cluster.clock.some(500ms));
            }
            // A restarted daemon dials whom it remembers (Member::save_roster).
            std::vector<std::string> seeds;
            for (uint32_t i = 0; i < count; ++i)
                if (i != who) seeds.push_back(address(i));
            hosts[who] = nodes.start(who, ++incarnations[who], address(who), std::move(seeds));
        }
        cluster.run_for(20s);

        world.require_meshed(hosts);
        REQUIRE(run_job(cluster, hosts, "job") == "");
        cluster.check();
    }
}

namespace {

const Nodes::Happened& last_about(const Cluster& cluster, const Nodes& nodes, uint32_t host, uint32_t about) {
    const auto& all = nodes.happened(host);
    const auto at = std::find_if(all.rbegin(), all.rend(),
                                 [&](const auto& h) { return h.node == cluster.hosts[about]->id; });
    REQUIRE(at != all.rend());
    return *at;
}

}  // namespace

TEST_CASE("a goodbye is proof, and a killed node is only suspected", "[P2]") {
    for (const uint64_t seed : seeds(10)) {
        CAPTURE(seed);
        World world(seed);
        auto& [random, cluster, nodes] = world;
        const auto hosts = world.start(4, 4s);
        const bool polite = random.one_in(2);
        if (polite)
            nodes.leave(hosts[3]);
        else
            nodes.kill(hosts[3]);
        cluster.run_for(50ms);
        for (uint32_t i = 0; i < 3; ++i) {
            const auto& last = last_about(cluster, nodes, hosts[i], hosts[3]);
            REQUIRE_FALSE(last.up);
            REQUIRE(last.proof == polite);
            if (polite) REQUIRE(last.why.find("maintenance") != std::string::npos);
        }
        cluster.check();
    }
}

TEST_CASE("a lost connection between nodes that both run comes back with the same index", "[P2]") {
    for (const uint64_t seed : seeds(10)) {
        CAPTURE(seed);
        World world(seed);
        auto& [random, cluster, nodes] = world;
        const auto hosts = world.start(2, 4s);
        const PeerIndex before = last_about(cluster, nodes, hosts[0], hosts[1]).peer;
        nodes.reset(hosts[0], hosts[1]);
        cluster.run_for(2s);
        world.require_meshed(hosts);
        const auto& last = last_about(cluster, nodes, hosts[0], hosts[1]);
        REQUIRE((last.up && last.peer == before));
        cluster.check();
    }
}

TEST_CASE("redials are fast at first, back off to their ceiling, and go on", "[P5]") {
    World world(4);
    auto& [random, cluster, nodes] = world;
    const auto hosts = world.start(2, 4s);
    nodes.kill(hosts[1]);
    const size_t before = nodes.dialled_at(hosts[0]).size();
    cluster.run_for(60s);
    const auto& times = nodes.dialled_at(hosts[0]);
    const size_t dials = times.size() - before;
    REQUIRE(dials >= 25);  // every 2 s at least
    REQUIRE(dials <= 60);
    REQUIRE(times.back() - times[times.size() - 2] <= 2100ms);
    REQUIRE(times[before + 1] - times[before] <= 30ms);
}

TEST_CASE("a bulk connection that breaks under a job is dialled again, and the job ends rightly", "[P12]") {
    for (const uint64_t seed : seeds(25)) {
        CAPTURE(seed);
        World world(seed);
        auto& [random, cluster, nodes] = world;
        const auto hosts = world.start(3, 5s);
        for (int i = 0; i < 5; ++i)
            cluster.clock.after(cluster.clock.some(3ms), [&, i] {
                nodes.reset_bulk(hosts[static_cast<size_t>(i) % 3], hosts[static_cast<size_t>(i + 1) % 3]);
            });
        REQUIRE(run_job(cluster, hosts, "job") == "");
        cluster.run_for(2s);
        world.require_meshed(hosts);
        cluster.check();
    }
}

TEST_CASE("redials, and with them the suspicion, keep to the measured round trip", "[F1][P5]") {
    for (const bool is_far : {false, true}) {
        Random random(4);
        ClusterShape shape = unconnected(random);
        shape.network.latency_min = is_far ? 15ms : 5us;
        shape.network.jitter = 10us;
        World world(4, shape);
        auto& [_, cluster, nodes] = world;
        const auto hosts = world.start(2, 10s);
        REQUIRE(cluster.warnings.empty());
        nodes.kill(hosts[1]);
        const Time killed = cluster.clock.now();
        while (cluster.warnings.empty()) cluster.run_for(1ms);
        const Duration suspected = cluster.clock.now() - killed;
        REQUIRE(cluster.warnings[0].contains("peer_suspected"));
        REQUIRE(suspected >= (is_far ? 180ms : 40ms));  // three dials, 90 ms or 20 ms between two of them
        REQUIRE(suspected <= (is_far ? 190ms : 50ms));
    }
}

TEST_CASE("two nodes without traffic exchange one heartbeat each second", "[F2]") {
    World world(4);
    auto& [random, cluster, nodes] = world;
    const auto hosts = world.start(2, 4s);
    const auto beats = [&] { return nodes.messages(hosts[0]) + nodes.messages(hosts[1]); };
    const size_t before = beats();
    cluster.run_for(10s);
    REQUIRE(beats() - before >= 18);
    REQUIRE(beats() - before <= 20);
}

}  // namespace nexar::sim
