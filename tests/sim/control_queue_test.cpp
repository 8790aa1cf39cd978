// What a peer daemon that stands still for a while may do to control messages: nothing. They arrive once and
// in order, and those about failures are not crowded out by the rest.
#include <catch2/catch_test_macros.hpp>
#include <vector>

#include "program.hpp"

namespace nexar::sim {
namespace {

constexpr uint64_t messages = 1000;
constexpr Duration stands_still{20'000'000'000};

// Room for about a hundred offers between the two daemons; silence of a minute is no suspicion.
ClusterShape narrow() {
    ClusterShape shape;
    shape.collective_timeout = shape.barrier_timeout = Duration{0};
    shape.network.room = 8 << 10;
    shape.mesh.log.bytes_max = 16 << 10;
    shape.mesh.log.requests_bytes_max = 8 << 10;
    shape.mesh.log.account_bytes_max = 8 << 10;
    shape.mesh.log.opens_queued_bytes_max = 6 << 10;
    shape.mesh.log.opens_queued_bytes_of_account_max = 3 << 10;
    shape.mesh.log.prepares_bytes_max = 6 << 10;
    shape.mesh.log.refusals_bytes_max = 4 << 10;
    shape.engine.heartbeat_timeout = 60s;
    return shape;
}

Call& send(Cluster& cluster, const SimGroup& group, uint64_t salt) {
    engine::OpRequest r = request_of({OpKind::send, Dtype::i32, ReduceOp::sum, 1, 0});
    r.peer = 1;
    r.tag = 5;
    return cluster.submit(group, 0, r, Reference::input(salt, 0, 1, Dtype::i32), 0);
}

Call& recv(Cluster& cluster, const SimGroup& group) {
    engine::OpRequest r = request_of({OpKind::recv, Dtype::i32, ReduceOp::sum, 1, 0});
    r.peer = 0;
    r.tag = 5;
    return cluster.submit(group, 1, r, {}, 4);
}

// Rank 1 waits for rank 0, without a deadline.
Call& wait_at_barrier(Cluster& cluster, const SimGroup& group) {
    return cluster.submit(group, 1, request_of({OpKind::barrier, Dtype::u8, ReduceOp::sum, 0, 0}), {}, 0);
}
bool names_rank_0(const Call& call) {
    return call.ended && call.outcome.error.code == Errc::peer_lost && call.outcome.error.rank == 0;
}

// Rank 0 sends while node 1 stands still; then node 1 receives.
struct Flood {
    explicit Flood(Cluster& c) : cluster(c), group(c.make_group({0, 1})) {
        cluster.block(0, 1, true);
        for (uint64_t i = 0; i < messages; ++i) sent.push_back(&send(cluster, group, i));
        cluster.run_for(stands_still);
    }
    void over() {
        cluster.block(0, 1, false);
        cluster.run_for(1s);
        for (uint64_t i = 0; i < messages; ++i) received.push_back(&recv(cluster, group));
        sent.push_back(&send(cluster, group, messages));
        cluster.run_for(60s);
    }
    Cluster& cluster;
    SimGroup group;
    std::vector<Call*> sent, received;
};

// Groups of two that one user opens at the node that does not lead, and cancels at once.
struct OpenFlood {
    explicit OpenFlood(Cluster& c) : cluster(c), from(c.hosts[0]->id < c.hosts[1]->id ? 1 : 0) {}

    void open_and_cancel() {
        const std::string name = "flood-" + std::to_string(accepted + refused);
        const auto open = cluster.open(from, name, 2, 0, "s", 30s, 2001);
        if (!open.accepted) {
            ++refused;
            why = open.accepted.error();
            return;
        }
        ++accepted;
        cluster.hosts[from]->engine->cancel(cluster.clock.now(), open.session, open.ticket);
        cluster.hosts[from]->after_input();
    }
    Cluster& cluster;
    uint32_t from;
    uint64_t accepted = 0, refused = 0;
    Error why;
};

}  // namespace

TEST_CASE("messages sent while the peer's daemon stands still all arrive", "[D4][L9]") {
    Cluster cluster(1, narrow());
    Flood flood(cluster);
    flood.over();

    uint64_t lost = 0;
    for (const Call* call : flood.received) lost += !call->ended;
    CHECK(lost == 0);
}

TEST_CASE("a later message of the same tag does not overtake one that found the peer's daemon standing still",
          "[D4][L2]") {
    Cluster cluster(1, narrow());
    Flood flood(cluster);
    flood.over();

    uint64_t overtaken = 0;
    for (uint64_t i = 0; i < messages; ++i) {
        const Call& call = *flood.received[i];
        overtaken += call.ok() && call.out_at_end != Reference::input(i, 0, 1, Dtype::i32);
    }
    CHECK(overtaken == 0);
}

TEST_CASE("the failure of a group reaches its survivors once the peer's daemon goes on") {
    Cluster cluster(1, narrow());
    const SimGroup victim = cluster.make_group({0, 1});
    const Call& waits = wait_at_barrier(cluster, victim);
    cluster.block(0, 1, true);
    cluster.end_session(victim, 0, true);
    cluster.run_for(stands_still);
    cluster.block(0, 1, false);
    cluster.run_for(1s);

    CHECK(names_rank_0(waits));
}

TEST_CASE("the failure of a group reaches its survivors past another group's flood, too", "[H5][L8]") {
    Cluster cluster(1, narrow());
    const SimGroup victim = cluster.make_group({0, 1});
    const Call& waits = wait_at_barrier(cluster, victim);
    Flood flood(cluster);
    cluster.end_session(victim, 0, true);
    cluster.run_for(stands_still);
    flood.over();

    CAPTURE(waits.ended, waits.outcome.error.text, cluster.warnings);
    CHECK(names_rank_0(waits));
}

TEST_CASE("a user who opens and cancels groups faster than the leader takes it is refused, and nobody else",
          "[L8]") {
    Cluster cluster(1, narrow());
    const SimGroup victim = cluster.make_group({0, 1});
    const Call& waits = wait_at_barrier(cluster, victim);
    OpenFlood flood(cluster);
    cluster.block(flood.from, 1 - flood.from, true);
    for (uint64_t i = 0; i < messages; ++i) flood.open_and_cancel();
    const auto other = cluster.open(flood.from, "other", 2, 0, "s", 600s, 2002);
    cluster.run_for(stands_still);
    cluster.block(flood.from, 1 - flood.from, false);
    const Call& last =
        cluster.submit(victim, 0, request_of({OpKind::barrier, Dtype::u8, ReduceOp::sum, 0, 0}), {}, 0);
    cluster.run_for(10s);
    const auto join = cluster.open(1 - flood.from, "other", 2, 1, "s", 600s, 2002);
    flood.accepted = 0;
    flood.open_and_cancel();
    cluster.run_for(1s);

    CAPTURE(waits.outcome.error.text, cluster.warnings);
    CHECK((waits.ok() && last.ok()));
    CHECK(flood.refused > messages / 2);
    CHECK(flood.why.code == Errc::table_full);
    CHECK(flood.why.text.contains("control log"));
    CHECK(flood.accepted == 1);
    REQUIRE(other.accepted.has_value());
    for (const auto& open : {other, join}) {
        const auto* answer = cluster.answer(open);
        REQUIRE(answer != nullptr);
        CHECK(answer->has_value());
    }
    cluster.check();
}

TEST_CASE("opens that the leader refuses at the rate at which they come crowd out nothing", "[L8][R24]") {
    Cluster cluster(1, narrow());
    const SimGroup victim = cluster.make_group({0, 1});
    const Call& waits = wait_at_barrier(cluster, victim);
    const uint32_t from = cluster.hosts[0]->id < cluster.hosts[1]->id ? 1 : 0;
    const auto first = cluster.open(from, "taken", 2, 0, "s", 600s, 2001);
    cluster.run_for(10ms);
    // The leader receives everything at once, and this node what it answers only later.
    std::vector<Cluster::Open> opens;
    for (uint64_t i = 0; i < 20; ++i) {
        cluster.block(1 - from, from, true);
        for (uint64_t j = 0; j < 50; ++j) {
            auto open = cluster.open(from, "taken", 2, 0, "s", 600s, 2001);
            if (open.accepted) opens.push_back(std::move(open));
            cluster.run_for(100us);
        }
        cluster.block(1 - from, from, false);
        cluster.run_for(1s);
    }
    const Call& last =
        cluster.submit(victim, 0, request_of({OpKind::barrier, Dtype::u8, ReduceOp::sum, 0, 0}), {}, 0);
    cluster.run_for(10s);

    CAPTURE(waits.outcome.error.text, cluster.warnings);
    CHECK((waits.ok() && last.ok()));
    CHECK(opens.size() >= 80);
    CHECK(cluster.answer(first) == nullptr);
    for (const auto& open : opens) {
        const auto* answer = cluster.answer(open);
        REQUIRE(answer != nullptr);
        CHECK(answer->error().code == Errc::rank_clash);
    }
    cluster.check();
}

}  // namespace nexar::sim
