// Failures while children of a group are made: no half child, and one culprit (docs/protocol/children.md).
#include <catch2/catch_test_macros.hpp>

#include "core/child_name.hpp"
#include "engine/children.hpp"
#include "family.hpp"
#include "seeds.hpp"
#include "support/proofs.hpp"

namespace nexar::sim {
namespace {

void deliver(Cluster& cluster, uint32_t to, uint32_t from, const wire::Message& message) {
    cluster.hosts[to]->engine->on_message(cluster.clock.now(), link::PeerIndex(from), message);
    cluster.hosts[to]->after_input();
}

bool runs(const Cluster& cluster, const SimGroup& group, uint32_t rank, uint32_t dead) {
    return rank != dead && !cluster.hosts[group.placement[rank]]->dead;
}

// What became of a split during which `dead` (a rank of the parent) failed, or nobody (no_colour).
struct Aftermath {
    Family& family;
    uint32_t dead;
    size_t ok = 0, failed = 0;

    // Every rank that runs has an end; those that failed have one error.
    void look() {
        const engine::Outcome* first = nullptr;
        for (uint32_t rank = 0; rank < family.parent.size(); ++rank) {
            if (!runs(family.cluster, family.parent, rank, dead)) continue;
            const Call& call = *family.calls[rank];
            REQUIRE(call.ended);
            if (call.ok()) {
                ++ok;
                continue;
            }
            ++failed;
            REQUIRE(call.outcome.child == nullptr);
            if (first == nullptr) first = &call.outcome;
            INFO(first->error.text + " / " + call.outcome.error.text);
            REQUIRE(first->error.node == call.outcome.error.node);
        }
    }
    // A barrier on every child that somebody has: it succeeds where all members have it and run, and ends
    // with an error where not; never does it hang.
    // `healthy`: nothing but the call itself failed, so whole children work.
    void try_children(bool healthy) {
        Cluster& cluster = family.cluster;
        std::map<GroupId, std::vector<std::pair<uint32_t, Call*>>> by_child;
        std::map<GroupId, uint32_t> sizes;
        for (uint32_t rank = 0; rank < family.parent.size(); ++rank) {
            if (!runs(cluster, family.parent, rank, dead) || !family.calls[rank]->ok()) continue;
            const engine::GroupInfo& info = *family.info(rank);
            SimGroup child;
            child.id = info.id;
            child.placement.assign(info.size, family.parent.placement[rank]);
            child.sessions.assign(info.size, family.parent.sessions[rank]);
            sizes[info.id] = info.size;
            by_child[info.id].emplace_back(
                rank, &cluster.submit(child, info.rank.value, request_of({OpKind::barrier}), {}, 0));
        }
        const bool finished = cluster.run(20s);  // below the time-out of the barrier
        INFO(cluster.unfinished());
        INFO(cluster.state());
        REQUIRE(finished);
        for (const auto& [id, members] : by_child) {
            const bool whole = members.size() == sizes[id];
            for (const auto& [rank, call] : members) {
                CAPTURE(rank, whole, call->outcome.error.text);
                if (healthy || !whole) REQUIRE(call->ok() == whole);
                if (!call->ok()) REQUIRE(call->outcome.error.code != Errc::timed_out);
            }
        }
    }
};

}  // namespace

TEST_CASE("[Y3] whatever fails while a split runs, no child is there for some of its members only") {
    size_t all_ok = 0, all_failed = 0, mixed = 0;
    for (const uint64_t seed : seeds(400)) {
        CAPTURE(seed);
        ClusterShape shape = shape_of(4);
        shape.collective_timeout = 25s;
        shape.barrier_timeout = 60s;
        Cluster cluster(seed, shape);
        Random random(seed * 7919);
        std::vector<uint32_t> placement{0, 1, 2, 3};
        for (uint64_t more = random.below(5); more > 0; --more)
            placement.push_back(static_cast<uint32_t>(random.below(4)));
        Family family(cluster, cluster.make_group(placement));
        const uint32_t size = family.parent.size();
        const uint32_t colours = 1 + static_cast<uint32_t>(random.below(3));
        for (uint32_t rank = 0; rank < size; ++rank)
            cluster.clock.after(cluster.clock.some(200us), [&family, rank, colours] {
                if (!family.cluster.hosts[family.parent.placement[rank]]->dead)
                    family.start(OpKind::group_split, rank, {rank % colours, 0});
            });
        // Between the first call and some time after the last child has been handed out.
        const Duration when{static_cast<int64_t>(random.below(1'200'000))};
        const auto victim = static_cast<uint32_t>(random.below(size));
        const uint32_t host = placement[victim];
        uint32_t dead = engine::no_colour;
        switch (random.below(4)) {
            case 0:  // its process crashes
                dead = victim;
                cluster.clock.after(when, [&] { cluster.end_session(family.parent, victim); });
                break;
            case 1:  // its daemon dies
                cluster.clock.after(when, [&, host] { cluster.kill(host, true); });
                break;
            case 2:  // it cancels the call
                cluster.clock.after(when, [&] {
                    if (family.calls[victim] != nullptr && !family.calls[victim]->ended)
                        cluster.cancel(family.parent, victim, *family.calls[victim]);
                });
                break;
            default:  // a channel breaks, and comes back
                cluster.clock.after(when, [&, host] { cluster.break_channel(host, (host + 1) % 4, 1ms); });
        }
        cluster.run_for(2ms);
        const bool finished = cluster.run(40s);
        INFO(cluster.unfinished());
        REQUIRE(finished);
        Aftermath after{family, dead};
        after.look();
        after.try_children(true);
        cluster.check();
        all_ok += after.failed == 0;
        all_failed += after.ok == 0;
        mixed += after.ok > 0 && after.failed > 0;
    }
    REQUIRE(met(all_ok));
    REQUIRE(met(all_failed));
    REQUIRE(met(mixed));
}

TEST_CASE(
    "[Y3] where the nodes behind a split are cut off, the children end with the lost link, and none is left "
    "over") {
    for (const uint64_t seed : seeds(20)) {
        CAPTURE(seed);
        Cluster cluster(seed, shape_of(3));
        Family family(cluster, cluster.make_group({0, 1, 2}));
        family.split([](uint32_t) { return ChildCall{}; });
        cluster.run_for(Duration(static_cast<int64_t>(seed) * 20'000));
        cluster.block(1, 2, true);
        cluster.block(2, 1, true);
        REQUIRE(cluster.run(40s));
        Aftermath after{family, engine::no_colour};
        after.look();
        after.try_children(false);
    }
}

TEST_CASE("[Y5] what a node sends about a child that is not made here yet is kept, and then applies") {
    Cluster cluster(3, shape_of(4));
    Family family(cluster, cluster.make_group({0, 1, 2}));
    const auto port = nexar::test::proof_port();
    engine::GroupFacts parent;
    parent.id = family.parent.id;
    parent.epoch = GroupEpoch(1);
    parent.secret = engine::secret_of(parent.id, rendezvous::ProofKey{}, port);
    const engine::Family ids = engine::family_of(parent, port, 0);
    const GroupId child{ids.creator, ids.incarnation, 5};
    const wire::RankGone gone{child, 1, 0, 0, true, "it crashed early", false};

    // Before node 1 takes part the child is a group that never was.
    deliver(cluster, 1, 0, gone);
    cluster.block(2, 1, true);  // so node 1 does not have all rows
    family.split([](uint32_t) { return ChildCall{5, 0}; });
    cluster.run_for(20ms);
    REQUIRE_FALSE(family.calls[1]->ended);
    wire::RankGone later = gone;
    later.rank = 2;
    deliver(cluster, 1, 2, later);  // in time
    deliver(cluster, 1, 3, gone);   // node 3 is not in the parent
    cluster.block(2, 1, false);
    cluster.run_for(50ms);

    for (const Call* call : family.calls) REQUIRE(call->ok());
    REQUIRE(family.info(1)->id == child);
    const engine::Snapshot now = cluster.hosts[1]->engine->snapshot(cluster.clock.now());
    const auto made = std::ranges::find(now.groups, child, &engine::GroupSnapshot::id);
    REQUIRE(made != now.groups.end());
    REQUIRE(made->failed.code == Errc::peer_lost);
    REQUIRE(made->failed.rank == 2);
    REQUIRE_FALSE(made->ranks[0].gone);
}

TEST_CASE("[Y6] a rank that crashes in the moment of a split is a crashed rank of the child") {
    Cluster cluster(4, shape_of(2));
    Family family(cluster, cluster.make_group({0, 0, 1}));
    family.split([](uint32_t rank) { return ChildCall{rank == 1 ? 9u : 3u, 0}; });
    cluster.end_session(family.parent, 0);  // it has handed its part over
    cluster.run(10s);
    REQUIRE(family.calls[1]->ok());
    REQUIRE(family.calls[2]->ok());
    const SimGroup alone = family.child_of(1);
    REQUIRE(run_everything(cluster, alone) == "");
    SimGroup with_dead{family.info(2)->id, {0, 1}, {family.parent.sessions[0], family.parent.sessions[2]}};
    const Call& barrier = cluster.submit(with_dead, 1, request_of({OpKind::barrier}), {}, 0);
    REQUIRE(cluster.run(10s));
    REQUIRE(barrier.outcome.error.code == Errc::peer_lost);
    REQUIRE(barrier.outcome.error.rank == 0);
}

TEST_CASE("[Y8] ids of children are of the parent's secret, its epoch, the collective and the colour") {
    const auto port = nexar::test::proof_port();
    engine::GroupFacts parent;
    parent.id = {1, 2, 3};
    parent.epoch = GroupEpoch(1);
    parent.secret = engine::secret_of(parent.id, rendezvous::ProofKey{}, port);
    const auto base = engine::family_of(parent, port, 7);
    REQUIRE(engine::family_of(parent, port, 7) == base);
    REQUIRE(engine::family_of(parent, port, 8) != base);
    engine::GroupFacts other = parent;
    other.epoch = GroupEpoch(2);
    REQUIRE(engine::family_of(other, port, 7) != base);
    other = parent;
    other.secret[31] ^= 1;
    REQUIRE(engine::family_of(other, port, 7) != base);
    // Without a proof, of a group on one node, nobody else can compute it.
    REQUIRE(engine::secret_of(parent.id, {}, port) != engine::secret_of(parent.id, {}, port));
}

namespace {

// Four ranks on two nodes.
engine::GroupFacts some_parent() {
    engine::GroupFacts out;
    out.id = {1, 2, 3};
    out.epoch = GroupEpoch(1);
    out.name = "p";
    std::vector<wire::GroupMemberRecord> members;
    for (uint32_t rank = 0; rank < 4; ++rank)
        members.push_back({{}, NodeId{{static_cast<uint8_t>(1 + rank % 2)}}, rank, 10 + rank, {}, ~0u, {}});
    out.members = std::move(members);
    out.layout = collectives::Layout(std::vector<uint32_t>{0, 1, 0, 1});
    out.nodes = {NodeId{{1}}, NodeId{{2}}};
    out.hosts = {"a", "b"};
    out.peers = {link::PeerIndex(0), link::PeerIndex(7)};
    out.self = collectives::NodeIndex(0);
    return out;
}

}  // namespace

TEST_CASE("[Y2] nodes that were given other rows have other hashes, which are in every header") {
    const engine::GroupFacts parent = some_parent();
    const auto port = nexar::test::proof_port();
    const auto made = [&](std::vector<uint32_t> ranks, engine::Timeouts timeouts = {}) {
        return engine::facts_of(parent, port, 4, {9, std::move(ranks), timeouts});
    };
    const engine::GroupFacts child = made({3, 0, 1});
    REQUIRE(child.id == made({0, 1}).id);
    REQUIRE(child.table_hash != made({0, 1}).table_hash);
    REQUIRE(child.table_hash != made({3, 1, 0}).table_hash);
    REQUIRE(child.table_hash != made({3, 0, 1}, {Duration(5)}).table_hash);
    REQUIRE(child.table_hash == made({3, 0, 1}).table_hash);
    // Node 1 has the lowest rank of the child.
    REQUIRE(child.nodes == std::vector<NodeId>{NodeId{{2}}, NodeId{{1}}});
    REQUIRE(child.peers[0] == link::PeerIndex(7));
    REQUIRE(child.self == collectives::NodeIndex(1));
    REQUIRE(child.members[0].pid == 13);
    REQUIRE(child.members[0].rank == 0);
    REQUIRE(child.name == "p/4.9");
}

TEST_CASE(
    "[Y4] whatever another node writes into a row, the outcome is children or an error that names the rank") {
    const engine::GroupFacts parent = some_parent();
    const auto outcome = [&](auto change) {
        std::vector<engine::ChildRow> rows(4);
        change(rows[2]);
        const auto children = engine::children_of(parent, OpKind::group_split, rows);
        if (children) return std::string("made ") + std::to_string(children->size());
        REQUIRE(children.error().rank == 2);
        return std::string(name_of(children.error().code)) + " " + children.error().text;
    };
    using Row = engine::ChildRow;
    REQUIRE(outcome([](Row&) {}) == "made 1");
    REQUIRE(outcome([](Row& r) { r.colour = 7, r.zero[1] = 3; }) == "made 2");  // a later version's words
    REQUIRE(outcome([](Row& r) { r.key = INT64_MIN; }) == "made 1");
    REQUIRE(outcome([](Row& r) {
                r.refusal = 1, r.limit = 256;
            }).ends_with("has 256 groups, the most that one may have; free some"));
    REQUIRE(outcome([](Row& r) { r.refusal = 77; }).starts_with("TABLE_FULL rank 2"));
    REQUIRE(outcome([](Row& r) { r.collective_ms = -2; }).starts_with("PROTOCOL_ERROR rank 2"));
    REQUIRE(outcome([](Row& r) { r.barrier_ms = INT64_MAX; }).starts_with("PROTOCOL_ERROR rank 2"));
    REQUIRE(outcome([](Row& r) { r.rpc_ms = INT64_MIN; }).starts_with("PROTOCOL_ERROR rank 2"));
}

TEST_CASE("a child's name has the parent's as far as there is room, in whole characters") {
    REQUIRE(child_name("train", 7, 2) == "train/7.2");
    REQUIRE(child_name("train", 7, {}) == "train/7");
    const std::string longest(128, 'x');
    REQUIRE(child_name(longest, 7, 2) == std::string(123, 'x') + "~/7.2");
    std::string umlauts;
    while (umlauts.size() < 128) umlauts += "\xc3\xa4";
    REQUIRE(child_name(umlauts, 1, {}) == umlauts.substr(0, 124) + "~/1");
    REQUIRE(child_name(umlauts, 12, {}) == umlauts.substr(0, 124) + "~/12");
}

}  // namespace nexar::sim
