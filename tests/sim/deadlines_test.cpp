// Deadlines of one user that fall together: some in each turn of the loop, and others are served in between.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "engine/timers.hpp"
#include "post.hpp"
#include "rendezvous/rendezvous.hpp"

namespace nexar::sim {
namespace {

constexpr Duration timeout = 500ms;
constexpr size_t many = 400;

size_t ended(const std::vector<const Call*>& calls) {
    return static_cast<size_t>(std::ranges::count_if(calls, &Call::ended));
}

// A request of rank 0 that nobody answers.
const Call& pend(Post& post, OpKind kind) {
    if (kind == OpKind::recv) return post.recv(0, 1, 1, 4, timeout);
    if (kind == OpKind::send) return post.send(0, 1, 1, 7, 4, timeout);
    engine::OpRequest barrier = request_of({OpKind::barrier, Dtype::u8, ReduceOp::sum, 0, 0});
    barrier.timeout = timeout;
    return post.cluster.submit(post.group, 0, barrier, {}, 0);
}

}  // namespace

TEST_CASE("requests that time out together end some in a turn, and nobody waits behind them", "[N16]") {
    const OpKind kind = GENERATE(OpKind::recv, OpKind::send, OpKind::barrier);
    Cluster cluster(1, shape_of(1));
    Post taker(cluster, cluster.make_group({0, 0})), neighbour(cluster, cluster.make_group({0, 0}));
    std::vector<const Call*> calls;
    for (size_t i = 0; i < many; ++i) calls.push_back(&pend(taker, kind));
    const Call& one = pend(neighbour, kind);
    const Time due = cluster.clock.now() + timeout;
    cluster.run_for(timeout - 1ms);
    engine::Engine& engine = *cluster.hosts[0]->engine;
    REQUIRE(engine.wake_at() == due);
    REQUIRE(ended(calls) == 0);

    engine.on_time(due);  // one turn of the loop
    CHECK(one.ended);
    size_t before = ended(calls);
    CHECK(before <= engine::Timers::at_once_max);
    while (engine.wake_at() <= due) {
        // An operation of the neighbour is not held up behind those that are left.
        Call& sent = neighbour.send(0, 1, 2, before, 4);
        Call& received = neighbour.recv(1, 0, 2, 4);
        engine.on_time(due);
        CHECK(ended(calls) - before <= engine::Timers::at_once_max);
        CHECK(ended(calls) > before);
        before = ended(calls);
        CHECK(std::ranges::is_partitioned(calls, &Call::ended));  // in order
        CHECK(sent.ok());
        CHECK(received.ok());
    }
    CHECK(ended(calls) == many);
    for (const Call* call : calls) CHECK(call->outcome.error.code == Errc::timed_out);
    cluster.check();
}

TEST_CASE("opens that expire together end some in a turn, and nobody waits behind them", "[N16]") {
    constexpr uint32_t greedy = 2001, other = 2002;
    Cluster cluster(1, shape_of(1));
    const auto open = [&](uint32_t uid, size_t number) {
        return cluster.open(0, std::to_string(uid) + " " + std::to_string(number), 2, 0, "s", timeout, uid);
    };
    std::vector<Cluster::Open> opens;
    for (size_t i = 0; i < many; ++i) opens.push_back(open(greedy, i));
    const auto one = open(other, 0);
    const Time due = cluster.clock.now() + timeout;
    cluster.run_for(timeout - 1ms);
    engine::Engine& engine = *cluster.hosts[0]->engine;
    const auto answered = [&](const Cluster::Open& o) { return cluster.answer(o) != nullptr; };
    REQUIRE(engine.wake_at() == due);

    engine.on_time(due);
    CHECK(answered(one));
    size_t before = 0;
    for (size_t turns = 0; engine.wake_at() <= due && turns < many; ++turns) {
        const auto now = static_cast<size_t>(std::ranges::count_if(opens, answered));
        CHECK(now - before <= rendezvous::Config{}.due_at_once_max);
        CHECK(std::ranges::is_partitioned(opens, answered));
        before = now;
        engine.on_time(due);
    }
    for (const Cluster::Open& each : opens) {
        REQUIRE(answered(each));
        const auto& info = *cluster.answer(each);
        REQUIRE_FALSE(info);
        CHECK(info.error().code == Errc::group_incomplete);
        CHECK(info.error().text.contains("1 came: rank 0"));
    }
    cluster.check();
}

}  // namespace nexar::sim
