// Many receives that wait: which one a message goes to, and how many it looks at
// (docs/protocol/messages.md [X1], docs/protocol/priorities.md [K33]).
#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <vector>

#include "post.hpp"
#include "seeds.hpp"

namespace nexar::sim {

TEST_CASE("[K33] a message looks at few of the receives that wait for others, however many they are") {
    for (const uint64_t waiting : {400u, 2000u}) {
        CAPTURE(waiting);
        Cluster cluster(1, shape_of(2));
        Post post(cluster, cluster.make_group({0, 0, 1}));
        const auto source = [](uint64_t tag) {
            return tag % 3 == 0 ? engine::any_rank : tag % 2 == 0 ? 0u : 2u;
        };
        std::vector<Call*> receives;
        for (uint64_t tag = 0; tag < waiting; ++tag)
            receives.push_back(tag % 5 == 4
                                   ? &post.look(OpKind::probe, 1, source(tag), static_cast<int64_t>(tag))
                                   : &post.recv(1, source(tag), static_cast<int64_t>(tag), 3));
        cluster.run_for(10ms);
        const engine::Engine& engine = *cluster.hosts[0]->engine;
        const uint64_t before = engine.receives_looked_at();
        for (uint64_t tag = waiting; tag-- > waiting - 60;) {  // from the youngest on
            const uint32_t from = source(tag) == engine::any_rank ? 2u : source(tag);
            post.send(from, 1, tag, tag, 3);
            cluster.run_for(1ms);
            REQUIRE(receives[tag]->ok());
        }
        REQUIRE(engine.receives_looked_at() - before <= 2 * 60);
        engine.check_invariants();
        for (uint64_t tag = 0; tag < waiting - 60; ++tag)
            post.send(source(tag) == engine::any_rank ? 0u : source(tag), 1, tag, tag, 3);
        for (uint64_t tag = 0; tag < waiting; ++tag)
            if (tag % 5 == 4) post.recv(1, engine::any_rank, static_cast<int64_t>(tag), 3);
        expect_end(cluster);
    }
}

TEST_CASE("[K33] a cancel looks at its own send or receive, however many there are beside it") {
    for (const uint64_t waiting : {40u, 2000u}) {
        CAPTURE(waiting);
        Cluster cluster(1, shape_of(2));
        const SimGroup group = cluster.make_group({0, 0, 1});
        Post post(cluster, group);
        std::vector<Call*> receives, sends;  // the most of the sends have no credit
        for (uint64_t tag = 0; tag < waiting; ++tag) {
            receives.push_back(&post.recv(1, 2, static_cast<int64_t>(tag), 3));
            sends.push_back(&post.send(0, 2, tag, tag, 3));
        }
        cluster.run_for(10ms);
        const engine::Engine& engine = *cluster.hosts[0]->engine;
        uint64_t most = 0;
        for (uint64_t i = waiting; i-- > 0;)
            for (const auto& [rank, call] : {std::pair(1u, receives[i]), std::pair(0u, sends[i])}) {
                const uint64_t before = engine.cancels_looked_at();
                cluster.cancel(group, rank, *call);
                most = std::max(most, engine.cancels_looked_at() - before);
                if (i % 64 == 0) engine.check_invariants();
            }
        REQUIRE(most <= 2 * 64);
        expect_end(cluster);
        for (const Call* call : receives) REQUIRE(call->outcome.error.code == Errc::cancelled);
        for (const Call* call : sends) REQUIRE(call->outcome.error.code == Errc::cancelled);
    }
}

namespace {

// Receives and probes of rank 1, and a plain list of those that wait.
class Waiting {
  public:
    explicit Waiting(uint64_t seed)
        : cluster(seed, shape_of(2)), random(seed * 79), post(cluster, cluster.make_group({0, 0, 1, 1})) {}

    void receive() {
        const uint32_t source = random.one_in(3) ? engine::any_rank : some_source();
        const int64_t tag = random.one_in(6) ? -1 : static_cast<int64_t>(random.below(20));
        const OpKind kind = random.one_in(8)    ? OpKind::probe
                            : random.one_in(10) ? OpKind::mprobe
                                                : OpKind::recv;
        Call& call = kind == OpKind::recv ? post.recv(1, source, tag, 2) : post.look(kind, 1, source, tag);
        waiting.push_back({kind, source, tag, &call});
    }
    void cancel() {
        const size_t at = random.below(waiting.size());
        cluster.cancel(post.group, 1, *waiting[at].call);
        REQUIRE(waiting[at].call->outcome.error.code == Errc::cancelled);
        waiting.erase(waiting.begin() + static_cast<ptrdiff_t>(at));
    }
    // A message that one of them wants, and what becomes of all.
    void send() {
        const Posted& like = waiting[random.below(waiting.size())];
        from_ = like.source == engine::any_rank ? some_source() : like.source;
        tag_ = like.tag < 0 ? random.below(20) : static_cast<uint64_t>(like.tag);
        const auto taker = std::ranges::find_if(
            waiting, [&](const Posted& each) { return fits(each) && each.kind != OpKind::probe; });
        const Call& sent = post.send(from_, 1, tag_, ++salt_, 2);
        cluster.run_for(1ms);
        if (taker == waiting.end()) {  // all probes that it fits have ended; then it goes
            for (const Posted& each : waiting) REQUIRE(each.call->ended == fits(each));
            std::erase_if(waiting, [&](const Posted& each) { return fits(each); });
            return expect(post.recv(1, from_, static_cast<int64_t>(tag_), 2));
        }
        REQUIRE(taker->call->ok());
        REQUIRE(taker->call->outcome.tag == tag_);
        expect(taker->kind == OpKind::recv ? *taker->call : post.mrecv(1, taker->call->outcome.message, 2));
        REQUIRE(sent.ok());
        waiting.erase(taker);
        for (const Posted& each : waiting) REQUIRE_FALSE(each.call->ended);
    }

    struct Posted {
        OpKind kind;
        uint32_t source;
        int64_t tag;  // -1: any
        Call* call;
    };
    Cluster cluster;
    Random random;
    Post post;
    std::vector<Posted> waiting;  // in the order in which they were posted

  private:
    uint32_t some_source() { return std::array<uint32_t, 3>{0, 2, 3}[random.below(3)]; }
    bool fits(const Posted& each) const {
        return (each.source == engine::any_rank || each.source == from_) &&
               (each.tag < 0 || static_cast<uint64_t>(each.tag) == tag_);
    }
    void expect(const Call& got) {
        cluster.run_for(1ms);
        expect_message(got, salt_, 2, from_, tag_);
    }
    uint64_t salt_ = 0, tag_ = 0;  // of the newest message
    uint32_t from_ = 0;
};

}  // namespace

TEST_CASE(
    "[K33] [X1] of many receives a message goes to the oldest that it fits, in whatever order they come") {
    for (const uint64_t seed : seeds(8)) {
        CAPTURE(seed);
        Waiting all(seed);
        const auto& waiting = all.waiting;
        // Above where they are indexed, below where they are no longer, to none, and above again.
        for (const size_t wanted : {150u, 40u, 100u, 10u, 90u, 0u, 70u, 0u}) {
            while (waiting.size() != wanted)
                if (waiting.size() < wanted && (waiting.empty() || !all.random.one_in(4)))
                    all.receive();
                else if (!waiting.empty() && (waiting.size() > wanted || all.random.one_in(4)))
                    all.random.one_in(6) ? all.cancel() : all.send();
            all.cluster.hosts[0]->engine->check_invariants();
        }
        expect_end(all.cluster);
    }
}

}  // namespace nexar::sim
