// What a group may use when its nodes run daemons of different versions (docs/protocol/wire.md [V5]).
#include <catch2/catch_test_macros.hpp>

#include "cluster.hpp"

namespace nexar::rendezvous {
namespace {

constexpr uint64_t unknown = uint64_t{1} << 63;
const NodeId leader = node_id(0), other = node_id(1);
const Incarnation incarnation{1, 7};

Config with_features(const NodeId& node, uint64_t features) {
    Config out = config_of(node, incarnation);
    out.features = features;
    out.plan.version = plan_version_max;
    return out;
}

struct Node {
    Rendezvous machine;
    wire::RequestId request;

    Node(const NodeId& self, const NodeId& peer, uint64_t features, uint32_t rank)
        : machine(with_features(self, features)) {
        machine.on_peer_up(peer, incarnation, Time{});
        request = *machine.open({SessionId{1}, key_of("g"), false, "g", 2, rank, 9, ms(60'000)}, Time{});
    }
    template <class T>
    std::vector<T> sent() {
        std::vector<T> out;
        while (const auto action = machine.poll_action())
            if (const auto* send = std::get_if<Send>(&*action))
                if (const auto* message = std::get_if<T>(&send->message)) out.push_back(*message);
        return out;
    }
};

// As the leader makes it when the other node's open names these features.
wire::GroupPrepare prepared_by(Node& node, uint64_t theirs) {
    wire::GroupOpen open{
        {other, (uint64_t{1} << 32) + 1}, key_of("g"), "g", 2, 1, 8, incarnation, 3, {}, theirs};
    node.machine.on_message(other, open, Time(ms(1)));
    const auto prepares = node.sent<wire::GroupPrepare>();
    REQUIRE(prepares.size() == 1);
    return prepares[0];
}
wire::GroupPrepare prepared_with(uint64_t ours, uint64_t theirs) {
    Node node(leader, other, ours, 0);
    return prepared_by(node, theirs);
}

}  // namespace

TEST_CASE("an open names its node's features", "[rendezvous][V5]") {
    Node node(other, leader, known_features() | unknown, 1);
    const auto opens = node.sent<wire::GroupOpen>();
    REQUIRE(opens.size() == 1);
    CHECK(opens[0].features == (known_features() | unknown));
}

TEST_CASE("a leader passes features on unchanged, also those that it does not know", "[rendezvous][V2][V5]") {
    const wire::GroupPrepare prepare = prepared_with(known_features(), unknown);
    CHECK(prepare.members[0].features == known_features());
    CHECK(prepare.members[1].features == unknown);
    CHECK(common_features(prepare.members) == (known_features() & unknown));
}

TEST_CASE("a group's plan function is one that all its nodes and its leader know", "[rendezvous][V5]") {
    const uint64_t two = feature_of_plan(2), three = two | feature_of_plan(3);
    CHECK(prepared_with(0, two).plan.version == 1);
    CHECK(prepared_with(two, 0).plan.version == 1);
    CHECK(prepared_with(two, three).plan.version == 2);
    CHECK(prepared_with(three, three).plan.version == plan_version_max);
}

TEST_CASE(
    "a group of two hosts has twice the bytes for recursive doubling, of one or three as many as "
    "configured",
    "[rendezvous][O1]") {
    Cluster cluster(3, 1);
    const auto configured = config_of(node_id(0)).plan;
    REQUIRE(2 * configured.doubling_bytes_max <= configured.small_bytes_max);
    for (const unsigned hosts : {1u, 2u, 3u}) {
        const std::string name = "on " + std::to_string(hosts);
        size_t last = 0;
        for (unsigned rank = 0; rank < 3; ++rank) last = cluster.open(rank % hosts, name, 3, rank);
        cluster.run(ms(1000));
        REQUIRE(cluster.openers()[last].group);
        CHECK(cluster.group(*cluster.openers()[last].group).plan.doubling_bytes_max ==
              (hosts == 2 ? 2 : 1) * configured.doubling_bytes_max);
        // A lane for each shard that they have in common: 4 on the first host.
        CHECK(cluster.group(*cluster.openers()[last].group).plan.lanes == std::max(configured.lanes, 4u));
    }
    CHECK(doubling_bytes_among(2, 48, 64) == 64);
}

TEST_CASE("a trial is of the groups of its name: by size, with its limit on any number of hosts",
          "[rendezvous][O8]") {
    Cluster cluster(2, 1);
    const auto configured = config_of(node_id(0)).plan;
    cluster[0].set_trial({"earlier", 1});
    cluster[0].set_trial({"raced", 7});
    cluster[0].set_trial({"raced", 48});
    const auto limit_of = [&](const std::string& name) {
        size_t last = 0;
        for (unsigned rank = 0; rank < 2; ++rank) last = cluster.open(rank, name, 2, rank);
        cluster.run(ms(1000));
        REQUIRE(cluster.openers()[last].group);
        const auto& plan = cluster.group(*cluster.openers()[last].group).plan;
        return plan.doubling_bytes_max;
    };
    CHECK(limit_of("raced") == 48);
    CHECK(limit_of("earlier") == 2 * configured.doubling_bytes_max);
    cluster[0].set_trial({"raced", uint64_t{1} << 30});
    CHECK(limit_of("raced") == configured.small_bytes_max);

    Node tuned(leader, other, known_features(), 0);
    tuned.machine.set_trial({"g", 48});
    const auto plan = prepared_by(tuned, known_features()).plan;
    CHECK((plan.version == plan_version_by_size && plan.doubling_bytes_max == 48));
}

TEST_CASE("a prepare that counts on what a node lacks is not answered OK by it", "[rendezvous][V5]") {
    const uint64_t features = known_features();
    Node node(other, leader, features, 1);
    wire::GroupPrepare prepare;
    prepare.group = {leader.prefix(), incarnation.nonce, 3};
    prepare.key = key_of("g");
    prepare.name = "g";
    prepare.members = {
        {{leader, 5}, leader, 0, 7, incarnation, features, {}},
        {node.request, other, 1, 9, incarnation, features, node.sent<wire::GroupOpen>().at(0).nonce}};
    std::string expected;
    SECTION("what it has") {}
    SECTION("less than it has") {
        prepare.members[1].features = 0;
    }
    SECTION("a feature that it lacks") {
        prepare.members[1].features |= unknown;
        expected = "feature 63";
    }
    SECTION("a plan function that it lacks") {
        prepare.plan.version = plan_version_max + 1;
        prepare.members[0].features |= feature_of_plan(plan_version_max + 1);
        expected = "plan function 4";
    }
    node.machine.on_message(leader, prepare, Time(ms(1)));
    const auto answers = node.sent<wire::GroupPrepared>();
    REQUIRE(answers.size() == 1);
    INFO(answers[0].error.text);
    CHECK((answers[0].error.code == Errc::ok) == expected.empty());
    CHECK(answers[0].error.text.find(expected) != std::string::npos);
}

}  // namespace nexar::rendezvous
