// Admission to a group by proof [R19]-[R22]: who does not know the job's secret gets into no group, and who
// sends what it cannot prove ends no more than the attempt.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <new>

#include "cluster.hpp"
#include "support/proofs.hpp"

namespace nexar::rendezvous {
namespace {

const ProofKey secret(Digest{1, 2, 3}), no_secret;
const ProofPort port = test::proof_port();

// A machine and what it sends. Its open is for rank `rank` of a group of two.
struct Node {
    Node(const NodeId& self, std::vector<NodeId> peers, int64_t rank) : id(self), machine(config_of(self)) {
        for (const NodeId& peer : peers) machine.on_peer_up(peer, {}, Time{});
        OpenSpec spec{SessionId{1}, key_of("g"), false, "g", 2, rank, 9, ms(20'000)};
        spec.proof = secret;
        request = *machine.open(spec, Time{});
        read();
    }
    void read() {
        while (const auto action = machine.poll_action()) {
            if (const auto* send = std::get_if<Send>(&*action)) sent.push_back(*send);
            if (const auto* failure = std::get_if<Failed>(&*action)) failed.push_back(failure->error);
            if (const auto* liar = std::get_if<Unproven>(&*action)) unproven.push_back(*liar);
            opened += std::holds_alternative<Opened>(*action);
            disowned += std::holds_alternative<Disowned>(*action);
        }
    }
    void receive(const NodeId& from, const wire::Message& message, int64_t at_ms = 1) {
        machine.on_message(from, message, Time(ms(at_ms)));
        read();
    }
    template <class T>
    std::vector<T> all() const {
        std::vector<T> out;
        for (const Send& s : sent)
            if (const auto* message = std::get_if<T>(&s.message)) out.push_back(*message);
        return out;
    }
    template <class T>
    T last() const {
        const auto found = all<T>();
        REQUIRE_FALSE(found.empty());
        return found.back();
    }
    // This node and another one: the prepare of a group of both, as `low` makes it.
    wire::GroupPrepare prepare_with(const NodeId& other, uint64_t counter = 3) const {
        const auto open = all<wire::GroupOpen>().front();
        wire::GroupPrepare out;
        out.group = {node_id(0).prefix(), 2, counter};
        out.key = key_of("g");
        out.name = "g";
        const wire::GroupMemberRecord own{request, id, 0, 9, {}, 0, open.nonce};
        const wire::GroupMemberRecord theirs{{other, 5}, other, 1, 7, {}, 0, {}};
        out.members = {own, theirs};
        if (open.rank == 1) std::ranges::swap(out.members[0], out.members[1]);
        for (uint32_t rank = 0; rank < 2; ++rank) out.members[rank].rank = rank;
        return out;
    }

    NodeId id;
    Rendezvous machine;
    wire::RequestId request;
    std::vector<Send> sent;
    std::vector<Error> failed;
    std::vector<Unproven> unproven;
    size_t opened = 0, disowned = 0;
};

wire::GroupCommit commit_of(const wire::GroupPrepare& prepare, std::map<NodeId, wire::Tag> tags) {
    wire::GroupCommit out{prepare.group, {}};
    for (const auto& [node, tag] : tags) out.tags.push_back(tag);
    return out;
}
wire::Tag tag(const wire::GroupPrepare& prepare, const NodeId& node, const ProofKey& key = secret) {
    return Proof(port, key, prepare).tag_of(node, {});
}

const NodeId low = node_id(0), middle = node_id(1), high = node_id(2), victim = node_id(3);

}  // namespace

TEST_CASE("a leader without the secret gets into no group, whatever it sends as its tag",
          "[rendezvous][H2][R19]") {
    Node v(victim, {low}, 0);
    const auto prepare = v.prepare_with(low);
    v.receive(low, prepare);
    const auto answer = v.last<wire::GroupPrepared>();
    REQUIRE(answer.error.code == Errc::ok);
    REQUIRE(answer.tag == tag(prepare, victim));
    wire::Tag claimed{};
    SECTION("zeroes") {}
    SECTION("the victim's own") {
        claimed = answer.tag;
    }
    SECTION("made without the secret") {
        claimed = tag(prepare, low, no_secret);
    }
    SECTION("of another attempt with the same opens") {
        claimed = tag(v.prepare_with(low, 4), low);
    }

    v.receive(low, commit_of(prepare, {{low, claimed}, {victim, answer.tag}}));

    CHECK(v.opened == 0);
    CHECK(v.machine.pending() == 1);
    REQUIRE(v.unproven.size() == 1);
    CHECK(v.unproven[0].node == low);
    CHECK_FALSE(v.machine.awaits(prepare.group));
}

TEST_CASE("missing and additional tags prove nothing", "[rendezvous][H2][R19]") {
    Node v(victim, {low, high}, 0);
    const auto prepare = v.prepare_with(high);
    v.receive(low, prepare);
    wire::GroupCommit commit{prepare.group, {}};
    SECTION("none") {}
    SECTION("one too few") {
        commit.tags = {tag(prepare, high)};
    }
    SECTION("one too many") {
        commit.tags = {tag(prepare, high), tag(prepare, victim), {}};
    }
    SECTION("in another order") {
        commit.tags = {tag(prepare, victim), tag(prepare, high)};
    }
    v.receive(low, commit);
    CHECK(v.opened == 0);
    CHECK(v.machine.pending() == 1);
}

TEST_CASE("an open whose attempt was not proved waits on, is listed again, and its error names the liar",
          "[rendezvous][R20]") {
    Node v(victim, {low, high}, 0);
    const auto prepare = v.prepare_with(high);
    v.receive(low, prepare);
    v.receive(low,
              commit_of(prepare, {{high, tag(prepare, high, no_secret)}, {victim, tag(prepare, victim)}}));
    REQUIRE(v.unproven.size() == 1);
    CHECK((v.unproven[0].node == high && v.unproven[0].leader == low));
    // Those who may have committed get to know it.
    CHECK(v.all<wire::GroupRefused>().size() == 2);

    const size_t before = v.all<wire::GroupOpen>().size();
    CHECK(v.machine.wake_at() == Time(ms(1001)));  // not at once: a liar costs little
    v.machine.on_time(Time(ms(1001)));
    v.read();
    CHECK(v.all<wire::GroupOpen>().size() == before + 1);
    for (const int64_t at : {20'000, 20'300}) {
        v.machine.on_time(Time(ms(at)));
        v.read();
    }
    REQUIRE(v.failed.size() == 1);
    CHECK(v.failed[0].code == Errc::group_incomplete);
    INFO(v.failed[0].text);
    CHECK(v.failed[0].text.contains("node " + high.short_hex() +
                                    " did not prove that it has the job's secret"));
    CHECK(v.failed[0].text.contains("node " + low.short_hex() + ", which formed the group"));
}

TEST_CASE("another member's commit counts when it proves all members, and ends nothing when it does not",
          "[rendezvous][R8][R20]") {
    Node v(victim, {low, high}, 0);
    const auto prepare = v.prepare_with(high);
    v.receive(low, prepare);
    v.receive(high, commit_of(prepare, {{high, {}}, {victim, tag(prepare, victim)}}));
    CHECK(v.machine.awaits(prepare.group));
    CHECK(v.unproven.empty());
    v.receive(high, commit_of(prepare, {{high, tag(prepare, high)}, {victim, tag(prepare, victim)}}));
    CHECK(v.opened == 1);
    // A member that asks gets the tags; another node gets nothing.
    v.receive(middle, wire::GroupQuery{prepare.group});
    CHECK(v.all<wire::GroupCommit>().empty());
    v.receive(high, wire::GroupQuery{prepare.group});
    CHECK(v.last<wire::GroupCommit>().tags == std::vector{tag(prepare, high), tag(prepare, victim)});
}

TEST_CASE("two members that were sent different lists prove nothing to each other", "[rendezvous][R19]") {
    Node v(victim, {low, high}, 0);
    const auto prepare = v.prepare_with(high);
    auto theirs = prepare;
    SECTION("another epoch") {
        theirs.epoch += 1;
    }
    SECTION("another process") {
        theirs.members[1].pid += 1;
    }
    SECTION("another open") {
        theirs.members[1].request.number += 1;
    }
    SECTION("other features") {
        theirs.members[1].features = 1;
    }
    SECTION("another incarnation") {
        theirs.members[0].incarnation = {1, 1};
    }
    SECTION("another nonce") {
        theirs.members[1].nonce[15] = 1;
    }
    SECTION("another plan") {
        theirs.plan.segment_bytes += 1;
    }
    SECTION("other time-outs") {
        theirs.timeouts.rpc_ms += 1;
    }
    SECTION("another name") {
        theirs.name = "h";
    }
    v.receive(low, prepare);
    v.receive(low, commit_of(prepare, {{high, tag(theirs, high)}, {victim, tag(prepare, victim)}}));
    CHECK(v.opened == 0);
    CHECK(v.unproven.size() == 1);
}

TEST_CASE("a member refuses a list with another name, time-out, nonce, node or open than its own",
          "[rendezvous][R5]") {
    Node v(victim, {low, high}, 0);
    auto prepare = v.prepare_with(high);
    SECTION("another name") {
        prepare.name = "h";
    }
    SECTION("a nonce that it did not choose") {
        prepare.members[0].nonce = {};
    }
    SECTION("an open of another node") {
        prepare.members[1].request.origin = middle;
    }
    SECTION("another node's open twice") {
        prepare.members.push_back(prepare.members[1]);
    }
    SECTION("another incarnation of itself") {
        prepare.members[0].incarnation = {7, 7};
    }
    v.receive(low, prepare);
    const auto answer = v.last<wire::GroupPrepared>();
    CHECK(answer.error.code == Errc::pending);
    CHECK(answer.tag == wire::Tag{});
    CHECK(v.opened == 0);
}

TEST_CASE("a leader that is a member finds the liar itself: its opens go, and the others meet without it",
          "[rendezvous][H2][R21]") {
    Node l(low, {middle, high}, 0);
    // The liar has got the key, and is first.
    l.receive(high, wire::GroupOpen{{high, 5}, key_of("g"), "g", 2, 1, 7, {}, 1, {}, 0, {}});
    const auto first = l.last<wire::GroupPrepare>();
    l.receive(high, wire::GroupPrepared{first.group, {}, tag(first, high, no_secret)}, 2);
    CHECK(l.opened == 0);
    REQUIRE(l.unproven.size() == 1);
    CHECK(l.unproven[0].node == high);
    CHECK(l.all<wire::GroupCommit>().empty());
    const auto refused = l.all<wire::GroupRefused>();
    CHECK(std::ranges::any_of(refused, [&](const auto& r) { return r.id.number == 5; }));

    l.receive(middle, wire::GroupOpen{{middle, 6}, key_of("g"), "g", 2, 1, 8, {}, 1, {}, 0, {4}}, 300);
    l.machine.on_time(Time(ms(301)));
    l.read();
    const auto second = l.last<wire::GroupPrepare>();
    REQUIRE(second.members[1].node == middle);
    l.receive(middle, wire::GroupPrepared{second.group, {}, tag(second, middle)}, 302);
    CHECK(l.opened == 1);
    CHECK(l.last<wire::GroupCommit>().tags.size() == 2);
}

TEST_CASE("a node proves all its ranks at once, with the nonces of all their opens", "[rendezvous][R19]") {
    Cluster cluster(3, 1);
    for (unsigned i = 0; i < 6; ++i) cluster.open(i % 3, "g", 6, i);
    cluster.run(ms(100));
    for (const auto& opener : cluster.openers()) REQUIRE(opener.group);
    const auto& members = cluster.group(*cluster.openers()[0].group).members;
    for (unsigned i = 0; i < 6; ++i) {
        CHECK(members[i].nonce == members[(i + 3) % 6].nonce);
        CHECK(members[i].nonce != members[(i + 1) % 6].nonce);
        CHECK(members[i].nonce != wire::Nonce{});
    }
}

TEST_CASE("an open from outside with the key of a local group neither enters it nor stands in its way",
          "[rendezvous][H2][R22]") {
    Config config = config_of(low);
    Rendezvous machine(config);
    machine.on_peer_up(high, {}, Time{});
    const auto open_local = [&](int64_t rank) {
        return machine.open({SessionId{1}, key_of("l"), true, "l", 2, rank, 9, ms(60'000)}, Time(ms(2)));
    };
    const wire::GroupOpen lie{{high, 5}, key_of("l"), "l", 2, 1, 7, {}, 1, {}, 0, {}};
    SECTION("before") {
        machine.on_message(high, lie, Time(ms(1)));
        REQUIRE(open_local(0));
        REQUIRE(open_local(1));
    }
    SECTION("between") {
        REQUIRE(open_local(0));
        machine.on_message(high, lie, Time(ms(2)));
        REQUIRE(open_local(1));
    }
    SECTION("with another size, or withdrawn in its name") {
        const auto first = open_local(0);
        wire::GroupOpen other = lie;
        other.size = 3;
        machine.on_message(high, other, Time(ms(2)));
        machine.on_message(high, wire::GroupWithdraw{*first, key_of("l"), false, false}, Time(ms(2)));
        REQUIRE(open_local(1));
    }
    size_t opened = 0;
    while (const auto action = machine.poll_action()) {
        CHECK_FALSE(std::holds_alternative<Failed>(*action));
        if (const auto* group = std::get_if<Opened>(&*action)) {
            ++opened;
            for (const auto& member : group->group.members) CHECK(member.node == low);
        }
        if (const auto* send = std::get_if<Send>(&*action))
            CHECK_FALSE(std::holds_alternative<wire::GroupPrepare>(send->message));
    }
    CHECK(opened == 1);
}

// The memory is this test's own, so that it may be read after the proof has ended.
TEST_CASE("the key of a proof is overwritten when it ends", "[rendezvous][R19]") {
    ProofKey key;
    key.fill(0x5a);
    alignas(Proof) std::byte place[sizeof(Proof)]{};
    const auto has_key = [&] { return !std::ranges::search_n(place, 32, std::byte{0x5a}).empty(); };
    auto* proof = new (place) Proof(port, key, wire::GroupPrepare{});
    CHECK(has_key());
    proof->~Proof();
    CHECK_FALSE(has_key());
}

}  // namespace nexar::rendezvous
