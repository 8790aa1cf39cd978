// Whole nodes: finding each other, losing each other, coming back, and being told about groups.
#include "wiring.hpp"

#include <catch2/catch_test_macros.hpp>

#include "mesh_cluster.hpp"

namespace nexar::membership {
namespace {

std::string address(unsigned n) {
    return "n" + std::to_string(n) + ":1";
}

// Everybody knows only the address of machine 0.
void start_cluster(MeshCluster& cluster, unsigned count) {
    for (unsigned i = 0; i < count; ++i)
        cluster.start(i, {1, 100 + i}, address(i),
                      i == 0 ? std::vector<std::string>{} : std::vector{address(0)});
}
bool complete(MeshCluster& cluster, unsigned count) {
    for (unsigned a = 0; a < count; ++a)
        for (unsigned b = 0; b < count; ++b)
            if (a != b && !cluster.consistent(a, b)) return false;
    return true;
}
std::vector<GroupNode> nodes_of(unsigned count) {
    std::vector<GroupNode> out;
    for (unsigned i = 0; i < count; ++i) out.push_back({node_id(i), {}, i, ""});
    return out;
}

TEST_CASE("nodes that know one address find everybody, over one connection per pair", "[membership]") {
    for (uint64_t seed = 1; seed <= 40; ++seed) {
        CAPTURE(seed);
        MeshCluster cluster(seed);
        const unsigned count = 2 + static_cast<unsigned>(seed % 5);
        start_cluster(cluster, count);
        cluster.run(ms(3000));

        REQUIRE(complete(cluster, count));
        const PeerInfo* info = cluster[0].membership->table().info_of(node_id(1));
        REQUIRE(info);
        CHECK(info->bulk_port == 7001);
        CHECK(info->bulk_shards == 2);
        CHECK(info->incarnation == Incarnation{1, 101});
        // Closing the surplus one of two simultaneous connections may look like a loss for a moment, never
        // later.
        std::vector<size_t> ups;
        for (unsigned i = 0; i < count; ++i) ups.push_back(cluster[i].ups.size());
        cluster.run(ms(20'000));
        for (unsigned i = 0; i < count; ++i) {
            CHECK(cluster[i].ups.size() == ups[i]);
            for (const PeerDown& down : cluster[i].downs) CHECK_FALSE(down.proof);
            CHECK_FALSE(cluster.noted(i, "peer_suspected"));
        }
    }
}

TEST_CASE("nodes that all dial each other at the same moment keep the same connection", "[membership]") {
    for (uint64_t seed = 1; seed <= 40; ++seed) {
        CAPTURE(seed);
        MeshCluster cluster(seed);
        for (unsigned i = 0; i < 4; ++i) {
            std::vector<std::string> seeds;
            for (unsigned j = 0; j < 4; ++j) seeds.push_back(address(j));  // its own too
            cluster.start(i, {1, 100 + i}, address(i), seeds);
        }
        cluster.run(ms(5000));
        REQUIRE(complete(cluster, 4));
        for (unsigned i = 0; i < 4; ++i) {
            for (const PeerDown& down : cluster[i].downs) CHECK_FALSE(down.proof);
            CHECK_FALSE(cluster.noted(i, "peer_suspected"));
        }
    }
}

TEST_CASE("a restarted node is a later life: new index, the old life proved dead", "[membership]") {
    for (uint64_t seed = 1; seed <= 20; ++seed) {
        CAPTURE(seed);
        MeshCluster cluster(seed);
        start_cluster(cluster, 3);
        cluster.run(ms(3000));
        const GroupId group{1, 1, seed};
        for (unsigned i = 0; i < 3; ++i)
            cluster[i].membership->on_group(group, GroupEpoch{0}, nodes_of(3), cluster.now());
        const PeerIndex before = cluster[0].index[node_id(1)];

        const bool noticed = seed % 2;
        noticed ? cluster.kill(1) : cluster.vanish(1);
        const unsigned reborn = cluster.start(1, {2, 555}, address(1), {address(0)});
        cluster.run(ms(3000));

        REQUIRE(cluster.consistent(0, reborn));
        REQUIRE(cluster.consistent(2, reborn));
        for (unsigned i : {0u, 2u}) {
            REQUIRE(cluster[i].downs.back().proof);
            CHECK(cluster[i].downs.back().incarnation == Incarnation{1, 101});
            REQUIRE(cluster[i].decided.contains(group));
            CHECK(cluster[i].decided[group].code == Errc::peer_lost);
            CHECK(cluster[i].decided[group].rank == 1);
        }
        CHECK(cluster[0].index[node_id(1)] != before);
        CHECK_FALSE(cluster[reborn].decided.contains(group));
    }
}

TEST_CASE("a cloned state directory is refused, naming both addresses, and harms nobody", "[membership]") {
    for (uint64_t seed = 1; seed <= 20; ++seed) {
        CAPTURE(seed);
        MeshCluster cluster(seed);
        start_cluster(cluster, 3);
        cluster.run(ms(3000));
        const GroupId group{1, 1, seed};
        for (unsigned i = 0; i < 3; ++i)
            cluster[i].membership->on_group(group, GroupEpoch{0}, nodes_of(3), cluster.now());
        const size_t ups = cluster[0].ups.size();

        cluster.start(1, {seed % 2 ? 2u : 1u, 999}, "clone:1", {address(0)});
        cluster.run(ms(8000));

        REQUIRE(complete(cluster, 3));
        REQUIRE(cluster.noted(0, "clone_refused"));
        for (const Note& note : cluster[0].notes)
            if (note.event == "clone_refused") {
                INFO(note.fields[2].second);
                CHECK(note.level == Level::error);
                CHECK(note.fields[2].second.find("n1:1") != std::string::npos);
                CHECK(note.fields[2].second.find("clone:1") != std::string::npos);
            }
        CHECK(cluster[0].ups.size() == ups);
        CHECK(cluster[0].decided.empty());
        CHECK(cluster[0].notes.size() < 50);  // a refused clone backs off
    }
}

TEST_CASE("an old copy of a state directory is refused while a later life is remembered", "[membership]") {
    MeshCluster cluster(3);
    cluster.start(0, {1, 100}, address(0), {});
    cluster.start(1, {7, 101}, address(1), {address(0)});
    cluster.run(ms(2000));
    cluster.kill(1);
    cluster.run(ms(1000));
    const unsigned old = cluster.start(1, {6, 102}, address(1), {address(0)});
    cluster.run(ms(4000));
    CHECK_FALSE(cluster.consistent(0, old));
    CHECK(cluster.noted(0, "stale_incarnation_refused"));
}

TEST_CASE("a goodbye is proof, and a killed node is only suspected until the arbiter decides",
          "[membership]") {
    MeshCluster cluster(4);
    start_cluster(cluster, 4);
    cluster.run(ms(4000));
    const GroupId group{1, 1, 1}, other{1, 1, 2};
    for (unsigned i = 0; i < 4; ++i) {
        cluster[i].membership->on_group(group, GroupEpoch{0}, nodes_of(4), cluster.now());
        if (i < 3) cluster[i].membership->on_group(other, GroupEpoch{0}, nodes_of(3), cluster.now());
    }
    SECTION("goodbye") {
        cluster.goodbye(3);
        cluster.run(ms(20));
        for (unsigned i = 0; i < 3; ++i) {
            REQUIRE(cluster[i].downs.size() == 1);
            CHECK(cluster[i].downs[0].proof);
            CHECK(cluster[i].downs[0].why.find("maintenance") != std::string::npos);
        }
    }
    SECTION("killed") {
        cluster.kill(3);
        cluster.run(ms(50));
        for (unsigned i = 0; i < 3; ++i) CHECK_FALSE(cluster[i].downs.back().proof);
        cluster.run(ms(450));
    }
    SECTION("silent") {
        cluster.vanish(3);
        cluster.run(ms(5300));
    }
    for (unsigned i = 0; i < 3; ++i) {
        CAPTURE(i);
        REQUIRE(cluster[i].decided.contains(group));
        CHECK(cluster[i].decided[group].rank == 3);
        CHECK(cluster[i].decided[group].text == cluster[0].decided[group].text);
        CHECK_FALSE(cluster[i].decided.contains(other));
    }
}

TEST_CASE("a lost connection between living nodes comes back with the same index", "[membership]") {
    MeshCluster cluster(4);
    start_cluster(cluster, 2);
    cluster.run(ms(4000));
    const GroupId group{1, 1, 1};
    for (unsigned i = 0; i < 2; ++i)
        cluster[i].membership->on_group(group, GroupEpoch{0}, nodes_of(2), cluster.now());
    const PeerUp before = cluster[0].ups.back();

    // Both sides lose it, as after an idle timeout.
    for (unsigned i = 0; i < 2; ++i)
        cluster[i].membership->on_closed(cluster[i].up.begin()->second, "idle", cluster.now());
    cluster.run(ms(2000));

    REQUIRE(cluster.consistent(0, 1));
    const PeerUp after = cluster[0].ups.back();
    CHECK(after.info.peer == before.info.peer);
    CHECK(after.generation > before.generation);
    CHECK(cluster[0].decided.empty());
    CHECK(cluster[1].decided.empty());
}

TEST_CASE("redials back off to the ceiling and stay bounded", "[membership]") {
    MeshCluster cluster(4);
    start_cluster(cluster, 2);
    cluster.run(ms(4000));
    cluster.kill(1);
    const size_t before = cluster[0].dials.size();
    cluster.run(ms(60'000));
    const size_t dials = cluster[0].dials.size() - before;
    CHECK(dials >= 25);  // every 2 s at least
    CHECK(dials <= 60);
    const auto& times = cluster[0].dial_times;
    CHECK(times.back() - times[times.size() - 2] <= ms(2100));
    CHECK(times[before + 1] - times[before] <= ms(30));  // fast at first
}

TEST_CASE("an idle cluster sends one heartbeat per second and direction", "[membership]") {
    MeshCluster cluster(4);
    start_cluster(cluster, 2);
    cluster.run(ms(4000));
    const size_t before = cluster[0].sent + cluster[1].sent;
    cluster.run(ms(10'000));
    CHECK(cluster[0].sent + cluster[1].sent - before == 20);
}

}  // namespace
}  // namespace nexar::membership
