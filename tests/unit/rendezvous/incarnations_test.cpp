// Nodes that are restarted while groups form: members are named with their nodes' incarnations, and a node
// that still sees another incarnation waits for the right one.
#include <catch2/catch_test_macros.hpp>

#include "cluster.hpp"

namespace nexar::rendezvous {
namespace {

bool says(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

std::vector<size_t> open_all(Cluster& cluster, Duration timeout = ms(5000)) {
    std::vector<size_t> out;
    for (unsigned node = 0; node < 3; ++node) out.push_back(cluster.open(node, "g", 3, node, timeout));
    return out;
}

void require_formed(const Cluster& cluster, const std::vector<size_t>& openers) {
    for (const size_t o : openers) {
        const auto& opener = cluster.openers()[o];
        if (opener.failed) FAIL(opener.failed->text);
        REQUIRE(opener.group);
        const auto& members = cluster.group(*opener.group).members;
        for (unsigned rank = 0; rank < 3; ++rank)
            CHECK(members[rank].incarnation.counter == (rank == 2 ? 2u : 1u));
    }
}

}  // namespace

TEST_CASE("a member that still sees a node's old incarnation waits for the new one before it agrees",
          "[rendezvous][R15]") {
    for (const unsigned unaware : {0u, 1u}) {  // the leader, another member
        for (uint64_t seed = 1; seed <= 20; ++seed) {
            CAPTURE(unaware, seed);
            Cluster cluster(3, seed);
            cluster.restart(2, unaware);
            const auto openers = open_all(cluster);
            cluster.run(ms(300));
            for (const size_t o : openers) REQUIRE_FALSE(cluster.openers()[o].answered_at_all());
            cluster.link(unaware, 2);
            cluster.run(ms(3000));
            require_formed(cluster, openers);
            cluster.require_all_answered();
        }
    }
}

TEST_CASE(
    "a member that never sees the new incarnation: the openers' deadline, and the error names both nodes",
    "[rendezvous]") {
    for (uint64_t seed = 1; seed <= 20; ++seed) {
        CAPTURE(seed);
        Cluster cluster(3, seed);
        cluster.restart(2, 1);
        cluster[2].on_peer_up(node_id(1), {1, 1001}, cluster.now());  // it thinks that it is connected
        const auto openers = open_all(cluster, ms(4000));
        cluster.run(ms(10'000));
        for (const size_t o : openers) {
            REQUIRE(cluster.openers()[o].failed);
            const Error& error = *cluster.openers()[o].failed;
            INFO(error.text);
            CHECK(error.code == Errc::group_incomplete);
            CHECK(says(error.text, "node host1 is not connected to the present incarnation of node host2"));
        }
        cluster.require_all_answered();
    }
}

TEST_CASE("an open of an earlier incarnation blocks no other open", "[rendezvous][R15]") {
    size_t quick = 0;
    for (const bool forming : {false, true}) {
        for (uint64_t seed = 1; seed <= 400; ++seed) {
            CAPTURE(forming, seed);
            Cluster cluster(3, seed);
            cluster.open(2, "g", 3, 2);
            std::vector<size_t> openers;
            if (forming)
                for (unsigned node = 0; node < 2; ++node) openers.push_back(cluster.open(node, "g", 3, node));
            cluster.run(ms(forming ? 3 : 50));
            cluster.restart(2, 0);  // the leader goes on believing in the old one
            openers.push_back(cluster.open(2, "g", 3, 2));
            if (!forming)
                for (unsigned node = 0; node < 2; ++node) openers.push_back(cluster.open(node, "g", 3, node));
            cluster.run(ms(300));
            // All had agreed before node 2 ended, so there is a group with its process, and nobody waits for
            // another.
            if (forming && cluster.openers()[openers[0]].group) {
                REQUIRE(cluster.openers()[openers[1]].group == cluster.openers()[openers[0]].group);
                ++quick;
                continue;
            }
            cluster.link(0, 2);
            cluster.run(ms(4500));
            for (const size_t o : openers) {
                if (cluster.openers()[o].failed) FAIL(cluster.openers()[o].failed->text);
                REQUIRE(cluster.openers()[o].group);
            }
        }
    }
    CHECK(quick < 40);
}

TEST_CASE("the end of an old incarnation leaves a group that forms with the new one alone", "[rendezvous]") {
    Rendezvous machine(config_of(node_id(0), {1, 7}));
    machine.on_peer_up(node_id(1), {5, 50}, Time{});
    REQUIRE(machine.open({SessionId{1}, key_of("g"), false, "g", 2, 0, 9, ms(60'000)}, Time{}));
    wire::GroupOpen theirs{{node_id(1), (uint64_t{5} << 32) + 1}, key_of("g"), "g", 2, 1, 8, {5, 50}, 3};
    machine.on_message(node_id(1), theirs, Time(ms(1)));
    machine.on_peer_down(node_id(1), {4, 40}, Time(ms(2)));  // late news
    size_t prepares = 0, refusals = 0;
    while (const auto action = machine.poll_action()) {
        const auto* send = std::get_if<Send>(&*action);
        if (!send) continue;
        if (const auto* prepare = std::get_if<wire::GroupPrepare>(&send->message)) {
            ++prepares;
            CHECK(prepare->members[0].incarnation == Incarnation{1, 7});
            CHECK(prepare->members[1].incarnation == Incarnation{5, 50});
            CHECK(prepare->plan.bulk_shards == 1);  // the fewer
        }
        refusals += std::holds_alternative<wire::GroupRefused>(send->message);
    }
    CHECK(prepares == 1);
    CHECK(refusals == 0);
}

}  // namespace nexar::rendezvous
