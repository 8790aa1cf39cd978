// The end of a session or a group with many requests: some in each turn of the loop, and others are served in
// between.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>

#include "post.hpp"
#include "seeds.hpp"

namespace nexar::sim {
namespace {

ClusterShape shape_with(uint32_t nodes, size_t ends_per_turn_max) {
    ClusterShape shape = shape_of(nodes);
    shape.engine.ends_per_turn_max = ends_per_turn_max;
    return shape;
}

// Barriers, receives, and sends that nobody answers.
std::vector<const Call*> pend(Post& post, uint32_t rank, uint32_t other, size_t each) {
    std::vector<const Call*> calls;
    for (size_t i = 0; i < each; ++i) {
        calls.push_back(&post.cluster.submit(
            post.group, rank, request_of({OpKind::barrier, Dtype::u8, ReduceOp::sum, 0, 0}), {}, 0));
        calls.push_back(&post.recv(rank, other, 1, 4));
        calls.push_back(&post.send(rank, other, 2, i, 1));
    }
    return calls;
}

size_t ended(const std::vector<const Call*>& calls) {
    return static_cast<size_t>(std::ranges::count_if(calls, &Call::ended));
}

}  // namespace

TEST_CASE("a turn of the loop ends a bounded number of requests of a group that ends", "[G11]") {
    constexpr size_t max = 64, each = 500;
    Cluster cluster(1, shape_with(1, max));
    Post post(cluster, cluster.make_group({0, 0, 0}));
    const auto calls = pend(post, 1, 2, each);
    cluster.run_for(1s);
    REQUIRE(ended(calls) == 0);

    engine::Engine& engine = *cluster.hosts[0]->engine;
    const Time now = cluster.clock.now();
    engine.session_ended(now, post.group.sessions[0], engine::SessionEnd::crashed, "it crashed");
    size_t turns = 1;
    for (size_t before = 0; ended(calls) < calls.size(); ++turns) {
        REQUIRE(ended(calls) - before <= max + 1);  // the last collective has three ranks
        before = ended(calls);
        engine.check_invariants();
        REQUIRE(engine.wake_at() <= now);
        engine.on_time(now);
        REQUIRE(turns < 100 * calls.size() / max);
    }
    CHECK(turns >= calls.size() / max);
    for (const Call* call : calls) CHECK(call->outcome.error.code == Errc::peer_lost);
    cluster.run_for(1s);
    cluster.check();
}

TEST_CASE("sessions with many requests that end leave one another's groups and the loop to others", "[G11]") {
    for (const uint64_t seed : seeds(6)) {
        for (const bool crashed : {true, false}) {
            CAPTURE(seed, crashed);
            Cluster cluster(seed, shape_with(2, 1 + seed % 16));
            Post taker(cluster, cluster.make_group({0, 0, 1})), second(cluster, cluster.make_group({0, 1}));
            Program neighbour(cluster, cluster.make_group({0, 1}));
            for (size_t i = 0; i < 8; ++i)
                neighbour.add({OpKind::all_reduce, Dtype::i32, ReduceOp::sum, 500, 0});
            std::vector<const Call*> calls = pend(taker, 1, 2, 60);
            pend(taker, 0, 1, 60);
            pend(second, 0, 1, 60);
            for (const Call* call : pend(second, 1, 0, 60)) calls.push_back(call);
            neighbour.start(Duration{20'000});
            cluster.end_session(taker.group, 0, crashed);
            cluster.end_session(second.group, 0, crashed);
            cluster.run_for(40s);  // collectives that a rank has not called stay: no end of all of them
            CHECK(neighbour.wrong() == "");
            for (const Call* call : calls) CHECK(call->ended);
            cluster.check();
        }
    }
}

TEST_CASE("all requests of a session that gave its daemon up end at once, however many they are",
          "[G11][S15]") {
    Cluster cluster(1, shape_with(1, 4));
    Post post(cluster, cluster.make_group({0, 0}));
    const Call& first = post.recv(0, 1, 9, 100);
    pend(post, 0, 1, 100);
    cluster.end_session(post.group, 0, engine::SessionEnd::given_up);
    const Call& late = post.send(1, 0, 9, 1, 100);
    cluster.run_for(1s);
    CHECK(late.ended);
    CHECK(!late.ok());
    CHECK(std::ranges::all_of(*first.out, [&](std::byte b) { return b == first.out->front(); }));
    cluster.check();
}

}  // namespace nexar::sim
