// Groups from a list of ranks: nexar_group_create over production engines (docs/protocol/children.md).
#include <catch2/catch_test_macros.hpp>

#include "creation.hpp"
#include "engine/children.hpp"
#include "engine/creating.hpp"
#include "seeds.hpp"
#include "support/proofs.hpp"

namespace nexar::sim {
namespace {

using Ranks = Creation::Ranks;

void expect_made(Creation& creation) {
    creation.cluster.run_for(200ms);
    for (const uint32_t rank : creation.ranks) {
        CAPTURE(rank);
        REQUIRE(creation.answer(rank) != nullptr);
        if (!creation.ok(rank)) INFO(creation.error(rank).text);
        REQUIRE(creation.ok(rank));
    }
}

size_t groups_used(Cluster& cluster, const SimGroup& parent, uint32_t host) {
    return cluster.hosts[host]->tenants.of("", 1000 + parent.id.counter % 3)->used(Resource::groups);
}

}  // namespace

TEST_CASE("[Y9] a group from a list has its ranks in the order of the list, and nobody else takes part") {
    struct Case {
        std::vector<uint32_t> placement;
        Ranks list;
    };
    const Case cases[] = {{{0}, {0}},
                          {{0, 0, 0}, {2, 0}},
                          {{0, 1, 2, 0, 1, 2}, {5, 0, 3}},
                          {{0, 1, 2, 0, 1, 2}, {1, 4}},  // all on one node of several
                          {{2, 1, 0, 1}, {3, 2, 1, 0}},
                          {{0, 1, 1, 2, 3, 4, 0}, {6, 3, 2, 5}}};
    for (const Case& one : cases) {
        Cluster cluster(one.placement.size(), shape_of(5));
        const SimGroup parent = cluster.make_group(one.placement);
        Creation creation(cluster, parent, one.list, 7);
        // The others sleep, or are inside a barrier that waits for the listed ones.
        Post post(cluster, parent);
        std::vector<Call*> barrier(parent.size());
        for (uint32_t rank = 0; rank < parent.size(); ++rank)
            if (std::ranges::find(one.list, rank) == one.list.end() && rank % 2 == 1)
                barrier[rank] = &cluster.submit(parent, rank, request_of({OpKind::barrier}), {}, 0);
        creation.start_all();
        expect_made(creation);
        for (uint32_t at = 0; at < one.list.size(); ++at) {
            const engine::GroupInfo& info = **creation.answer(one.list[at]);
            REQUIRE(info.rank.value == at);
            REQUIRE(info.size == one.list.size());
            REQUIRE(info.epoch == GroupEpoch(1));
            REQUIRE(info.root_ranks == one.list);
            REQUIRE(info.members[at].pid == 1000 + one.list[at]);
            REQUIRE(info.parent == parent.id);
            REQUIRE(info.root == parent.id);
            REQUIRE(info.name == info.parent_name + "/t7");
            REQUIRE(info.timeouts.collective == cluster.shape.collective_timeout);
        }
        for (uint32_t rank = 0; rank < parent.size(); ++rank)
            if (barrier[rank] == nullptr)
                barrier[rank] = &cluster.submit(parent, rank, request_of({OpKind::barrier}), {}, 0);
        expect_end(cluster);
        for (const Call* call : barrier) REQUIRE(call->ok());
        REQUIRE(run_everything(cluster, creation.made()) == "");
        REQUIRE(run_everything(cluster, parent) == "");
        cluster.check();
    }
}

TEST_CASE("[Y9] creates with other tags, other lists, and one after the other do not meet") {
    Cluster cluster(3, shape_of(3));
    const SimGroup parent = cluster.make_group({0, 1, 2, 0, 1, 2});
    Creation one(cluster, parent, {0, 1, 2}, 1), two(cluster, parent, {0, 1, 2}, 2);
    Creation apart(cluster, parent, {4, 3}, 1), other(cluster, parent, {2, 3, 5}, 3);
    // In another order on each rank.
    REQUIRE(one.start(0));
    REQUIRE(two.start(0));
    REQUIRE(two.start(1));
    REQUIRE(one.start(1));
    REQUIRE(other.start(2));
    REQUIRE(two.start(2));
    REQUIRE(one.start(2));
    apart.start_all();
    REQUIRE(other.start(3));
    REQUIRE(other.start(5));
    for (Creation* creation : {&one, &two, &apart, &other}) expect_made(*creation);
    std::set<GroupId> ids;
    for (Creation* creation : {&one, &two, &apart, &other}) {
        REQUIRE(ids.insert(creation->made().id).second);
        REQUIRE(run_everything(cluster, creation->made()) == "");
    }
    // Again with the same list and tag, while the first one is there; rank 0 is ahead of the others.
    Creation again(cluster, parent, {0, 1, 2}, 1);
    REQUIRE(again.start(0));
    cluster.run_for(100ms);
    REQUIRE(again.answer(0) == nullptr);
    REQUIRE(again.start(1));
    REQUIRE(again.start(2));
    expect_made(again);
    REQUIRE(again.made().id != one.made().id);
    REQUIRE(run_everything(cluster, again.made()) == "");
    REQUIRE(run_everything(cluster, one.made()) == "");
    cluster.check();
}

TEST_CASE("[Y9] a created group creates and splits, and outlives its parent") {
    Cluster cluster(4, shape_of(3));
    const SimGroup parent = cluster.make_group({0, 1, 2, 0, 1, 2});
    Creation first(cluster, parent, {5, 4, 3, 2}, 0);
    first.start_all();
    expect_made(first);
    for (uint32_t rank = 0; rank < 6; ++rank) REQUIRE(cluster.free_group(parent, rank));
    expect_end(cluster);
    Cluster& c = cluster;
    SimGroup middle = first.made();
    Creation nested(c, middle, {3, 1}, 9);
    for (const uint32_t rank : nested.ranks)
        REQUIRE(nested.start(rank, Duration{-1}, 1000 + first.ranks[rank]));
    expect_made(nested);
    const engine::GroupInfo& info = **nested.answer(1);
    REQUIRE(info.root == parent.id);
    REQUIRE(info.parent == middle.id);
    REQUIRE(info.root_ranks == std::vector<uint32_t>{2, 4});
    REQUIRE(run_everything(c, nested.made()) == "");
    Family family(c, middle);
    family.split([](uint32_t rank) { return ChildCall{rank % 2, 0}; });
    expect_end(c);
    REQUIRE(family.all_ok());
    REQUIRE(run_everything(c, family.child_of(0)) == "");
    c.check();
}

TEST_CASE("[Y9] a list that cannot be is refused at once, and the text says what is wrong with it") {
    Cluster cluster(5, shape_of(2));
    const SimGroup parent = cluster.make_group({0, 1, 0, 1});
    const auto text = [&](const Ranks& list, uint32_t rank = 0) {
        const Error error = refused(create(cluster, parent, rank, {list}));
        REQUIRE(error.code == Errc::invalid_argument);
        return error.text;
    };
    REQUIRE(text({}) == "the list has 0 ranks; allowed: 1 to 4, the size of the parent");
    REQUIRE(text({0, 1, 2, 3, 0}) == "the list has 5 ranks; allowed: 1 to 4, the size of the parent");
    REQUIRE(text({0, 4}) == "ranks[1] is 4; allowed: 0 to 3, the parent's ranks");
    REQUIRE(text({0, 1, 0}) == "rank 0 is in the list twice, as ranks[0] and ranks[2]");
    REQUIRE(text({1, 2}) ==
            "rank 0, which calls, is not in the list (1, 2): only listed ranks call nexar_group_create");
    // Nothing was charged or kept, and the right one works.
    REQUIRE(groups_used(cluster, parent, 0) == 0);
    Creation creation(cluster, parent, {0, 1});
    REQUIRE(creation.start(0));
    const Error twice = refused(create(cluster, parent, 0, {{0, 1}}));
    REQUIRE(twice.code == Errc::bad_state);
    REQUIRE(twice.text == "rank 0 creates a group with tag 0 already: wait for it, or give each its own tag");
    REQUIRE(creation.start(1));
    expect_made(creation);
}

TEST_CASE("[Y13] lists that differ, each with both ranks, are a mismatch that names both") {
    for (const bool same_node : {false, true}) {
        CAPTURE(same_node);
        Cluster cluster(6, shape_of(3));
        const SimGroup parent =
            cluster.make_group(same_node ? std::vector<uint32_t>{0, 0, 1} : std::vector<uint32_t>{0, 1, 2});
        const Cluster::Open a = create(cluster, parent, 0, {{0, 1}});
        REQUIRE(a.accepted);
        const Cluster::Open b = create(cluster, parent, 1, {{1, 0}});
        cluster.run_for(3s);
        const auto error_of = [&](const Cluster::Open& call) {
            if (!call.accepted) return call.accepted.error();
            REQUIRE(cluster.answer(call) != nullptr);
            REQUIRE_FALSE(cluster.answer(call)->has_value());
            return cluster.answer(call)->error();
        };
        for (const Cluster::Open* call : {&a, &b}) {
            const Error error = error_of(*call);
            REQUIRE(error.code == Errc::mismatch);
            REQUIRE(error.rank == 1);
            REQUIRE(error.other_rank == 0);
            REQUIRE(error.text.find("creates a group of the ranks 0, 1 with tag 0, rank 1") !=
                    std::string::npos);
            REQUIRE(error.text.find("one of the ranks 1, 0: each list has both") != std::string::npos);
        }
        // Both are usable: the right lists meet.
        Creation right(cluster, parent, {1, 0});
        right.start_all();
        expect_made(right);
        REQUIRE(run_everything(cluster, right.made()) == "");
        for (uint32_t host = 0; host < 3; ++host)
            REQUIRE(groups_used(cluster, parent, host) ==
                    static_cast<size_t>(std::ranges::count(right.made().placement, host)));
    }
}

TEST_CASE("[Y13] one after the other with lists that share ranks is no mismatch, however long one waits") {
    Cluster cluster(7, shape_of(3));
    const SimGroup parent = cluster.make_group({0, 1, 2});
    Creation pair(cluster, parent, {0, 1}), all(cluster, parent, {0, 1, 2});
    REQUIRE(all.start(2));
    REQUIRE(pair.start(0));
    cluster.run_for(6s);  // several times as long as it takes until the nodes compare
    REQUIRE(pair.start(1));
    expect_made(pair);
    REQUIRE(all.start(0));
    REQUIRE(all.start(1));
    expect_made(all);
}

TEST_CASE("[Y12] a create ends at its deadline with the ranks that have not called") {
    Cluster cluster(8, shape_of(3));
    const SimGroup parent = cluster.make_group({0, 1, 2, 1});
    Creation creation(cluster, parent, {3, 0, 2});
    REQUIRE(creation.start(3, 5s));
    REQUIRE(creation.start(0, 5s));
    cluster.run_for(4s);
    REQUIRE(creation.answer(3) == nullptr);
    cluster.run_for(2s);
    int firsts = 0;
    for (const uint32_t rank : {3u, 0u}) {
        const Error& error = creation.error(rank);
        INFO(error.text);
        REQUIRE(error.code == Errc::group_incomplete);
        REQUIRE(error.rank == 2);
        REQUIRE(error.node == cluster.hosts[2]->id.hex());
        REQUIRE(error.text.starts_with("rank 2 of g"));
        REQUIRE(error.text.find("has not called: group \"g") != std::string::npos);
        // [Y20] The parent's numbers throughout.
        REQUIRE(error.text.find("of 3 (ranks are the parent's) after 5 s: missing: rank 2.") !=
                std::string::npos);
        // [R11] The deadlines fall together: the later report counts the earlier's rank as one that gave up.
        const bool is_first = error.text.find("2 came: rank 3 (pid 1003 ") != std::string::npos;
        firsts += is_first;
        const std::string other = rank == 3 ? "rank 0 (pid 1000 " : "rank 3 (pid 1003 ";
        REQUIRE(error.text.find((is_first ? "" : "1 gave up before: ") + other) != std::string::npos);
        REQUIRE(error.text.find("came: rank ") != std::string::npos);
        REQUIRE(error.text.find("Did they all call nexar_group_create") != std::string::npos);
        REQUIRE(error.text.find("job_secret") == std::string::npos);
    }
    REQUIRE(firsts == 1);
    for (uint32_t host = 0; host < 3; ++host) REQUIRE(groups_used(cluster, parent, host) == 0);
    // The late one does not find those that have given up; the next ones do.
    REQUIRE(creation.start(2));
    cluster.run_for(1s);
    REQUIRE(creation.answer(2) == nullptr);
    REQUIRE(creation.start(3));
    REQUIRE(creation.start(0));
    expect_made(creation);
}

TEST_CASE("[Y12] a cancel is this rank's own: the others wait, and it may call again") {
    Cluster cluster(9, shape_of(2));
    const SimGroup parent = cluster.make_group({0, 1, 0});
    Creation creation(cluster, parent, {0, 1, 2});
    REQUIRE(creation.start(0));
    REQUIRE(creation.start(1));
    cluster.run_for(100ms);
    cancel(cluster, creation.calls[0]);
    cluster.run_for(100ms);
    REQUIRE(creation.error(0).code == Errc::cancelled);
    REQUIRE(creation.error(0).text == "the create was cancelled");
    REQUIRE(creation.answer(1) == nullptr);
    REQUIRE(groups_used(cluster, parent, 0) == 0);
    REQUIRE(creation.start(2));
    cluster.run_for(100ms);
    REQUIRE(creation.answer(2) == nullptr);
    REQUIRE(creation.start(0));
    expect_made(creation);
    REQUIRE(run_everything(cluster, creation.made()) == "");
}

TEST_CASE("[Y12] a listed rank that leaves the parent, and the parent's end, end what waits for it") {
    enum class How { freed, closed, crashed, aborted, node, unlisted };
    for (const How how : {How::freed, How::closed, How::crashed, How::aborted, How::node, How::unlisted}) {
        CAPTURE(static_cast<int>(how));
        Cluster cluster(10, shape_of(3));
        const SimGroup parent = cluster.make_group({0, 1, 2, 0});
        Creation creation(cluster, parent, {1, 2, 0}), apart(cluster, parent, {0, 3}, 4);
        REQUIRE(creation.start(1));
        REQUIRE(creation.start(2));
        REQUIRE(apart.start(0));
        cluster.run_for(50ms);
        const uint32_t gone = how == How::unlisted ? 3 : 2;
        switch (how) {
            case How::freed:
                REQUIRE(cluster.free_group(parent, gone));
                break;
            case How::closed:
                cluster.end_session(parent, gone, false);
                break;
            case How::crashed:
            case How::unlisted:
                cluster.end_session(parent, gone, true);
                break;
            case How::aborted:
                REQUIRE(cluster.abort_group(parent, gone, "enough"));
                break;
            case How::node:
                cluster.kill(2, true);
                break;
        }
        cluster.run_for(2s);
        REQUIRE(creation.answer(1) != nullptr);
        const Error& error = creation.error(1);
        INFO(error.text);
        REQUIRE(error.code == (how == How::freed ? Errc::aborted : Errc::peer_lost));
        REQUIRE(error.rank == gone);
        if (how == How::freed || how == How::aborted) REQUIRE(creation.error(2).code == Errc::closed);
        // Who only left ends nothing that did not list it; a crash ends the parent, and all that waits there.
        const bool over = how != How::freed && how != How::closed;
        REQUIRE((apart.answer(0) != nullptr) == over);
        if (over) REQUIRE(apart.error(0).rank == gone);
        // Later ones get it at once.
        const Error late = refused(create(cluster, parent, 1, {{1, 2, 0}}));
        INFO(late.text);
        REQUIRE(late.code == Errc::peer_lost);
        REQUIRE(late.rank == gone);
        REQUIRE(groups_used(cluster, parent, 1) == 0);
        if (!over) {
            REQUIRE(apart.start(3));
            expect_made(apart);
        }
    }
}

TEST_CASE("[Y12] who frees the parent as soon as it has the group takes it away from nobody") {
    for (const uint64_t seed : seeds(200)) {
        CAPTURE(seed);
        Cluster cluster(seed, shape_of(4));
        const SimGroup parent = cluster.make_group({0, 1, 2, 3, 0});
        Creation creation(cluster, parent, {1, 2, 3});
        for (const uint32_t rank : creation.ranks)
            cluster.clock.after(cluster.clock.some(200us),
                                [&creation, rank] { REQUIRE(creation.start(rank)); });
        std::set<uint32_t> freed;
        for (int step = 0; step < 3000 && freed.size() < 3; ++step) {
            cluster.run_for(10us);
            for (const uint32_t rank : creation.ranks)
                if (creation.ok(rank) && freed.insert(rank).second) REQUIRE(cluster.free_group(parent, rank));
        }
        expect_made(creation);
        REQUIRE(run_everything(cluster, creation.made()) == "");
        cluster.check();
    }
}

TEST_CASE("[Y13] [Y18] a node speaks of its own ranks only, and ends only calls that it names") {
    Cluster cluster(14, shape_of(3));
    const SimGroup parent = cluster.make_group({0, 1, 2});
    uint64_t number = 0;
    cluster.hosts[1]->table = [&](link::PeerIndex, const wire::Message& message) {
        if (const auto* query = std::get_if<wire::CreateQuery>(&message))
            if (query->tag == 0) number = query->callers.at(0).number;
        return false;
    };
    Creation creation(cluster, parent, {0, 1}), all(cluster, parent, {0, 1, 2}, 5);
    REQUIRE(creation.start(0));
    REQUIRE(all.start(0));
    cluster.run_for(1100ms);
    REQUIRE(number != 0);
    const auto deliver = [&](uint32_t from, auto message) {
        message.group = parent.id;
        cluster.hosts[0]->engine->on_message(cluster.clock.now(), link::PeerIndex(from), message);
        cluster.hosts[0]->after_input();
        cluster.run_for(5ms);  // an answer is heeded for a second [Y23]
    };
    // A question ends nothing.
    deliver(1, wire::CreateQuery{{}, 1, 0, {1, 0}, {{1, 9}}, 1});
    deliver(2, wire::CreateQuery{{}, 1, 0, {1, 0}, {{1, 9}}, 1});
    deliver(1, wire::CreateQuery{{}, 1, 0, {1, 900}, {{70, 9}, {1, 9}}, 1});
    for (const bool ended : {false, true}) {
        CAPTURE(ended);
        const auto answer = [&](uint32_t from, uint32_t epoch, uint64_t tag, wire::CreateCall call,
                                uint64_t other_tag, Ranks ranks, std::vector<wire::CreateCall> callers) {
            deliver(from, wire::CreateAnswer{{}, epoch, tag, {call}, other_tag, ranks, callers, ended, 1});
        };
        // Node 2 speaks for node 1's rank; for its own, which this create does not wait for; with another
        // tag, epoch, call or list; of ranks that there are not, and of none.
        answer(2, 1, 0, {0, number}, 0, {1, 0}, {{1, 9}});
        answer(2, 1, 0, {0, number}, 0, {2, 0}, {{2, 9}});
        answer(1, 1, 3, {0, number}, 3, {1, 0}, {{1, 9}});
        answer(1, 2, 0, {0, number}, 0, {1, 0}, {{1, 9}});
        answer(1, 1, 0, {0, number + 1}, 0, {1, 0}, {{1, 9}});
        answer(1, 1, 0, {0, number - 1}, 0, {1, 0}, {{1, 9}});
        answer(1, 1, 5, {0, number}, 5, {1, 0}, {{1, 9}});
        answer(1, 1, 0, {1, number}, 0, {1, 0}, {{1, 9}});
        answer(1, 1, 0, {0, number}, 0, {0, 1}, {{1, 9}});
        answer(1, 1, 0, {0, number}, 0, {1, 2}, {{1, 9}});
        answer(1, 1, 0, {0, number}, 0, {1, 0}, {{70, 9}, {1, 9}});
        answer(1, 1, 0, {0, number}, 0, {1, 0, 2, 3, 4}, {{1, 9}});
        answer(1, 1, 0, {0, number}, 0, {1, 0}, {});
    }
    // To a question that was not, or not the newest one [Y23].
    for (const uint32_t ask : {0u, 2u, UINT32_MAX})
        deliver(1, wire::CreateAnswer{{}, 1, 0, {{0, number}}, 0, {1, 0}, {{1, 9}}, false, ask});
    REQUIRE(creation.answer(0) == nullptr);
    // What it may say: node 1's rank waits with another list. It ends that call, and no other.
    deliver(1, wire::CreateAnswer{{}, 1, 0, {{0, number}}, 0, {1, 0, 900}, {{1, 9}}, false, 1});
    REQUIRE(creation.error(0).code == Errc::mismatch);
    REQUIRE(all.answer(0) == nullptr);
    REQUIRE(all.start(1));
    REQUIRE(all.start(2));
    expect_made(all);
}

TEST_CASE("[Y10] the key and the proof are of the parent's secret, its epoch, the list and the tag") {
    const auto port = nexar::test::proof_port();
    engine::GroupFacts parent;
    parent.id = {1, 2, 3};
    parent.epoch = GroupEpoch(1);
    parent.secret = engine::secret_of(parent.id, rendezvous::ProofKey{}, port);
    parent.members = std::vector<wire::GroupMemberRecord>(3);
    parent.layout = collectives::Layout(std::vector<uint32_t>{0, 1, 0});
    parent.self = collectives::NodeIndex(0);
    const auto made = [&](const engine::GroupFacts& facts, Ranks ranks, uint64_t tag) {
        return engine::creation_of(facts, port, ranks, tag).credentials;
    };
    const auto base = made(parent, {0, 1}, 7);
    REQUIRE(made(parent, {0, 1}, 7).key == base.key);
    REQUIRE(base.proof.has_value());
    REQUIRE_FALSE(std::ranges::equal(base.key, *base.proof));
    REQUIRE(made(parent, {1, 0}, 7).key != base.key);
    REQUIRE(made(parent, {0, 1}, 8).key != base.key);
    REQUIRE_FALSE(made(parent, {0, 2}, 7).proof.has_value());  // all on this node
    for (const auto& change : std::vector<std::function<void(engine::GroupFacts&)>>{
             [](auto& f) { f.secret[31] ^= 1; }, [](auto& f) { f.epoch = GroupEpoch(2); },
             [](auto& f) { ++f.id.counter; }}) {
        engine::GroupFacts other = parent;
        change(other);
        REQUIRE(made(other, {0, 1}, 7).key != base.key);
        REQUIRE_FALSE(std::ranges::equal(*made(other, {0, 1}, 7).proof, *base.proof));
    }
}

TEST_CASE(
    "[Y11] a group whose members are not the listed processes is not made, and who took whose place is "
    "named") {
    engine::Creation creation;
    creation.parent_name = "train";
    creation.ranks = {4, 2};
    const std::vector<wire::GroupMemberRecord> records{{{}, NodeId{{1}}, 4, 40, {1, 1}, 0, {}},
                                                       {{}, NodeId{{2}}, 2, 20, {1, 2}, 0, {}}};
    creation.parent_members = {{}, {}, records[1], {}, records[0]};
    wire::GroupPrepare prepare;
    prepare.members = records;
    REQUIRE_FALSE(engine::contradiction(creation, prepare));
    prepare.members[1].pid = 21;
    REQUIRE(engine::contradiction(creation, prepare)->code == Errc::protocol_error);
    REQUIRE(engine::contradiction(creation, prepare)->rank == 2);
    REQUIRE(engine::contradiction(creation, prepare)->text.starts_with("pid 21 on node 0200"));
    prepare.members = records;
    prepare.members[0].node = NodeId{{2}};
    REQUIRE(engine::contradiction(creation, prepare)->rank == 4);
    prepare.members = records;
    prepare.members[0].incarnation = {2, 9};
    REQUIRE(engine::contradiction(creation, prepare)->rank == 4);

    // On nodes: a process of node 1 that is not the listed one, with the right key.
    Cluster cluster(15, shape_of(2));
    const SimGroup parent = cluster.make_group({0, 1, 0});
    Creation listed(cluster, parent, {0, 1, 2});
    REQUIRE(listed.start(1, Duration{-1}, 7));
    REQUIRE(listed.start(0));
    REQUIRE(listed.start(2));
    cluster.run_for(1s);
    for (const uint32_t rank : {0u, 1u, 2u}) {
        REQUIRE(listed.error(rank).code == Errc::protocol_error);
        REQUIRE(listed.error(rank).rank == 1);
    }
    for (const auto& host : cluster.hosts)
        REQUIRE(host->engine->snapshot(cluster.clock.now()).groups.size() == 1);
    listed.start_all();
    expect_made(listed);
}

TEST_CASE("[Y14] time-outs are the parent's, or those that all ranks give alike") {
    Cluster cluster(12, shape_of(2));
    const SimGroup parent = cluster.make_group({0, 1});
    const engine::Timeouts mine{Duration(1000ms), Duration{-1}, Duration{-1}};
    const auto a = create(cluster, parent, 0, {{0, 1}, 0, Duration{-1}, mine});
    const auto b = create(cluster, parent, 1, {{0, 1}, 0, Duration{-1}, mine});
    cluster.run_for(100ms);
    for (const auto& call : {a, b}) {
        REQUIRE((*cluster.answer(call))->timeouts.collective == Duration(1000ms));
        REQUIRE((*cluster.answer(call))->timeouts.barrier == Duration(1000ms));
    }
    const auto c = create(cluster, parent, 0, {{0, 1}, 1, Duration{-1}, mine});
    const auto d = create(cluster, parent, 1, {{0, 1}, 1});
    cluster.run_for(100ms);
    for (const auto& call : {c, d}) {
        REQUIRE(cluster.answer(call)->error().code == Errc::options_differ);
    }
}

TEST_CASE("[Y15] ten thousand groups that are created and freed leave nothing behind") {
    Cluster cluster(13, shape_of(2));
    const SimGroup parent = cluster.make_group({0, 1, 1});
    const size_t cycles = 10'000 / seeds_share;
    for (size_t i = 0; i < cycles; ++i) {
        Creation creation(cluster, parent, {2, 0}, i % 3 == 0 ? 0 : i);
        creation.start_all();
        cluster.run_for(3ms);
        REQUIRE(creation.all_ok());
        for (uint32_t rank = 0; rank < 2; ++rank) REQUIRE(cluster.free_group(creation.made(), rank));
        cluster.run_for(2ms);
    }
    cluster.run_for(1s);
    for (uint32_t host = 0; host < 2; ++host) {
        REQUIRE(cluster.hosts[host]->engine->snapshot(cluster.clock.now()).groups.size() == 1);
        REQUIRE(groups_used(cluster, parent, host) == 0);
    }
}

}  // namespace nexar::sim
