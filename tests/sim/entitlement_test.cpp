// Who may say what (docs/protocol/entitlement.md): a node that has no right to a message sends it, and
// nothing happens. lies_test.cpp does the same at random.
#include <catch2/catch_test_macros.hpp>
#include <vector>

#include "program.hpp"

namespace nexar::sim {
namespace {

constexpr OpDescriptor sum{OpKind::all_reduce, Dtype::i32, ReduceOp::sum, 500, 0};
constexpr uint32_t outsider = 3, ranks = 3;

void deliver(Cluster& cluster, uint32_t to, uint32_t from, const wire::Message& message) {
    cluster.hosts[to]->engine->on_message(cluster.clock.now(), link::PeerIndex(from), message);
    cluster.hosts[to]->after_input();
}

engine::OpRequest to_rank(OpKind kind, uint32_t peer) {
    engine::OpRequest out = request_of({kind, Dtype::i32, ReduceOp::sum, 500, 0});
    out.peer = peer;
    out.any_tag = kind == OpKind::recv;
    return out;
}

// A group of ranks 0 to 2 on the hosts of these numbers. A collective waits for rank 2, a receive of rank 2
// for rank 0, a send of rank 1 for rank 0. Host 3 is in no group.
struct Scene {
    Scene() : cluster(1, shape()), program(cluster, cluster.make_group({0, 1, 2})) {
        program.add(sum);
        for (const uint32_t rank : {0u, 1u}) program.post(0, rank);
        received = &cluster.submit(program.group, 2, to_rank(OpKind::recv, 0), {}, 2000);
        sent = &cluster.submit(program.group, 1, to_rank(OpKind::send, 0),
                               Reference::input(3, 0, 500, Dtype::i32), 0);
        cluster.run_for(10ms);
        cluster.hosts[outsider]->table = [this](link::PeerIndex, const wire::Message& message) {
            answers += std::holds_alternative<wire::ArrivalReply>(message) ||
                       std::holds_alternative<wire::GroupCommit>(message) ||
                       std::holds_alternative<wire::GroupReport>(message) ||
                       std::holds_alternative<wire::GroupEnd>(message);
            return false;
        };
    }
    static ClusterShape shape() {
        ClusterShape out;
        out.nodes = 4;
        return out;
    }
    void say(uint32_t from, const wire::Message& message) {
        for (uint32_t to = 0; to < ranks; ++to)
            if (to != from) deliver(cluster, to, from, message);
        cluster.run_for(1500ms);  // longer than what is believed after a while [F12]
    }
    void require_unharmed() {
        program.post(0, 2);
        cluster.submit(program.group, 0, to_rank(OpKind::send, 2), Reference::input(4, 0, 500, Dtype::i32),
                       0);
        const Call& other = cluster.submit(program.group, 0, to_rank(OpKind::recv, 1), {}, 2000);
        program.add(sum);
        for (uint32_t rank = 0; rank < ranks; ++rank) program.post(1, rank);
        const bool finished = cluster.run(20s);
        INFO(cluster.unfinished());
        REQUIRE(finished);
        cluster.check();
        REQUIRE(program.wrong() == "");
        REQUIRE((received->ok() && sent->ok() && other.ok()));
        REQUIRE(received->out_at_end == Reference::input(4, 0, 500, Dtype::i32));
        REQUIRE(other.out_at_end == Reference::input(3, 0, 500, Dtype::i32));
        REQUIRE(answers == 0);
    }

    Cluster cluster;
    Program program;
    Call *received = nullptr, *sent = nullptr;
    size_t answers = 0;
};

// Each is what a member might send about this group.
std::vector<wire::Message> messages_about(const Cluster& cluster, const GroupId& group) {
    const NodeId& victim = cluster.hosts[1]->id;
    const Error lost{Errc::peer_lost, "made up", 1, -1, victim.hex()};
    const wire::FailedSet failed{lost, {1}};
    const wire::Ballot ballot{9, 2};
    const wire::Cut cut{0, failed};
    const uint64_t number = link::OpKey::message_bit | 1;
    return {wire::RankGone{group, 1, 1, 0, true, "made up", false},
            wire::SuspicionReport{group, 1, cluster.hosts[2]->id, victim, "made up", true},
            wire::SuspicionReport{group, 1, cluster.hosts[outsider]->id, victim, "made up", true},
            wire::OpAbort{group, 1, 0, {Errc::aborted, "made up", 1, -1, {}}},
            wire::OpAnnounce{group, 1, 0, 1, 5, 0, 501, 0, 2, 0, 0},
            wire::OpAnnounce{group, 1, 0, 1, 5, 0, 500, 0, 2, 77, 0},
            wire::ArrivalQuery{group, 1, 0, 7},
            wire::ArrivalReply{group, 1, {{2, 1, true}}},
            wire::MessageOffer{group, 1, 0, 2, 0, 2000, 5, number, false},
            wire::MessageWithdraw{group, number},
            wire::MessageRefused{group, number, lost},
            wire::MessageCredit{group, 1, 1, UINT64_MAX},
            wire::GroupFailed{group, 1, ballot, failed},
            wire::GroupFreeze{group, 1, ballot, failed},
            wire::GroupReport{group, 1, ballot, failed, 0, 0, {}},
            wire::GroupCut{group, 1, ballot, cut},
            wire::GroupAccepted{group, 1, ballot, UINT64_MAX},
            wire::GroupEnd{group, 1, cut},
            wire::GroupDeparted{group, 1},
            wire::GroupCommit{group, {}},
            wire::GroupRefused{{}, group, lost},
            wire::GroupRefused{{victim, 0}, group, lost},
            wire::GroupQuery{group},
            wire::GroupPrepared{group, {Errc::pending, "made up", -1, -1, {}}, {}}};
}

// The leader, two nodes that open a group, and one that lies about the first one's open.
struct Opening {
    Opening() : cluster(1, Scene::shape()) {
        for (uint32_t i = 1; i < 4; ++i)
            if (cluster.hosts[i]->id < cluster.hosts[leader]->id) leader = i;
        cluster.hosts[leader]->table = [this](link::PeerIndex, const wire::Message& message) {
            if (const auto* open = std::get_if<wire::GroupOpen>(&message)) asked.push_back(*open);
            return false;
        };
        a = (leader + 1) % 4, b = (leader + 2) % 4, liar = (leader + 3) % 4;
        first = cluster.open(a, "job", 2, 0);
        cluster.run_for(10ms);
        REQUIRE(asked.size() == 1);
    }
    // Led by the liar: a group of the open and itself.
    wire::GroupPrepare prepare() const {
        const Host &host = *cluster.hosts[a], &other = *cluster.hosts[liar];
        wire::GroupPrepare out;
        out.group = {other.id.prefix(), other.incarnation.nonce, 3};
        out.key = asked[0].key;
        out.name = "job";
        out.plan = cluster.shape.plan;
        out.timeouts = {1000, 1000, 1000};
        out.members = {{asked[0].id, host.id, 0, 1, host.incarnation, 0, asked[0].nonce},
                       {{other.id, 1}, other.id, 1, 1, other.incarnation, 0, {}}};
        return out;
    }
    static constexpr int lies = 8;
    void lie(int which) {
        const wire::GroupOpen& open = asked[0];
        wire::GroupOpen other = open;
        if (which == 0) {
            other.incarnation = {UINT64_MAX, 1};
            other.id.number = uint64_t{1} << 60;
        }
        if (which == 1) other.size = 3;
        if (which < 2) other.key = {};
        if (which < 3) deliver(cluster, leader, liar, other);
        if (which == 2) deliver(cluster, leader, liar, wire::GroupWithdraw{open.id, open.key, false, false});
        if (which == 3)
            deliver(cluster, a, liar,
                    wire::GroupRefused{open.id, {}, {Errc::rank_clash, "made up", -1, -1, {}}});
        if (which == 4) deliver(cluster, a, liar, wire::GroupUnlisted{open.id});
        if (which == 5) deliver(cluster, a, liar, wire::GroupStatus{open.id, 2, {}});
        if (which == 6) deliver(cluster, leader, liar, wire::GroupStatusRequest{open.id, {}});
        if (which != 7) return;
        deliver(cluster, a, liar, prepare());
        deliver(cluster, a, liar, wire::GroupCommit{prepare().group, {{}, {}}});
    }

    Cluster cluster;
    std::vector<wire::GroupOpen> asked;  // what the leader has received
    uint32_t leader = 0, a = 0, b = 0, liar = 0;
    Cluster::Open first;
};

}  // namespace

TEST_CASE("a node that is not in a group says nothing about it that counts", "[H6]") {
    const Scene first;
    const size_t kinds = messages_about(first.cluster, first.program.group.id).size();
    for (size_t kind = 0; kind < kinds; ++kind) {
        CAPTURE(kind);
        Scene scene;
        scene.say(outsider, messages_about(scene.cluster, scene.program.group.id)[kind]);
        scene.require_unharmed();
    }
}

TEST_CASE("a node of a group says the end of its own ranks only", "[H6][F10]") {
    for (const bool crashed : {true, false}) {
        CAPTURE(crashed);
        Scene scene;
        const GroupId& group = scene.program.group.id;
        deliver(scene.cluster, 0, 1, wire::RankGone{group, 1, 2, 0, crashed, "made up", !crashed});
        deliver(scene.cluster, 2, 1, wire::RankGone{group, 1, 0, 0, crashed, "made up", !crashed});
        scene.cluster.run_for(100ms);
        scene.require_unharmed();
    }
}

TEST_CASE("what a node says of another node's opens and attempts opens, ends and delays nothing",
          "[H6][R17]") {
    for (int which = 0; which < Opening::lies; ++which) {
        CAPTURE(which);
        Opening opening;
        opening.lie(which);
        const auto second = opening.cluster.open(opening.b, "job", 2, 1);
        opening.cluster.run_for(100ms);
        for (const auto& open : {opening.first, second}) {
            const auto* answer = opening.cluster.answer(open);
            REQUIRE(answer != nullptr);
            REQUIRE(answer->has_value());
        }
    }
}

}  // namespace nexar::sim
