// Thousands of creates that wait: what ends them, in portions, and the memory of their lists
// (docs/protocol/children.md [Y21], [Y22], [Y24]). The times are printed, for people: [.measure].
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstdio>
#include <numeric>

#include "creation.hpp"

namespace nexar::sim {
namespace {

struct Crowd {
    Crowd(uint64_t pending, uint32_t parent_ranks, const ClusterShape& shape = shape_of(3))
        : cluster(1, shape), parent(cluster.make_group(placement(parent_ranks))) {
        for (uint64_t tag = 0; tag < pending; ++tag)
            calls.push_back(begin_create(cluster, parent, 0, {list(parent_ranks), tag, 60s}));
        for (const auto& call : calls) REQUIRE(call.accepted);
    }
    static std::vector<uint32_t> placement(uint32_t ranks) {
        std::vector<uint32_t> out(ranks, 1);
        out[0] = 0;
        out[2] = 2;
        return out;
    }
    static Creation::Ranks list(uint32_t ranks) {
        Creation::Ranks out;
        for (uint32_t rank = 0; rank < ranks; ++rank)
            if (rank != 2) out.push_back(rank);
        return out;
    }
    size_t ended() const {
        return static_cast<size_t>(std::ranges::count_if(
            calls, [this](const auto& call) { return cluster.answer(call) != nullptr; }));
    }

    Cluster cluster;
    SimGroup parent;
    std::vector<Cluster::Open> calls;
};

// [Y22] Of a parent of at most 64 ranks.
size_t list_bytes(size_t ranks) {
    return ranks * sizeof(uint32_t) + sizeof(uint64_t);
}

enum class How { rank_freed, own_freed, crashed };

double ms_since(std::chrono::steady_clock::time_point begin) {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

TEST_CASE("[Y21] thousands of creates that one event ends do so in portions, and others are served between") {
    for (const How how : {How::rank_freed, How::own_freed, How::crashed}) {
        CAPTURE(static_cast<int>(how));
        constexpr size_t pending = 700;
        Crowd crowd(pending, 3);
        Cluster& cluster = crowd.cluster;
        const SimGroup other = cluster.make_group({0, 0});
        Creation apart(cluster, crowd.parent, {0, 2}, 9999);
        REQUIRE(apart.start(0));
        engine::Engine& engine = *cluster.hosts[0]->engine;
        const size_t most = cluster.shape.engine.ends_per_turn_max;
        // The engine alone: what comes next is a turn of its loop.
        const GroupId& id = crowd.parent.id;
        if (how == How::own_freed)
            REQUIRE(engine.free_group(cluster.clock.now(), crowd.parent.sessions[0], id, 0));
        else
            engine.on_message(
                cluster.clock.now(), link::PeerIndex(1),
                wire::RankGone{id, 1, 1, 0, how == How::crashed, "it left", how == How::rank_freed});
        if (how == How::crashed)
            for (int step = 0; step < 1000 && crowd.ended() == 0; ++step) cluster.run_for(1ms);
        size_t before = crowd.ended(), turns = 0;
        // The nodes agree on the parent's end first, over many turns.
        if (how != How::crashed) REQUIRE(before <= most);
        std::vector<Call*> barriers;
        for (const uint32_t rank : {0u, 1u})
            barriers.push_back(&cluster.submit(other, rank, request_of({OpKind::barrier}), {}, 0));
        for (const Call* call : barriers) REQUIRE(call->ok());
        while (crowd.ended() < pending) {
            before = crowd.ended();
            CAPTURE(before, turns);
            REQUIRE(engine.wake_at() <= cluster.clock.now());
            engine.on_time(cluster.clock.now());
            REQUIRE(crowd.ended() <= before + most);
            REQUIRE(++turns < pending);
        }
        for (const auto& call : crowd.calls) {
            const Error& error = cluster.answer(call)->error();
            REQUIRE(error.code == (how == How::own_freed    ? Errc::closed
                                   : how == How::rank_freed ? Errc::aborted
                                                            : Errc::peer_lost));
        }
        cluster.run_for(100ms);
        // Who has not been listed ends nothing, unless the parent has ended.
        REQUIRE((apart.answer(0) != nullptr) == (how != How::rank_freed));
        REQUIRE(engine.wake_at() > cluster.clock.now());
    }
}

TEST_CASE("[Y21] creates end where a turn may end one call only") {
    ClusterShape shape = shape_of(3);
    shape.engine.ends_per_turn_max = 1;
    constexpr size_t pending = 20;
    Crowd crowd(pending, 3, shape);
    Cluster& cluster = crowd.cluster;
    engine::Engine& engine = *cluster.hosts[0]->engine;
    engine.on_message(cluster.clock.now(), link::PeerIndex(1),
                      wire::RankGone{crowd.parent.id, 1, 1, 0, false, "it left", true});
    for (size_t turn = 0; turn < 3 * pending && crowd.ended() < pending; ++turn)
        engine.on_time(cluster.clock.now());
    REQUIRE(crowd.ended() == pending);
}

TEST_CASE("[Y21] a rank that leaves holds up no call that waits for one that has left before") {
    constexpr uint32_t leavers = 200;
    Cluster cluster(1, shape_of(2));
    std::vector<uint32_t> placement(leavers + 2, 1);
    placement[0] = placement[1] = 0;
    const SimGroup parent = cluster.make_group(placement);
    // Rank 1's, in the order of their tags: 1,000 that wait for nobody who leaves, and one for the first who
    // does.
    for (uint64_t tag = 0; tag < 1000; ++tag)
        REQUIRE(begin_create(cluster, parent, 1, {{0, 1}, tag, 60s}).accepted);
    const auto waits = begin_create(cluster, parent, 1, {{1, 2}, 1000, 60s});
    REQUIRE(waits.accepted);
    engine::Engine& engine = *cluster.hosts[0]->engine;
    uint32_t turns = 0;
    for (; cluster.answer(waits) == nullptr && turns < leavers; ++turns) {
        engine.on_message(cluster.clock.now(), link::PeerIndex(1),
                          wire::RankGone{parent.id, 1, 2 + turns, 0, false, "it left", true});
        engine.on_time(cluster.clock.now());
    }
    REQUIRE(cluster.answer(waits) != nullptr);
    REQUIRE(turns <= 1 + 1001 / cluster.shape.engine.ends_per_turn_max);
}

// A user who frees one rank after the other keeps creates ending: each departure is a look at all of them.
TEST_CASE("[Y21][G11] a rank whose process dies is missed at once, however long creates of others end") {
    constexpr uint32_t leavers = 300;
    Cluster cluster(1, shape_of(2));
    std::vector<uint32_t> placement(leavers + 2, 1);
    placement[0] = placement[1] = 0;
    const SimGroup parent = cluster.make_group(placement), other = cluster.make_group({0, 0});
    for (uint64_t tag = 0; tag < 2000; ++tag)
        REQUIRE(begin_create(cluster, parent, 1, {{0, 1}, tag, 60s}).accepted);
    const Call& barrier = cluster.submit(other, 0, request_of({OpKind::barrier}), {}, 0);
    engine::Engine& engine = *cluster.hosts[0]->engine;
    uint32_t turns = 0;
    for (; !barrier.ended && turns < leavers; ++turns) {
        engine.on_message(cluster.clock.now(), link::PeerIndex(1),
                          wire::RankGone{parent.id, 1, 2 + turns, 0, false, "it left", true});
        if (turns == 1)
            engine.session_ended(cluster.clock.now(), other.sessions[1], engine::SessionEnd::crashed,
                                 "it crashed");
        engine.on_time(cluster.clock.now());
    }
    REQUIRE(barrier.ended);
    REQUIRE(turns <= 5);
}

// As in the loop: each turn has a time of its own, and may have no input but that.
TEST_CASE("[Y21][G11] creates that end and other ends are first in turns, whichever began") {
    constexpr uint32_t leavers = 40;
    for (const int64_t later : {0, 1}) {
        Cluster cluster(1, shape_of(2));
        std::vector<uint32_t> placement(leavers + 2, 1);
        placement[0] = placement[1] = 0;
        const SimGroup parent = cluster.make_group(placement), other = cluster.make_group({0, 0});
        for (uint32_t leaver = 0; leaver < leavers; ++leaver)
            for (uint64_t tag = 0; tag < 100; ++tag)
                REQUIRE(
                    begin_create(cluster, parent, 1, {{1, 2 + leaver}, 100 * leaver + tag, 60s}).accepted);
        const Call& barrier = cluster.submit(other, 0, request_of({OpKind::barrier}), {}, 0);
        engine::Engine& engine = *cluster.hosts[0]->engine;
        Time now = cluster.clock.now() + Duration(later);
        for (uint32_t leaver = 0; leaver < leavers; ++leaver)
            engine.on_message(now, link::PeerIndex(1),
                              wire::RankGone{parent.id, 1, 2 + leaver, 0, false, "it left", true});
        engine.session_ended(now, other.sessions[1], engine::SessionEnd::crashed, "it crashed");
        for (uint32_t turn = 0; turn < 8 && !barrier.ended; ++turn) engine.on_time(now += Duration(1));
        REQUIRE(barrier.ended);
    }
}

// Half of the ranks have called with one list; each of the others calls with a list of its own, which has all
// of the first half. None contradicts another [Y13]: they wait for the last rank.
TEST_CASE(
    "[Y21] a create costs what its list is long, however many wait with its tag, also when it is late") {
    constexpr uint32_t half = 300, last = 2 * half;
    Cluster cluster(1, shape_of(2));
    std::vector<uint32_t> placement(last + 1, 0);
    placement[last] = 1;
    const SimGroup parent = cluster.make_group(placement);
    engine::Engine& engine = *cluster.hosts[0]->engine;
    constexpr uint64_t looks_max = 2 * (half + 2) + last / 64 + 1;
    const auto call = [&](uint32_t rank, Creation::Ranks list) {
        const uint64_t before = engine.creates_looked_at();
        REQUIRE(begin_create(cluster, parent, rank, {std::move(list), 7, 600s}).accepted);
        REQUIRE(engine.creates_looked_at() - before <= looks_max);
    };
    Creation::Ranks first(half);
    std::iota(first.begin(), first.end(), 0u);
    first.push_back(last);
    for (uint32_t rank = 0; rank < half; ++rank) call(rank, first);
    for (uint32_t rank = half; rank < last; ++rank) {
        Creation::Ranks list = first;
        list.push_back(rank);
        call(rank, list);
    }
    const uint64_t before = engine.creates_looked_at();
    const size_t lists = half + 1;
    cluster.run_for(1500ms);  // all are late once
    // Each looks at its list, and then, for whom it waits, at the ranks here [Y20].
    REQUIRE(engine.creates_looked_at() > before);
    REQUIRE(engine.creates_looked_at() - before <= lists * (looks_max + 2 * (last + 1)));
    cluster.check();
}

TEST_CASE("[Y22] a list is charged once for all calls with it, until the last of them has ended") {
    Cluster cluster(2, shape_of(2));
    const SimGroup parent = cluster.make_group({0, 0, 1});
    const auto used = [&] {
        return cluster.hosts[0]->tenants.of("", 1000 + parent.id.counter % 3)->used(Resource::scratch_bytes);
    };
    REQUIRE(used() == 0);
    Creation creation(cluster, parent, {2, 0, 1}), other(cluster, parent, {0, 2}, 4);
    REQUIRE(creation.start(0));
    REQUIRE(used() == list_bytes(3));
    REQUIRE(creation.start(1));
    REQUIRE(used() == list_bytes(3));
    REQUIRE(other.start(0));
    REQUIRE(used() == list_bytes(3) + list_bytes(2));
    cancel(cluster, creation.calls[0]);
    REQUIRE(used() == list_bytes(3) + list_bytes(2));
    REQUIRE(creation.start(0));
    REQUIRE(creation.start(2));
    cluster.run_for(100ms);
    REQUIRE(creation.all_ok());
    REQUIRE(used() == list_bytes(2));
    cluster.end_session(parent, 0, false);
    cluster.run_for(1s);
    REQUIRE(used() == 0);
}

TEST_CASE("[Y24] each user pays for a list while calls of its own have it, and for no other one's") {
    Cluster cluster(4, shape_of(2));
    const SimGroup parent = cluster.make_group({0, 0, 0, 1});
    const auto used = [&](uint32_t uid) {
        return cluster.hosts[0]->tenants.of("", uid)->used(Resource::scratch_bytes);
    };
    const auto call = [&](uint32_t rank, uint32_t uid) {
        const auto out = create(cluster, parent, rank, {{0, 1, 2, 3}, 0, 60s, Creation::no_timeouts, 0, uid});
        REQUIRE(out.accepted);
        return out;
    };
    const auto first = call(0, 7001), second = call(1, 7002), third = call(2, 7001);
    REQUIRE(used(7001) == list_bytes(4));
    REQUIRE(used(7002) == list_bytes(4));
    cancel(cluster, first);  // who made it first
    REQUIRE(used(7001) == list_bytes(4));
    cancel(cluster, third);
    REQUIRE(used(7001) == 0);
    REQUIRE(used(7002) == list_bytes(4));
    const auto again = call(0, 7001);
    REQUIRE(used(7001) == list_bytes(4));
    cancel(cluster, second);
    REQUIRE(used(7002) == 0);
    REQUIRE(used(7001) == list_bytes(4));
    cancel(cluster, again);
    REQUIRE(used(7001) == 0);
}

TEST_CASE("[Y24] a user without room for the list is refused, also where another one's call has it") {
    ClusterShape shape = shape_of(2);
    shape.tenants.total(Resource::scratch_bytes) = list_bytes(3) + 8;
    shape.tenants.share_percent = 100;
    Cluster cluster(5, shape);
    const SimGroup parent = cluster.make_group({0, 0, 1});
    const CreateCall wanted{{0, 1, 2}, 0, 60s, Creation::no_timeouts, 0, 7001};
    const auto first = create(cluster, parent, 0, wanted);
    REQUIRE(first.accepted);
    CreateCall of_another = wanted;
    of_another.uid = 7002;
    REQUIRE(refused(create(cluster, parent, 1, of_another)).code == Errc::no_memory);
    cancel(cluster, first);
    REQUIRE(create(cluster, parent, 1, of_another).accepted);
}

TEST_CASE("[Y22] without room for its list a create is refused, and nothing of it stays") {
    ClusterShape shape = shape_of(2);
    shape.tenants.total(Resource::scratch_bytes) = list_bytes(3);
    shape.tenants.share_percent = 100;
    Cluster cluster(3, shape);
    const SimGroup parent = cluster.make_group({0, 1, 1});
    Creation creation(cluster, parent, {0, 1}), more(cluster, parent, {0, 1, 2}, 1);
    REQUIRE(creation.start(0));
    const Error error = refused(create(cluster, parent, 0, {{0, 1, 2}, 1}));
    INFO(error.text);
    REQUIRE(error.code == Errc::no_memory);
    REQUIRE(error.text.find("scratch") != std::string::npos);
    REQUIRE(creation.start(1));
    cluster.run_for(100ms);
    REQUIRE(creation.all_ok());
    more.start_all();
    cluster.run_for(100ms);
    REQUIRE(more.all_ok());
}

TEST_CASE("what 2840 creates take that one rank's leaving ends", "[.measure]") {
    for (const uint32_t ranks : {3u, 1024u}) {
        constexpr size_t pending = 2840;
        Crowd crowd(pending, ranks);
        Cluster& cluster = crowd.cluster;
        engine::Engine& engine = *cluster.hosts[0]->engine;
        double longest = 0, whole = 0;
        const auto timed = [&](auto&& f) {
            const auto begin = std::chrono::steady_clock::now();
            f();
            longest = std::max(longest, ms_since(begin));
            whole += ms_since(begin);
        };
        timed([&] {
            engine.on_message(cluster.clock.now(), link::PeerIndex(1),
                              wire::RankGone{crowd.parent.id, 1, 1, 0, false, "it left", true});
        });
        while (engine.wake_at() <= cluster.clock.now()) timed([&] { engine.on_time(cluster.clock.now()); });
        REQUIRE(crowd.ended() == pending);
        std::printf("2840 creates of %u ranks: longest turn %.1f ms, all turns %.1f ms\n", ranks - 1, longest,
                    whole);
    }
}

TEST_CASE("what creates take while ranks leave that they do not list", "[.measure]") {
    for (const uint32_t left : {1u, 2000u}) {
        constexpr uint32_t ranks = 4095;
        Crowd crowd(0, ranks);
        Cluster& cluster = crowd.cluster;
        Creation::Ranks even;
        for (uint32_t rank = 0; even.size() < 1023; rank += 2)
            if (rank != 2) even.push_back(rank);
        for (uint64_t tag = 0; tag < 1000; ++tag)
            REQUIRE(begin_create(cluster, crowd.parent, 0, {even, tag, 60s}).accepted);
        engine::Engine& engine = *cluster.hosts[0]->engine;
        const auto leave = [&](uint32_t n) {
            engine.on_message(cluster.clock.now(), link::PeerIndex(1),
                              wire::RankGone{crowd.parent.id, 1, 2 * n + 1, 0, false, "it left", true});
        };
        const auto whole = std::chrono::steady_clock::now();
        for (uint32_t n = 0; n < left; ++n) leave(n);
        double longest = 0;
        size_t turns = 0;
        for (; engine.wake_at() <= cluster.clock.now(); ++turns) {
            const auto begin = std::chrono::steady_clock::now();
            engine.on_time(cluster.clock.now());
            longest = std::max(longest, ms_since(begin));
        }
        std::printf("1000 creates of 1023 ranks, %u others leave: %zu turns, longest %.2f ms, all %.1f ms\n",
                    left, turns, longest, ms_since(whole));
    }
}

}  // namespace nexar::sim
