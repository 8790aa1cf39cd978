// What a node knows of the groups that its processes wait for, and what it says when they give up.
#include "rendezvous/forming.hpp"

#include <catch2/catch_test_macros.hpp>

#include "cluster.hpp"

using namespace nexar;
using namespace nexar::rendezvous;

namespace {

const FormingGroup& of(const std::vector<FormingGroup>& groups, const wire::GroupKey& key) {
    const auto found = std::ranges::find(groups, key, &FormingGroup::key);
    REQUIRE(found != groups.end());
    return *found;
}

// An open with the name "train" and another secret: the cluster's own opens make their keys of the name
// alone.
OpenSpec other_secret(Duration timeout) {
    OpenSpec spec;
    spec.session = SessionId{1000};
    spec.key = key_of("another secret");
    spec.name = "train";
    spec.size = 3;
    spec.pid = 50;
    spec.timeout = timeout;
    spec.opener_mark = 1;  // as of those that Cluster::open() makes
    return spec;
}

}  // namespace

TEST_CASE("a node learns from the leader who came to a group and who is missing", "[rendezvous][U8]") {
    Cluster cluster(3, 1);
    REQUIRE(cluster[1].open(other_secret(ms(60000)), cluster.now()));
    cluster.open(1, "train", 3, 0, ms(60000));
    cluster.run(ms(1000));
    cluster.open(2, "train", 3, 2, ms(60000));
    cluster.run(ms(1000));

    const auto key = key_of("train");
    for (const unsigned node : {1u, 2u}) {
        REQUIRE_FALSE(of(cluster[node].forming(cluster.now()).groups, key).arrived);
        cluster[node].inquire();
        REQUIRE(cluster[node].is_inquiring());
        cluster.open(node, "unrelated", 2, -1, ms(60000));  // it delivers what the node sends
        cluster.run(ms(200));
        REQUIRE_FALSE(cluster[node].is_inquiring());

        const auto groups = cluster[node].forming(cluster.now()).groups;
        const FormingGroup& group = of(groups, key);
        REQUIRE((group.name == "train" && group.size == 3 && !group.local && !group.reserved));
        REQUIRE(group.leader == node_id(0));
        REQUIRE((group.here.size() == 1 && group.here[0].rank == (node == 1 ? 0 : 2)));
        REQUIRE(group.arrived);
        REQUIRE((group.arrived->came_count == 2 && group.arrived->came[1].node == node_id(2)));
        REQUIRE((group.arrived->missing == std::vector<uint32_t>{1} && group.arrived->missing_count == 1));
        REQUIRE(group.arrived->others == 1);
    }
    REQUIRE(of(cluster[1].forming(cluster.now()).groups, key).since == Time{} + ms(0));
}

TEST_CASE("the leader itself asks nobody", "[rendezvous][U8]") {
    Cluster cluster(2, 1);
    cluster.open(0, "train", 2, 1);
    cluster.open(0, "here", 2, 1, ms(5000), /*local=*/true);
    cluster[0].inquire();
    REQUIRE_FALSE(cluster[0].is_inquiring());
    const FormingList list = cluster[0].forming(cluster.now());
    REQUIRE(list.groups.size() == 2);
    for (const FormingGroup& group : list.groups) {
        REQUIRE(group.arrived);
        REQUIRE(group.arrived->missing == std::vector<uint32_t>{0});
    }
}

TEST_CASE("differing secrets and ranks that did not start have different texts", "[rendezvous][U8][R30]") {
    const auto says = [](const Cluster& cluster, const std::string& words) {
        const auto& error = cluster.openers()[0].failed;
        REQUIRE(error);
        INFO(error->text);
        return error->text.find(words) != std::string::npos;
    };
    const std::string other = "1 other waits for this name with another job_secret, or without one",
                      alone = "No rank of another node was accepted";
    Cluster cluster(3, 1);
    SECTION("another secret, which gives up a moment earlier") {
        REQUIRE(cluster[2].open(other_secret(ms(1900)), cluster.now()));
        cluster.open(1, "train", 3, 0, ms(2000));
        cluster.run(ms(3000));
        REQUIRE(says(cluster, other));
        REQUIRE_FALSE(says(cluster, alone));
    }
    SECTION("another secret of another user is nothing to this one") {  // [R30]
        OpenSpec spec = other_secret(ms(1900));
        spec.opener_mark = 2;
        REQUIRE(cluster[2].open(spec, cluster.now()));
        cluster.open(1, "train", 3, 0, ms(2000));
        cluster.run(ms(3000));
        REQUIRE_FALSE(says(cluster, other));
    }
    SECTION("nobody elsewhere") {
        cluster.open(1, "train", 3, 0, ms(2000));
        cluster.run(ms(3000));
        REQUIRE(says(cluster, alone));
        REQUIRE_FALSE(says(cluster, other));
    }
    SECTION("one is missing") {
        cluster.open(1, "train", 3, 0, ms(2000));
        cluster.open(2, "train", 3, 2, ms(2000));
        cluster.run(ms(3000));
        REQUIRE_FALSE(says(cluster, alone));
        REQUIRE_FALSE(says(cluster, other));
    }
}

TEST_CASE("a long list of a leader is kept in part, its counts are exact", "[rendezvous][U8]") {
    wire::GroupStatus status;
    for (uint32_t rank = 0; rank < 5000; rank += 2) status.present.push_back({{}, node_id(1), rank, 1, {}});
    const Arrived arrived = arrived_of(5000, status);
    REQUIRE((arrived.came.size() == Arrived::came_max && arrived.came_count == 2500));
    REQUIRE((arrived.missing.size() == Arrived::missing_max && arrived.missing_count == 2500));
    REQUIRE((arrived.missing[0] == 1 && arrived.missing[63] == 127));
}
