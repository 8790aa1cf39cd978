// Lists that differ, while calls end and begin again: who gets MISMATCH, and who never does
// (docs/protocol/children.md [Y13], [Y18], [Y19], [Y23]).
#include <catch2/catch_test_macros.hpp>

#include "creation.hpp"
#include "seeds.hpp"

namespace nexar::sim {
namespace {

using Ranks = Creation::Ranks;

// All the room that a host has for a user (0: the parent's) in its control log with the other one.
class Filled {
  public:
    Filled(Cluster& cluster, const SimGroup& parent, uint32_t host, uint32_t uid = 0)
        : mesh_(*cluster.hosts[host]->meshes[0]),
          to_(1 - host),
          account_(cluster.hosts[host]
                       ->tenants.of("", uid != 0 ? uid : 1000 + static_cast<uint32_t>(parent.id.counter % 3))
                       ->number) {}
    void fill() {
        while (mesh_.reserve(to_, account_, piece)) ++taken_;
    }
    void empty() {
        for (; taken_ > 0; --taken_) mesh_.release(to_, account_, piece);
    }

  private:
    static constexpr size_t piece = 64;
    link::Mesh& mesh_;
    const link::PeerIndex to_;
    const link::Account account_;
    size_t taken_ = 0;
};

bool has(const Ranks& ranks, int64_t rank) {
    return std::ranges::any_of(ranks, [rank](uint32_t r) { return r == rank; });
}

}  // namespace

TEST_CASE("[Y18] what a call has stated that has ended by now ends no other call") {
    for (const bool mismatch : {false, true}) {
        CAPTURE(mismatch);
        Cluster cluster(21, shape_of(3));
        const SimGroup parent = cluster.make_group({0, 1, 2});
        const auto wrong = create(cluster, parent, 0, {{0, 1}, 5});
        const auto also_wrong = mismatch ? create(cluster, parent, 1, {{1, 0}, 5}) : Cluster::Open{};
        cluster.run_for(900ms);
        cluster.block(0, 1, true);
        cluster.run_for(200ms);  // it has stated its list by now, and nobody has received that
        cancel(cluster, wrong);
        if (mismatch) cancel(cluster, also_wrong);
        Creation right(cluster, parent, {1, 0}, 5);
        REQUIRE(right.start(1));
        cluster.block(0, 1, false);
        cluster.run_for(2s);
        REQUIRE(right.answer(1) == nullptr);
        REQUIRE(right.start(0));
        cluster.run_for(200ms);
        REQUIRE(right.all_ok());
        REQUIRE(run_everything(cluster, right.made()) == "");
        cluster.check();
    }
}

TEST_CASE("[Y23] an answer as old as an outage ends no call that agrees by now") {
    // The second question is at 3 s: before the outage ends, or after it.
    for (const auto& [again, outage] : {std::pair(true, 2900ms), {false, 2900ms}, {true, 1600ms}}) {
        CAPTURE(again, outage.count());
        Cluster cluster(41, shape_of(3));
        const SimGroup parent = cluster.make_group({0, 1, 2});
        Creation right(cluster, parent, {0, 1}, 5);
        REQUIRE(right.start(0, 60s));
        cluster.run_for(900ms);
        const auto wrong = create(cluster, parent, 1, {{1, 0}, 5, 60s});
        cluster.block(1, 0, true);
        cluster.run_for(400ms);  // rank 0's node has asked, and the answer waits
        cancel(cluster, wrong);
        if (again) REQUIRE(right.start(1, 60s));
        cluster.run_for(outage - 400ms);
        cluster.block(1, 0, false);
        cluster.run_for(200ms);
        if (!again) {
            REQUIRE(right.answer(0) == nullptr);
            REQUIRE(right.start(1, 60s));
            cluster.run_for(200ms);
        }
        REQUIRE(right.all_ok());
        REQUIRE(run_everything(cluster, right.made()) == "");
        cluster.check();
    }
}

namespace {

// Ranks that call, cancel, time out and call again, each for itself, with lists that often differ, over
// channels that stall and break. Each MISMATCH is compared with what all calls did.
class Quarrel {
  public:
    static constexpr uint32_t ranks = 5;

    explicit Quarrel(uint64_t seed)
        : random(seed * 6007), cluster(seed, shape_of(4)), parent(cluster.make_group(placement())) {}

    void run() {
        constexpr int ticks = 12'000;
        const uint64_t dies_at = random.one_in(4) ? 2000 + random.below(ticks - 3000) : ticks;
        for (uint32_t rank = 0; rank < ranks; ++rank) next_call_[rank] = random.below(500);
        for (uint64_t tick = 0; tick < ticks; ++tick) {
            if (tick == dies_at) cluster.kill(static_cast<uint32_t>(random.below(4)), true);
            for (uint32_t rank = 0; rank < ranks; ++rank) act(rank, tick);
            if (random.one_in(400)) disturb();
            cluster.run_for(1ms);
            look();
        }
        cluster.run_for(20s);  // nobody calls any more: who waits for each other has learned of it
        look();
    }
    // Each MISMATCH is of two calls that waited at the same time with lists that have both, and names them.
    void check() {
        for (const One& one : calls_) {
            if (one.error.code != Errc::mismatch) continue;
            ++mismatches;
            CAPTURE(one.rank, one.tag, one.error.text);
            REQUIRE((one.error.rank == one.rank || one.error.other_rank == one.rank));
            const int64_t other = one.error.rank == one.rank ? one.error.other_rank : one.error.rank;
            REQUIRE(std::ranges::any_of(calls_, [&](const One& two) {
                return two.rank == other && differ(one, two) && two.begin <= one.end && one.begin <= two.end;
            }));
        }
        for (const One& one : calls_)
            for (const One& two : calls_)
                REQUIRE_FALSE((differ(one, two) && one.end == never && two.end == never && runs(one.rank) &&
                               runs(two.rank)));
        cluster.check();
    }

    size_t mismatches = 0, made = 0, cancelled = 0;
    Random random;
    Cluster cluster;
    SimGroup parent;

  private:
    struct One {
        uint32_t rank = 0;
        uint64_t tag = 0;
        Ranks list;
        Cluster::Open call;
        Time begin, end = never;
        Error error{Errc::ok, {}, -1, -1, {}};
    };
    std::vector<uint32_t> placement() {
        std::vector<uint32_t> out;
        for (uint32_t rank = 0; rank < ranks; ++rank) out.push_back(static_cast<uint32_t>(random.below(3)));
        return out;
    }
    bool runs(uint32_t rank) const { return !cluster.hosts[parent.placement[rank]]->dead; }
    static bool differ(const One& a, const One& b) {
        return a.tag == b.tag && a.rank != b.rank && a.list != b.list && has(a.list, b.rank) &&
               has(b.list, a.rank);
    }
    // Of few lists, so that calls meet; each has the rank.
    Ranks some_list(uint32_t rank) {
        Ranks out{rank, (rank + 1) % ranks};
        if (random.one_in(2)) out = {(rank + ranks - 1) % ranks, rank};
        if (random.one_in(4)) out.push_back((out[1] + 1) % ranks);
        if (random.one_in(3)) std::ranges::sort(out);
        return out;
    }
    void act(uint32_t rank, uint64_t tick) {
        if (tick < next_call_[rank] || !runs(rank)) return;
        next_call_[rank] = tick + 1 + random.below(random.one_in(3) ? 2500 : 300);
        for (const size_t at : waiting_)
            if (calls_[at].rank == rank && random.one_in(2)) return end(calls_[at]);
        One one{rank, random.below(2), some_list(rank), {}, cluster.clock.now()};
        const Duration timeout = random.one_in(3) ? cluster.clock.some(3s) + 1ms : 60s;
        one.call = create(cluster, parent, rank, {one.list, one.tag, timeout});
        if (!one.call.accepted) {
            one.end = one.begin;
            one.error = one.call.accepted.error();
            if (one.error.code == Errc::bad_state) return;
        }
        calls_.push_back(std::move(one));
        if (calls_.back().end == never) waiting_.push_back(calls_.size() - 1);
    }
    void end(One& one) {
        cancel(cluster, one.call);
        ++cancelled;
    }
    void look() {
        std::erase_if(waiting_, [this](size_t at) {
            One& one = calls_[at];
            const auto* answer = cluster.answer(one.call);
            if (answer == nullptr) return false;
            one.end = cluster.clock.now();
            if (answer->has_value())
                ++made;
            else
                one.error = answer->error();
            return true;
        });
    }
    void disturb() {
        const auto a = static_cast<uint32_t>(random.below(3));
        const auto b = static_cast<uint32_t>((a + 1 + random.below(2)) % 3);
        if (random.one_in(3)) return cluster.break_channel(a, b, 5ms);
        cluster.block(a, b, true);
        cluster.clock.after(cluster.clock.some(1500ms), [this, a, b] {
            if (!cluster.hosts[a]->dead && !cluster.hosts[b]->dead) cluster.block(a, b, false);
        });
    }

    std::vector<One> calls_;
    std::vector<size_t> waiting_;
    uint64_t next_call_[ranks] = {};
};

}  // namespace

TEST_CASE("[Y18] [Y13] a MISMATCH is of two calls that wait at the same time, whatever comes late or again") {
    size_t mismatches = 0, made = 0, cancelled = 0;
    for (const uint64_t seed : seeds(60)) {
        CAPTURE(seed);
        Quarrel quarrel(seed);
        quarrel.run();
        quarrel.check();
        mismatches += quarrel.mismatches;
        made += quarrel.made;
        cancelled += quarrel.cancelled;
    }
    CAPTURE(mismatches, made, cancelled);
    REQUIRE(met(mismatches));
    REQUIRE(met(made));
    REQUIRE(met(cancelled));
}

TEST_CASE("[Y19] with a full control log none of the two gets MISMATCH alone; with room again both do") {
    enum class Full { first, second, both, after_the_question };
    for (const Full full : {Full::first, Full::second, Full::both, Full::after_the_question}) {
        CAPTURE(static_cast<int>(full));
        ClusterShape shape = shape_of(2);
        shape.mesh.log.requests_bytes_max = 64 << 10;
        shape.mesh.log.account_bytes_max = 16 << 10;
        Cluster cluster(31, shape);
        const SimGroup parent = cluster.make_group({0, 1});
        const auto a = create(cluster, parent, 0, {{0, 1}, 5, 60s});
        cluster.run_for(300ms);
        const auto b = create(cluster, parent, 1, {{1, 0}, 5, 60s});
        cluster.run_for(300ms);
        Filled first(cluster, parent, 0), second(cluster, parent, 1);
        if (full == Full::after_the_question) {
            bool asked = false;
            cluster.hosts[0]->on_append = [&asked](link::PeerIndex) { asked = true; };
            while (!asked) cluster.run_for(1us);
            cluster.hosts[0]->on_append = {};
        }
        const auto fill = [&](uint32_t host, Filled& log) {
            log.fill();
            // What is acknowledged makes room, also with the message that asks.
            cluster.hosts[host]->on_arrival = [&log](link::PeerIndex) { log.fill(); };
        };
        if (full != Full::second) fill(0, first);
        if (full == Full::second || full == Full::both) fill(1, second);
        cluster.run_for(6s);
        REQUIRE(cluster.answer(a) == nullptr);
        REQUIRE(cluster.answer(b) == nullptr);
        for (const auto& host : cluster.hosts) host->on_arrival = {};
        first.empty();
        second.empty();
        cluster.run_for(10s);
        for (const Cluster::Open* call : {&a, &b}) {
            REQUIRE(cluster.answer(*call) != nullptr);
            REQUIRE(cluster.answer(*call)->error().code == Errc::mismatch);
        }
    }
}

TEST_CASE(
    "[Y19] a user whose part of the control log is full silences no other one who calls with the same list") {
    ClusterShape shape = shape_of(2);
    shape.mesh.log.requests_bytes_max = 64 << 10;
    shape.mesh.log.account_bytes_max = 16 << 10;
    Cluster cluster(32, shape);
    const SimGroup parent = cluster.make_group({0, 0, 1});
    const auto call = [&](uint32_t rank, Ranks list, uint32_t uid) {
        return create(cluster, parent, rank, {std::move(list), 5, 60s, Creation::no_timeouts, 0, uid});
    };
    const auto first = call(0, {0, 1, 2}, 7001), second = call(1, {0, 1, 2}, 7002);
    cluster.run_for(300ms);
    Filled log(cluster, parent, 0, 7001);
    log.fill();
    cluster.hosts[0]->on_arrival = [&log](link::PeerIndex) { log.fill(); };
    const auto other = call(2, {2, 1, 0}, 7001);
    cluster.run_for(10s);
    for (const Cluster::Open* each : {&first, &second, &other}) {
        REQUIRE(cluster.answer(*each) != nullptr);
        REQUIRE(cluster.answer(*each)->error().code == Errc::mismatch);
    }
}

TEST_CASE("[Y13] [Y18] a third rank of one of two lists that differ waits on, on every placement") {
    for (const std::vector<uint32_t>& placement :
         {std::vector<uint32_t>{0, 1, 0}, {0, 1, 1}, {0, 1, 2}, {0, 0, 0}}) {
        CAPTURE(placement);
        Cluster cluster(23, shape_of(3));
        const SimGroup parent = cluster.make_group(placement);
        Creation right(cluster, parent, {0, 1, 2}, 3);
        REQUIRE(right.start(2));
        REQUIRE(right.start(0));
        const auto wrong = create(cluster, parent, 1, {{1, 0}, 3});
        cluster.run_for(3s);
        REQUIRE(right.error(0).code == Errc::mismatch);
        const Error error = wrong.accepted ? cluster.answer(wrong)->error() : wrong.accepted.error();
        REQUIRE(error.code == Errc::mismatch);
        REQUIRE(right.answer(2) == nullptr);
        REQUIRE(right.start(1));
        REQUIRE(right.start(0));
        cluster.run_for(200ms);
        REQUIRE(right.all_ok());
        cluster.check();
    }
}

TEST_CASE("[Y14] a node that has the feature is asked, whatever others of the group lack") {
    ClusterShape shape = shape_of(3);
    shape.capabilities[2] = {2, 2, 0, known_features() & ~feature_of_create_query};
    Cluster cluster(24, shape);
    const SimGroup parent = cluster.make_group({0, 1, 2});
    const auto a = create(cluster, parent, 0, {{0, 1, 2}, 5, 4s}),
               b = create(cluster, parent, 1, {{1, 0}, 5, 4s});
    const auto c = create(cluster, parent, 2, {{2, 0}, 5, 4s});
    size_t asked = 0;
    cluster.hosts[2]->table = [&asked](link::PeerIndex, const wire::Message& message) {
        asked += std::holds_alternative<wire::CreateQuery>(message) ||
                 std::holds_alternative<wire::CreateAnswer>(message);
        return false;
    };
    cluster.run_for(3s);
    for (const Cluster::Open* call : {&a, &b}) {
        REQUIRE(cluster.answer(*call) != nullptr);
        REQUIRE(cluster.answer(*call)->error().code == Errc::mismatch);
    }
    REQUIRE(cluster.answer(c) == nullptr);
    REQUIRE(asked == 0);
    cluster.run_for(2s);
    REQUIRE(cluster.answer(c)->error().code == Errc::group_incomplete);
}

TEST_CASE("[Y20] creates that wait for each other in a cycle say at their deadlines who waits in which") {
    for (const std::vector<uint32_t>& placement : {std::vector<uint32_t>{0, 1, 2}, {0, 0, 0}, {0, 1, 0}}) {
        CAPTURE(placement);
        Cluster cluster(22, shape_of(3));
        const SimGroup parent = cluster.make_group(placement);
        // Two with other tags, and three with one tag: no two of these have each other.
        const auto a = create(cluster, parent, 0, {{0, 1}, 1, 3s}),
                   b = create(cluster, parent, 1, {{1, 0}, 2, 3s});
        const auto c = create(cluster, parent, 0, {{0, 1}, 7, 6s}),
                   d = create(cluster, parent, 1, {{1, 2}, 7, 6s}),
                   e = create(cluster, parent, 2, {{2, 0}, 7, 6s});
        cluster.run_for(9s);
        const auto expect = [&](const Cluster::Open& call, int64_t rank, const std::string& names) {
            const Error& error = cluster.answer(call)->error();
            INFO(error.text);
            REQUIRE(error.code == Errc::group_incomplete);
            REQUIRE(error.rank == rank);
            REQUIRE(error.text.find(") has not called, and waited in another create, of the ranks " + names +
                                    ": group \"") != std::string::npos);
        };
        const auto one_of = [&](const Cluster::Open& call, const std::string& text,
                                const std::string& other) {
            return cluster.answer(call)->error().text.find(text) != std::string::npos ? text : other;
        };
        // Rank 1 waits in two others of its own, and either is right.
        expect(a, 1, one_of(a, "1, 0 with tag 2", "1, 2 with tag 7"));
        expect(b, 0, one_of(b, "0, 1 with tag 1", "0, 1 with tag 7"));
        expect(c, 1, one_of(c, "1, 0 with tag 2", "1, 2 with tag 7"));
        expect(d, 2, "2, 0 with tag 7");
        expect(e, 0, one_of(e, "0, 1 with tag 1", "0, 1 with tag 7"));
        cluster.check();
    }
}

}  // namespace nexar::sim
