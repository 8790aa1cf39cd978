// Children of groups: split and dup over production engines (docs/protocol/children.md).
#include <catch2/catch_test_macros.hpp>

#include "family.hpp"
#include "seeds.hpp"

namespace nexar::sim {
namespace {

using engine::no_colour;

void expect_all_ok(Family& family) {
    expect_end(family.cluster);
    for (const Call* call : family.calls) {
        INFO(call->outcome.error.text);
        REQUIRE(call->ok());
    }
}

}  // namespace

TEST_CASE(
    "[Y1] a split gives every rank the child of its colour, in the order of the keys, on any placement") {
    const std::vector<std::vector<uint32_t>> placements{
        {0}, {0, 0, 0}, {0, 1}, {0, 1, 0, 1}, {2, 1, 0, 2, 2, 0}, {0, 1, 2, 3, 4, 0, 1}};
    for (const auto& placement : placements) {
        Cluster cluster(placement.size(), shape_of(5));
        Family family(cluster, cluster.make_group(placement));
        const uint32_t size = family.parent.size();
        // Even and odd ranks; keys descend, and the last rank gets none.
        family.split([&](uint32_t rank) {
            return ChildCall{rank + 1 == size && size > 1 ? no_colour : rank % 2, -int64_t{rank} / 2};
        });
        expect_all_ok(family);

        for (uint32_t rank = 0; rank < size; ++rank) {
            CAPTURE(rank, size);
            if (rank + 1 == size && size > 1) {
                REQUIRE(family.info(rank) == nullptr);
                continue;
            }
            const engine::GroupInfo& child = *family.info(rank);
            // By definition: how many of the colour come before.
            uint32_t before = 0, all = 0;
            for (uint32_t r = 0; r < size; ++r) {
                if (r % 2 != rank % 2 || (r + 1 == size && size > 1)) continue;
                ++all;
                const int64_t theirs = -int64_t{r} / 2, mine = -int64_t{rank} / 2;
                before += theirs < mine || (theirs == mine && r < rank);
            }
            REQUIRE(child.rank.value == before);
            REQUIRE(child.size == all);
            REQUIRE(child.epoch == GroupEpoch(1));
            REQUIRE(child.root_ranks[before] == rank);
            REQUIRE(child.members[before].pid == 1000 + rank);
            REQUIRE(child.parent == family.parent.id);
        }
        for (const uint32_t rank : {0u, 1u})
            if (rank + 1 < size) REQUIRE(run_everything(cluster, family.child_of(rank)) == "");
        cluster.check();
    }
}

TEST_CASE("[Y1] a dup has the parent's ranks, and its operations do not meet the parent's") {
    Cluster cluster(7, shape_of(3));
    Family family(cluster, cluster.make_group({0, 1, 1, 2, 0}));
    family.dup();
    expect_all_ok(family);
    const SimGroup dup = family.child_of(0);
    REQUIRE(dup.id != family.parent.id);
    REQUIRE(dup.sessions == family.parent.sessions);

    // Both at the same time, in another order on each rank.
    Program on_parent(cluster, family.parent), on_dup(cluster, dup);
    for (const OpKind kind : collective_kinds) {
        on_parent.add({kind, Dtype::i32, ReduceOp::sum, count_for(kind, 9), 1});
        on_dup.add({kind, Dtype::i64, ReduceOp::max, count_for(kind, 33), 2});
    }
    on_dup.start(20us, 3);
    on_parent.start(20us, 3);
    expect_end(cluster);
    REQUIRE(on_parent.wrong() == "");
    REQUIRE(on_dup.wrong() == "");
}

TEST_CASE("[Y6] a child outlives its parent, and has children of its own") {
    Cluster cluster(8, shape_of(3));
    Family family(cluster, cluster.make_group({0, 1, 2, 0, 1, 2}));
    family.split([](uint32_t rank) { return ChildCall{rank % 2, 0}; });
    expect_all_ok(family);
    for (uint32_t rank = 0; rank < 6; ++rank) REQUIRE(cluster.free_group(family.parent, rank));
    expect_end(cluster);

    Family child(cluster, family.child_of(1));
    child.split([](uint32_t rank) { return ChildCall{7, rank == 2 ? -1 : 0}; });
    expect_all_ok(child);
    const engine::GroupInfo& nested = *child.info(0);
    REQUIRE(nested.size == 3);
    REQUIRE(nested.root == family.parent.id);
    REQUIRE(nested.root_ranks == std::vector<uint32_t>{5, 1, 3});
    REQUIRE(nested.name == family.info(1)->name + "/0.7");
    REQUIRE(run_everything(cluster, child.child_of(0)) == "");
    REQUIRE(run_everything(cluster, family.child_of(0)) == "");
    cluster.check();
}

TEST_CASE("[Y1] a split that another rank answers with something else is a mismatch on all ranks") {
    for (const bool same_node : {false, true}) {
        Cluster cluster(9, shape_of(2));
        Family family(cluster, cluster.make_group(same_node ? std::vector<uint32_t>{0, 0}
                                                            : std::vector<uint32_t>{0, 1}));
        Post post(cluster, family.parent);
        Call& split = family.start(OpKind::group_split, 0);
        Call& other = same_node ? family.start(OpKind::group_dup, 1)
                                : cluster.submit(family.parent, 1, request_of({OpKind::barrier}), {}, 0);
        expect_end(cluster);
        REQUIRE(split.outcome.error.code == Errc::mismatch);
        REQUIRE(other.outcome.error.code == Errc::mismatch);
        REQUIRE(split.outcome.error.text.find("group_split") != std::string::npos);
        REQUIRE(run_everything(cluster, family.parent) == "");
    }
}

TEST_CASE(
    "[Y2] members that give the child different time-outs get an error that names both; one value holds for "
    "all") {
    Cluster cluster(10, shape_of(2));
    Family family(cluster, cluster.make_group({0, 1, 1}));
    const auto with = [](Duration collective) {
        ChildCall out;
        out.asked.collective = collective;
        return out;
    };
    family.split([&](uint32_t rank) { return rank == 0 ? ChildCall{} : with(Duration(rank * 1000ms)); });
    expect_end(cluster);
    for (const Call* call : family.calls) {
        REQUIRE(call->outcome.error.code == Errc::options_differ);
        REQUIRE(call->outcome.error.rank == 2);
        REQUIRE(call->outcome.error.other_rank == 1);
    }
    family.split([&](uint32_t rank) { return rank == 1 ? with(1000ms) : ChildCall{}; });
    expect_all_ok(family);
    for (uint32_t rank = 0; rank < 3; ++rank) {
        REQUIRE(family.info(rank)->timeouts.collective == Duration(1000ms));
        REQUIRE(family.info(rank)->timeouts.barrier == Duration(1000ms));
    }
    family.dup();
    expect_all_ok(family);
    REQUIRE(family.info(0)->timeouts.collective == cluster.shape.collective_timeout);
}

TEST_CASE("[Y4] a rank that may have no more groups is named to all, and no child remains anywhere") {
    ClusterShape shape = shape_of(3);
    shape.tenants.totals[static_cast<size_t>(Resource::groups)] = 10;
    shape.tenants.share_percent = 30;  // three for a user of a host
    Cluster cluster(11, shape);
    Family family(cluster, cluster.make_group({0, 1, 2, 2}));
    size_t made = 0;
    for (; made < 10; ++made) {
        family.dup();
        expect_end(cluster);
        if (!family.all_ok()) break;
    }
    // Host 2 has two ranks of each: the second dup would be its fourth group.
    REQUIRE(made == 1);
    for (const Call* call : family.calls) {
        REQUIRE(call->outcome.error.code == Errc::table_full);
        REQUIRE(call->outcome.error.rank == 3);
        REQUIRE(call->outcome.child == nullptr);
    }
    for (const auto& host : cluster.hosts)
        REQUIRE(host->engine->snapshot(cluster.clock.now()).groups.size() == 2);
    REQUIRE(run_everything(cluster, family.parent) == "");
    family.split(
        [](uint32_t rank) { return ChildCall{rank < 2 ? 0 : no_colour, 0}; });  // only these have room
    expect_all_ok(family);
}

TEST_CASE("[Y4] [N19] who gets no child because the rest is kept for others reads how many there may be") {
    ClusterShape shape = shape_of(2);
    shape.tenants.total(Resource::groups) = 40;
    shape.tenants.share_percent = 60;  // 24 for a user; 5 of the 40 are kept
    Cluster cluster(12, shape);
    const auto others = cluster.hosts[1]->tenants.of("", 4711)->charge(Resource::groups, 24);
    REQUIRE(others);
    Family family(cluster, cluster.make_group({0, 1}));
    do {
        family.dup();
        expect_end(cluster);
    } while (family.all_ok());
    for (const Call* call : family.calls) {
        REQUIRE(call->outcome.error.code == Errc::table_full);
        REQUIRE(call->outcome.error.rank == 1);
        REQUIRE(call->outcome.error.text.find("its daemon has 35 groups, the most") != std::string::npos);
    }
}

TEST_CASE("[Y4] a split that its deadline ends gives its places back, though a rank has not called it yet") {
    Cluster cluster(13, shape_of(2));
    Family family(cluster, cluster.make_group({0, 1, 1}));
    const auto used = [&](size_t host) {
        return cluster.hosts[host]
            ->tenants.of("", 1000 + family.parent.id.counter % 3)
            ->used(Resource::groups);
    };
    family.start(OpKind::group_split, 0, {}, 1s);
    family.start(OpKind::group_split, 1, {}, 1s);  // rank 2, on the same node, does not call
    cluster.run_for(10ms);
    REQUIRE(used(0) == 1);
    REQUIRE(used(1) == 1);
    cluster.run_for(10s);
    REQUIRE(family.calls[0]->outcome.error.code == Errc::timed_out);
    REQUIRE(family.calls[1]->outcome.error.code == Errc::timed_out);
    REQUIRE(used(0) == 0);
    REQUIRE(used(1) == 0);
    const Call& late = family.start(OpKind::group_split, 2);
    expect_end(cluster);
    REQUIRE(late.outcome.error.code == Errc::aborted);
    REQUIRE(run_everything(cluster, family.parent) == "");
}

TEST_CASE("[Y7] ten thousand dups that are freed leave nothing behind") {
    Cluster cluster(12, shape_of(2));
    Family family(cluster, cluster.make_group({0, 1, 1}));
    const size_t cycles = 10'000 / seeds_share;
    for (size_t i = 0; i < cycles; ++i) {
        family.dup();
        cluster.run_for(3ms);
        REQUIRE(family.all_ok());
        const SimGroup dup = family.child_of(0);
        for (uint32_t rank = 0; rank < 3; ++rank) REQUIRE(cluster.free_group(dup, rank));
        cluster.run_for(2ms);
    }
    cluster.run_for(1s);
    for (const auto& host : cluster.hosts) {
        const engine::Snapshot now = host->engine->snapshot(cluster.clock.now());
        REQUIRE(now.groups.size() == 1);
        REQUIRE(host->tenants.of("", 1000 + family.parent.id.counter % 3)->used(Resource::groups) == 0);
        for (const auto& mesh : host->meshes) REQUIRE(mesh->stats(link::PeerIndex(0)).tombstones < 256);
    }
}

}  // namespace nexar::sim
