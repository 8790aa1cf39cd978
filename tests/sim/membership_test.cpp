// Nodes that know one address find each other by production peer tables, and run jobs on what they found.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>

#include "job.hpp"
#include "planes.hpp"
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

// So many nodes, all of which know only the first one's address, at random moments.
std::vector<uint32_t> start_nodes(Cluster& cluster, Planes& planes, uint32_t count) {
    std::vector<uint32_t> hosts;
    for (uint32_t i = 0; i < count; ++i) {
        std::vector<std::string> seeds;
        if (i > 0) seeds.push_back(address(0));
        hosts.push_back(planes.start(i, 1, address(i), std::move(seeds)));
        if (cluster.clock.random.one_in(2)) cluster.run_for(cluster.clock.some(2ms));
    }
    return hosts;
}

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
        Random random(seed);
        Cluster cluster(seed, unconnected(random));
        Planes planes(cluster);
        const auto hosts = start_nodes(cluster, planes, static_cast<uint32_t>(2 + random.below(5)));
        cluster.run_for(3s);
        for (const uint32_t host : hosts)
            for (const std::string& note : planes.notes(host)) UNSCOPED_INFO(host << ": " << note);
        REQUIRE(planes.meshed(hosts));
        REQUIRE(run_job(cluster, hosts, "job") == "");
        cluster.check();
        // It stays so: nobody dials any more.
        const size_t made = planes.connections_made;
        cluster.run_for(20s);
        REQUIRE(planes.connections_made == made);
        REQUIRE(planes.meshed(hosts));
    }
}

TEST_CASE("two nodes that dial each other at the same moment end with one connection, the same at both") {
    size_t doubled = 0, tried = 0;
    for (const uint64_t seed : seeds(100)) {
        CAPTURE(seed);
        ++tried;
        Random random(seed);
        Cluster cluster(seed, unconnected(random));
        Planes planes(cluster);
        const std::vector<uint32_t> hosts{planes.start(0, 1, address(0), {address(1)}),
                                          planes.start(1, 1, address(1), {address(0)})};
        cluster.run_for(2s);
        doubled += planes.connections_made > 1 ? 1 : 0;
        REQUIRE(planes.meshed(hosts));
        REQUIRE(run_job(cluster, hosts, "job") == "");
        cluster.check();
    }
    REQUIRE(4 * doubled > tried);  // or this test would be about nothing
}

TEST_CASE("a connection that breaks under a job is dialled again, and the job ends rightly") {
    for (const uint64_t seed : seeds(25)) {
        CAPTURE(seed);
        Random random(seed);
        Cluster cluster(seed, unconnected(random));
        Planes planes(cluster);
        const auto hosts = start_nodes(cluster, planes, 3);
        cluster.run_for(5s);
        REQUIRE(planes.meshed(hosts));
        for (int i = 0; i < 3; ++i)
            cluster.clock.after(cluster.clock.some(3ms), [&] { planes.reset(hosts[0], hosts[1]); });
        REQUIRE(run_job(cluster, hosts, "job") == "");
        cluster.check();
    }
}

TEST_CASE("a killed daemon that starts again is a new life: old groups end, new ones form") {
    for (const uint64_t seed : seeds(25)) {
        CAPTURE(seed);
        Random random(seed);
        Cluster cluster(seed, unconnected(random));
        Planes planes(cluster);
        auto hosts = start_nodes(cluster, planes, 3);
        cluster.run_for(3s);
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
        planes.kill(hosts[2]);
        cluster.run_for(cluster.clock.some(random.one_in(2) ? 1ms : 2s));
        hosts[2] = planes.start(2, 2, address(2), {address(0), address(1)});
        cluster.run_for(10s);

        for (const auto& node : {hosts[0], hosts[1]})
            for (const std::string& note : planes.notes(node)) UNSCOPED_INFO(node << ": " << note);
        REQUIRE(ended == 2);
        REQUIRE(errors.size() == 1);
        REQUIRE(planes.meshed(hosts));
        REQUIRE(run_job(cluster, hosts, "new") == "");
    }
}

// While one node still holds the old life for alive [P3], the others have the new one and form a group with
// it.
TEST_CASE("a group formed within moments of a quick restart lives") {
    for (const uint64_t seed : seeds(60)) {
        CAPTURE(seed);
        Random random(seed * 7 + 1);
        Cluster cluster(seed, unconnected(random));
        Planes planes(cluster);
        auto hosts = start_nodes(cluster, planes, 3);
        cluster.run_for(3s);
        REQUIRE(planes.meshed(hosts));
        const auto victim = static_cast<uint32_t>(random.below(3));
        const uint32_t other = (victim + 1) % 3, unaware = (victim + 2) % 3;
        for (uint64_t life = 2; life < 5; ++life) {
            planes.kill(hosts[victim], {hosts[unaware]});
            cluster.run_for(cluster.clock.some(20ms));
            hosts[victim] = planes.start(victim, life, address(victim), {address(other), address(unaware)});
            cluster.run_for(cluster.clock.some(random.one_in(3) ? 400ms : 5ms));
            const std::string wrong = run_job(cluster, hosts, "job " + std::to_string(life));
            for (const uint32_t host : hosts)
                for (const std::string& note : planes.notes(host)) UNSCOPED_INFO(host << ": " << note);
            REQUIRE(wrong == "");
            cluster.check();
        }
    }
}

TEST_CASE("a node that says goodbye and comes back in its next life is taken in again") {
    for (const uint64_t seed : seeds(10)) {
        CAPTURE(seed);
        Random random(seed);
        Cluster cluster(seed, unconnected(random));
        Planes planes(cluster);
        auto hosts = start_nodes(cluster, planes, 3);
        cluster.run_for(3s);
        planes.leave(hosts[1]);
        cluster.run_for(100ms);
        hosts[1] = planes.start(1, 2, address(1), {address(2)});
        cluster.run_for(10s);
        REQUIRE(planes.meshed(hosts));
        REQUIRE(run_job(cluster, hosts, "job") == "");
    }
}

TEST_CASE("a daemon on a copied state directory is refused while the original lives, and hurts nobody") {
    for (const uint64_t seed : seeds(25)) {
        CAPTURE(seed);
        Random random(seed);
        Cluster cluster(seed, unconnected(random));
        Planes planes(cluster);
        const auto hosts = start_nodes(cluster, planes, 3);
        cluster.run_for(3s);
        // Same key, a higher or the same counter, another address.
        const uint32_t clone = planes.start(1, 1 + random.below(2), "10.0.9.9:1", {address(0)});
        cluster.run_for(5s);

        REQUIRE(planes.noted(hosts[0], "clone_refused"));
        for (const uint32_t host : {hosts[0], hosts[2]}) {  // to them the node is still the one that it was
            const auto* info = planes.table(host).info_of(cluster.hosts[clone]->id);
            REQUIRE(info != nullptr);
            REQUIRE(info->incarnation == cluster.hosts[hosts[1]]->incarnation);
        }
        REQUIRE(planes.meshed(hosts));
        REQUIRE(run_job(cluster, hosts, "job") == "");
    }
}

TEST_CASE("an old copy of a state directory is refused also when the original is gone") {
    Random random(1);
    Cluster cluster(1, unconnected(random));
    Planes planes(cluster);
    const uint32_t stays = planes.start(0, 1, address(0), {});
    const uint32_t original = planes.start(1, 5, address(1), {address(0)});
    cluster.run_for(2s);
    REQUIRE(planes.meshed({stays, original}));
    planes.kill(original);
    cluster.run_for(1s);
    const uint32_t copy = planes.start(1, 4, address(1), {address(0)});
    cluster.run_for(5s);
    REQUIRE(planes.noted(stays, "stale_incarnation_refused"));
    REQUIRE_FALSE(planes.table(stays).connection_of(cluster.hosts[copy]->id));
}

TEST_CASE("after any order of starts, resets, kills and restarts all living nodes are connected again") {
    for (const uint64_t seed : seeds(60)) {
        CAPTURE(seed);
        Random random(seed * 31 + 5);
        Cluster cluster(seed, unconnected(random));
        Planes planes(cluster);
        const auto count = static_cast<uint32_t>(3 + random.below(3));
        auto hosts = start_nodes(cluster, planes, count);
        std::vector<uint64_t> lives(count, 1);
        for (int event = 0; event < 12; ++event) {
            cluster.run_for(cluster.clock.some(random.one_in(3) ? 1s : 3ms));
            const auto who = static_cast<uint32_t>(random.below(count));
            const auto other = static_cast<uint32_t>(random.below(count));
            if (random.one_in(2)) {
                if (who != other) planes.reset(hosts[who], hosts[other]);
                continue;
            }
            if (random.one_in(4)) {
                planes.leave(hosts[who]);
                cluster.run_for(6ms);
            } else {
                planes.kill(hosts[who]);
                if (random.one_in(2)) cluster.run_for(cluster.clock.some(500ms));
            }
            // A restarted daemon dials whom it remembers (Member::save_roster).
            std::vector<std::string> seeds;
            for (uint32_t i = 0; i < count; ++i)
                if (i != who) seeds.push_back(address(i));
            hosts[who] = planes.start(who, ++lives[who], address(who), std::move(seeds));
        }
        cluster.run_for(20s);

        for (const uint32_t host : hosts)
            for (const std::string& note : planes.notes(host)) UNSCOPED_INFO(host << ": " << note);
        REQUIRE(planes.meshed(hosts));
        REQUIRE(run_job(cluster, hosts, "job") == "");
        cluster.check();
    }
}

}  // namespace nexar::sim
