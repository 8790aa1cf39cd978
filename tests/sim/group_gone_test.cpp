// What a node answers about a group that is over there, and what a node accepts of a cut while collectives
// are open (docs/protocol/group_lifecycle.md [G2] [G9]).
#include <catch2/catch_test_macros.hpp>
#include <optional>

#include "program.hpp"

namespace nexar::sim {
namespace {

constexpr OpDescriptor sum_of_100{OpKind::all_reduce, Dtype::i32, ReduceOp::sum, 100, 0};

void receive(Cluster& cluster, uint32_t to, uint32_t from, const wire::Message& message) {
    cluster.hosts[to]->engine->on_message(cluster.clock.now(), link::PeerIndex(from), message);
    cluster.hosts[to]->after_input();
}

// One rank on each of three nodes. Node 0 keeps what node 1 answers about the group's end.
struct Three {
    Cluster cluster;
    Program program;
    std::optional<wire::GroupEnd> end;
    size_t ends = 0, departures = 0, reports = 0, accepted = 0;

    static ClusterShape shape(size_t finished_groups_max, size_t finished_members_max) {
        ClusterShape shape;
        shape.nodes = 3;
        shape.engine.finished_groups_max = finished_groups_max;
        shape.engine.finished_members_max = finished_members_max;
        return shape;
    }
    explicit Three(size_t finished_groups_max = 4096, size_t finished_members_max = 65536)
        : cluster(1, shape(finished_groups_max, finished_members_max)),
          program(cluster, cluster.make_group({0, 1, 2})) {
        cluster.hosts[0]->table = [this](link::PeerIndex from, const wire::Message& message) {
            if (from != link::PeerIndex(1)) return false;
            if (const auto* message_end = std::get_if<wire::GroupEnd>(&message)) {
                ++ends;
                end = *message_end;
            }
            departures += std::holds_alternative<wire::GroupDeparted>(message);
            reports += std::holds_alternative<wire::GroupReport>(message);
            accepted += std::holds_alternative<wire::GroupAccepted>(message);
            return false;
        };
        program.add(sum_of_100);
        for (const uint32_t rank : {0u, 1u, 2u}) program.post(0, rank);
        cluster.run_for(20ms);
        for (const auto* call : program.steps[0].calls) REQUIRE(call->ok());
    }
    ~Three() { cluster.hosts[0]->table = nullptr; }

    wire::FailedSet rank_2_lost() const {
        return {{Errc::peer_lost, "rank 2 is lost", 2, -1, cluster.hosts[2]->id.hex()}, {}};
    }
    // Node 0 asks node 1 in every way that wants an answer. Returns how many answers are owed.
    size_t ask() {
        ends = departures = 0;
        const GroupId& id = program.group.id;
        const wire::Ballot ballot{100, 0};
        receive(cluster, 1, 0, wire::GroupFailed{id, 1, ballot, rank_2_lost()});
        receive(cluster, 1, 0, wire::GroupFreeze{id, 1, ballot, rank_2_lost()});
        receive(cluster, 1, 0, wire::GroupCut{id, 1, ballot, {7, rank_2_lost()}});
        cluster.run_for(20ms);
        return 3;
    }
};

}  // namespace

TEST_CASE("[G9] who asks about a group that was cut here gets that cut, also after all ranks have left it") {
    Three g;
    g.program.stop_rank(2);
    g.cluster.end_session(g.program.group, 2);
    g.cluster.run_for(50ms);
    REQUIRE(g.cluster.hosts[1]->engine->snapshot(g.cluster.clock.now()).groups.at(0).failed.code ==
            Errc::peer_lost);
    REQUIRE(g.cluster.free_group(g.program.group, 1));
    g.cluster.run_for(20ms);
    REQUIRE(g.cluster.hosts[1]->engine->snapshot(g.cluster.clock.now()).groups.empty());

    REQUIRE(g.ask() == g.ends);

    REQUIRE(g.departures == 0);
    REQUIRE(g.end->cut.seq == 1);  // collective 0 had ended well
    REQUIRE(g.end->cut.failed.error.rank == 2);
    REQUIRE(g.cluster.run(10s));
    g.cluster.check();
}

TEST_CASE("[G12] how a group ended is reported to its nodes, and to no other one") {
    for (const bool all_have_left : {false, true}) {
        CAPTURE(all_have_left);
        ClusterShape shape;
        shape.nodes = 4;
        Cluster cluster(1, shape);
        Program program(cluster, cluster.make_group({0, 1, 2}));
        program.stop_rank(2);
        cluster.end_session(program.group, 2);
        cluster.run_for(50ms);
        if (all_have_left)
            for (const uint32_t rank : {0u, 1u}) REQUIRE(cluster.free_group(program.group, rank));
        cluster.run_for(20ms);

        const GroupId& id = program.group.id;
        const wire::Ballot ballot{100, 3};
        const wire::FailedSet failed{{Errc::peer_lost, "made up", 2, -1, cluster.hosts[2]->id.hex()}, {}};
        for (const bool member : {false, true}) {
            const uint32_t from = member ? 0 : 3;
            size_t ends = 0;
            cluster.hosts[from]->table = [&](link::PeerIndex, const wire::Message& message) {
                ends += std::holds_alternative<wire::GroupEnd>(message);
                return false;
            };
            receive(cluster, 1, from, wire::GroupFailed{id, 1, ballot, failed});
            receive(cluster, 1, from, wire::GroupFreeze{id, 1, ballot, failed});
            receive(cluster, 1, from, wire::GroupCut{id, 1, ballot, {7, failed}});
            receive(
                cluster, 1, from,
                wire::SuspicionReport{id, 1, cluster.hosts[from]->id, cluster.hosts[2]->id, "made up", true});
            cluster.run_for(20ms);
            CHECK((ends > 0) == member);
            cluster.hosts[from]->table = nullptr;
        }
    }
}

TEST_CASE("[G12] of very many nodes of ended groups the last ones are remembered") {
    Three g(4096, 1);
    g.program.stop_rank(2);
    g.cluster.end_session(g.program.group, 2);
    g.cluster.run_for(50ms);
    REQUIRE(g.cluster.free_group(g.program.group, 1));
    g.cluster.run_for(20ms);
    REQUIRE(g.ask() == g.ends);  // one group at least

    const SimGroup later = g.cluster.make_group({1, 2});
    g.cluster.end_session(later, 1);
    g.cluster.run_for(50ms);
    REQUIRE(g.cluster.free_group(later, 0));
    g.cluster.run_for(20ms);
    REQUIRE(g.ask() == g.departures);
}

TEST_CASE("[G9] who asks about a group that all ranks had left before its end is answered DEPARTED") {
    Three g;
    for (const uint32_t rank : {0u, 1u, 2u}) REQUIRE(g.cluster.free_group(g.program.group, rank));
    g.cluster.run_for(20ms);
    REQUIRE(g.cluster.hosts[1]->engine->snapshot(g.cluster.clock.now()).groups.empty());

    REQUIRE(g.ask() == g.departures);

    REQUIRE(g.ends == 0);
    REQUIRE(g.cluster.run(10s));
    g.cluster.check();
}

TEST_CASE("[G9] a group that was left and has failed since ends on the nodes that are still in it") {
    Three g;
    REQUIRE(g.cluster.free_group(g.program.group, 1));
    g.cluster.run_for(20ms);
    Call& receives = g.cluster.submit(
        g.program.group, 0,
        [] {
            engine::OpRequest r = request_of({OpKind::recv, Dtype::i32, ReduceOp::sum, 100, 0});
            r.peer = 2;
            return r;
        }(),
        {}, 400);
    REQUIRE(receives.accepted);

    g.program.stop_rank(2);
    g.cluster.end_session(g.program.group, 2);
    g.cluster.run_for(50ms);  // no limit passes: node 1 is asked, and is not in the way

    REQUIRE(g.departures > 0);
    REQUIRE(receives.ended);
    REQUIRE((receives.outcome.error.code == Errc::peer_lost && receives.outcome.error.rank == 2));
    REQUIRE(g.cluster.run(10s));
    g.cluster.check();
}

TEST_CASE("[G9] a cut that is not remembered any more is answered DEPARTED") {
    Three g(1);
    g.program.stop_rank(2);
    g.cluster.end_session(g.program.group, 2);
    g.cluster.run_for(50ms);
    REQUIRE(g.cluster.free_group(g.program.group, 1));
    const SimGroup later = g.cluster.make_group({1});
    REQUIRE(g.cluster.free_group(later, 0));
    g.cluster.run_for(20ms);
    REQUIRE(g.cluster.hosts[1]->engine->snapshot(g.cluster.clock.now()).groups.empty());

    REQUIRE(g.ask() == g.departures);

    REQUIRE(g.ends == 0);
    REQUIRE(g.cluster.run(10s));
    g.cluster.check();
}

TEST_CASE("[G2] a node accepts a cut when every collective below it is over there, not before") {
    Three g;
    g.program.add(sum_of_100);
    g.cluster.block(2, 1, true);  // rank 2's part of collective 1 does not reach node 1
    for (const uint32_t rank : {0u, 1u, 2u}) g.program.post(1, rank);
    g.cluster.run_for(20ms);
    REQUIRE_FALSE(g.program.steps[1].calls[1]->ended);

    // Node 0 coordinates, with a cut behind collective 1.
    const GroupId& id = g.program.group.id;
    receive(g.cluster, 1, 0, wire::GroupFreeze{id, 1, {1, 0}, g.rank_2_lost()});
    receive(g.cluster, 1, 0, wire::GroupCut{id, 1, {1, 0}, {2, g.rank_2_lost()}});
    g.cluster.run_for(100ms);

    REQUIRE((g.reports > 0 && g.accepted == 0));
    REQUIRE_FALSE(g.program.steps[1].calls[1]->ended);

    g.cluster.block(2, 1, false);
    g.cluster.run_for(100ms);

    REQUIRE(g.accepted == 1);
    REQUIRE(g.program.steps[1].calls[1]->ok());
    REQUIRE(g.program.wrong_result(g.program.steps[1], 1) == "");
}

}  // namespace nexar::sim
