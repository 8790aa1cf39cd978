// Ranks as such: several of one session, and one that frees its group while it has requests pending; match
// ids, the group's time-outs, and what an error says about who is at fault.
#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>

#include "program.hpp"
#include "seeds.hpp"

namespace nexar::sim {
namespace {

ClusterShape three_nodes() {
    ClusterShape shape;
    shape.nodes = 3;
    shape.plan = {1, 1024, 256, 512, 8192, 2};
    return shape;
}

OpDescriptor all_reduce(uint64_t count, uint64_t match_id = 0) {
    return {OpKind::all_reduce, Dtype::i32, ReduceOp::sum, count, 0, match_id};
}

void expect_end(Cluster& cluster) {
    const bool finished = cluster.run();
    INFO(cluster.unfinished());
    REQUIRE(finished);
    cluster.check();
}

engine::OpRequest message(OpKind kind, uint32_t peer, uint64_t count, uint64_t tag = 5) {
    engine::OpRequest r = request_of({kind, Dtype::i32, ReduceOp::sum, count, 0});
    r.peer = peer;
    r.tag = tag;
    return r;
}
Call& send(Cluster& cluster, const SimGroup& group, uint32_t from, uint32_t to, uint64_t count,
           uint64_t salt = 1) {
    return cluster.submit(group, from, message(OpKind::send, to, count),
                          Reference::input(salt, 0, count, Dtype::i32), 0);
}
Call& recv(Cluster& cluster, const SimGroup& group, uint32_t at, uint32_t from, uint64_t count) {
    return cluster.submit(group, at, message(OpKind::recv, from, count), {}, count * 4);
}

void expect_code(const Call& call, Errc code, int64_t rank) {
    CAPTURE(call.outcome.error.text, name_of(call.outcome.error.code));
    REQUIRE(call.ended);
    REQUIRE(call.outcome.error.code == code);
    REQUIRE(call.outcome.error.rank == rank);
}

const std::vector<std::vector<uint32_t>> placements = {{0, 1, 2}, {0, 0, 0}, {0, 0, 1}, {0, 1, 0}};

}  // namespace

TEST_CASE("all collectives are right when a session has several ranks, or all", "[D3]") {
    for (const uint64_t seed : seeds(30)) {
        CAPTURE(seed);
        Random random(seed * 11 + 3);
        Cluster cluster(seed, three_nodes());
        std::vector<uint32_t> placement;
        const uint64_t nodes = 1 + random.below(3);
        for (uint64_t i = 0; i < 2 + random.below(6); ++i)
            placement.push_back(static_cast<uint32_t>(random.below(nodes)));
        Program program(cluster, cluster.make_group(placement, {}, true));
        if (random.one_in(2)) program.stage(3);
        for (const OpKind kind : collective_kinds)
            for (const uint64_t count : {1u, 700u, 5000u}) {
                OpDescriptor d{kind, Dtype::i32, ReduceOp::sum, count_for(kind, count), 0};
                if (row_of(kind).rooted) d.root = static_cast<uint32_t>(random.below(placement.size()));
                program.add(d);
            }
        program.start(Duration(50'000), 1 + random.below(4));
        expect_end(cluster);
        REQUIRE(program.wrong() == "");
    }
}

TEST_CASE("messages reach the rank that they are for, of several in one session", "[D3]") {
    for (const std::vector<uint32_t>& placement : placements) {
        CAPTURE(placement);
        Cluster cluster(3, three_nodes());
        const SimGroup group = cluster.make_group(placement, {}, true);
        struct Sent {
            uint32_t from, to;
            Call* received;
        };
        std::vector<Sent> all;
        for (uint32_t to = 0; to < 3; ++to)
            for (uint32_t from = 0; from < 3; ++from)
                all.push_back({from, to, &recv(cluster, group, to, from, 3000)});
        for (const Sent& s : all) send(cluster, group, s.from, s.to, 3000, 10 * s.from + s.to);
        expect_end(cluster);
        for (const Sent& s : all) {
            CAPTURE(s.from, s.to);
            REQUIRE(s.received->ok());
            REQUIRE(s.received->outcome.source == s.from);
            REQUIRE(s.received->out_at_end == Reference::input(10 * s.from + s.to, 0, 3000, Dtype::i32));
        }
    }
}

TEST_CASE("one rank of a session frees the group, the other stays; the session's end ends all", "[D3]") {
    Cluster cluster(3, three_nodes());
    const SimGroup group = cluster.make_group({0, 0, 1}, {}, true);
    REQUIRE(cluster.free_group(group, 0));
    REQUIRE(cluster.free_group(group, 0).error().code == Errc::closed);
    Call& message_on = recv(cluster, group, 1, 2, 100);
    send(cluster, group, 2, 1, 100);
    cluster.run_for(10ms);
    REQUIRE(message_on.ok());
    expect_code(recv(cluster, group, 1, 0, 100), Errc::peer_lost, 0);

    cluster.end_session(group, 1);
    Call& after = recv(cluster, group, 2, 1, 100);
    expect_end(cluster);
    expect_code(after, Errc::peer_lost, 1);
}

// ---- A rank that frees the group with requests pending ----

TEST_CASE("freeing a group while others are still to come: CLOSED at once, ABORTED for all others",
          "[D7][F18]") {
    for (const std::vector<uint32_t>& placement : placements) {
        CAPTURE(placement);
        ClusterShape shape = three_nodes();
        shape.collective_timeout = Duration{0};
        Cluster cluster(4, shape);
        Program program(cluster, cluster.make_group(placement));
        for (int i = 0; i < 4; ++i) program.add(all_reduce(500));
        for (size_t step : {0u, 1u})
            for (uint32_t rank : {0u, 1u}) program.post(step, rank);
        cluster.run_for(5ms);

        REQUIRE(cluster.free_group(program.group, 1));
        cluster.run_for(50us);  // what was in flight is taken back first
        for (size_t step : {0u, 1u}) expect_code(*program.steps[step].calls[1], Errc::closed, -1);
        cluster.run_for(5ms);
        for (size_t step : {0u, 1u}) expect_code(*program.steps[step].calls[0], Errc::aborted, 1);
        // Who comes later gets the same; what needs the rank and was begun later is another matter.
        for (size_t step : {0u, 1u, 2u}) program.post(step, 2);
        program.post(2, 0);
        expect_end(cluster);
        for (size_t step : {0u, 1u}) expect_code(*program.steps[step].calls[2], Errc::aborted, 1);
        for (uint32_t rank : {0u, 2u}) {
            expect_code(*program.steps[2].calls[rank], Errc::peer_lost, 1);
            REQUIRE(program.steps[0].calls[rank]->outcome.sequence == 0);
            REQUIRE(program.steps[1].calls[rank]->outcome.sequence == 1);
        }
    }
}

TEST_CASE("freeing a group with collectives in flight, at any moment: one end per call, no wrong result",
          "[D7]") {
    size_t closed = 0, aborted = 0;
    for (const uint64_t seed : seeds(120)) {
        CAPTURE(seed);
        ClusterShape shape = three_nodes();
        shape.collective_timeout = Duration{0};
        Cluster cluster(seed, shape);
        Random random(seed * 7 + 1);
        Program program(cluster, cluster.make_group(placements[seed % placements.size()]));
        if (seed % 3 == 0) program.stage(2);
        const OpKind kind = collective_kinds[random.below(collective_kinds.size())];
        const uint64_t count = count_for(kind, 20'000);
        for (int i = 0; i < 3; ++i) program.add({kind, Dtype::i32, ReduceOp::sum, count, 0});
        for (size_t step = 0; step < 3; ++step)
            for (uint32_t rank = 0; rank < 3; ++rank) program.post(step, rank);
        cluster.run_for(cluster.clock.some(600us));
        REQUIRE(cluster.free_group(program.group, 1));
        expect_end(cluster);
        for (const Step& step : program.steps)
            for (uint32_t rank = 0; rank < 3; ++rank) {
                const Call& call = *step.calls[rank];
                CAPTURE(rank, call.outcome.error.text);
                if (call.ok()) {
                    REQUIRE(program.wrong_result(step, rank) == "");
                } else {
                    expect_code(call, rank == 1 ? Errc::closed : Errc::aborted, rank == 1 ? -1 : 1);
                    ++(rank == 1 ? closed : aborted);
                }
            }
    }
    REQUIRE(met(closed));
    REQUIRE(met(aborted));
}

TEST_CASE("freeing a group with receives pending: CLOSED here, ABORTED for who waits, PEER_LOST later",
          "[D7][F18]") {
    for (const std::vector<uint32_t>& placement : placements) {
        CAPTURE(placement);
        ClusterShape shape = three_nodes();
        shape.collective_timeout = Duration{0};
        Cluster cluster(5, shape);
        const SimGroup group = cluster.make_group(placement);
        Call& own_recv = recv(cluster, group, 1, 2, 100);
        Call& own_any = recv(cluster, group, 1, engine::any_rank, 100);
        cluster.cancel(group, 1, own_any);  // and one more that has ended before
        Call& own_any_now = cluster.submit(group, 1, message(OpKind::recv, engine::any_rank, 10, 77), {}, 40);
        Call& send_to = cluster.submit(group, 0, message(OpKind::send, 1, 10, 6),
                                       Reference::input(9, 0, 10, Dtype::i32), 0);
        Call& big_send_to = cluster.submit(group, 2, message(OpKind::send, 1, 60'000, 6),
                                           Reference::input(9, 0, 60'000, Dtype::i32), 0);
        Call& recv_from = cluster.submit(group, 2, message(OpKind::recv, 1, 10, 8), {}, 40);
        Call& any = cluster.submit(group, 2, message(OpKind::recv, engine::any_rank, 10, 9), {}, 40);
        cluster.run_for(5ms);
        for (const Call* call : {&own_recv, &own_any_now, &send_to, &big_send_to, &recv_from, &any})
            REQUIRE_FALSE(call->ended);

        REQUIRE(cluster.free_group(group, 1));
        cluster.run_for(5ms);
        for (const Call* call : {&own_recv, &own_any_now}) expect_code(*call, Errc::closed, -1);
        for (const Call* call : {&send_to, &big_send_to, &recv_from}) expect_code(*call, Errc::aborted, 1);
        REQUIRE_FALSE(any.ended);  // rank 0 may still send

        expect_code(recv(cluster, group, 0, 1, 60'000), Errc::peer_lost, 1);
        expect_code(send(cluster, group, 2, 1, 10), Errc::peer_lost, 1);
        cluster.submit(group, 0, message(OpKind::send, 2, 10, 9), Reference::input(3, 0, 10, Dtype::i32), 0);
        expect_end(cluster);
        REQUIRE(any.ok());
        REQUIRE(any.out_at_end == Reference::input(3, 0, 10, Dtype::i32));
    }
}

TEST_CASE("freeing a group while messages of its rank are on their way, at any moment", "[D7]") {
    size_t closed = 0, aborted = 0;
    for (const uint64_t seed : seeds(120)) {
        CAPTURE(seed);
        ClusterShape shape = three_nodes();
        shape.collective_timeout = Duration{0};
        Cluster cluster(seed, shape);
        const SimGroup group = cluster.make_group(placements[seed % placements.size()]);
        const uint64_t count = seed % 2 ? 100 : 60'000;
        Call& out = send(cluster, group, 1, 0, count, 4);
        Call& out_end = recv(cluster, group, 0, seed % 5 ? 1 : engine::any_rank, count);
        Call& in_end = recv(cluster, group, 1, 2, count);
        Call& in = send(cluster, group, 2, 1, count, 5);
        cluster.run_for(cluster.clock.some(400us));
        REQUIRE(cluster.free_group(group, 1));
        expect_end(cluster);
        REQUIRE((out.ok() && out_end.ok()));  // what it has sent arrives
        REQUIRE(out_end.out_at_end == Reference::input(4, 0, count, Dtype::i32));
        if (!in_end.ok()) expect_code(in_end, Errc::closed, -1), ++closed;
        if (!in.ok()) expect_code(in, Errc::aborted, 1), ++aborted;
        REQUIRE(in.ok() == in_end.ok());
        if (in_end.ok()) REQUIRE(in_end.out_at_end == Reference::input(5, 0, count, Dtype::i32));
    }
    REQUIRE(met(closed));
    REQUIRE(met(aborted));
}

TEST_CASE("what a rank has sent arrives, whether it then frees the group or closes its session", "[F18]") {
    for (const std::vector<uint32_t>& placement : placements)
        for (const bool freed : {true, false})
            for (const uint64_t count : {0u, 100u, 60'000u}) {
                CAPTURE(placement, freed, count);
                ClusterShape shape = three_nodes();
                shape.collective_timeout = Duration{0};
                Cluster cluster(5, shape);
                const SimGroup group = cluster.make_group(placement);
                Call& out = send(cluster, group, 1, 0, count, 4);
                Call& other = send(cluster, group, 1, 2, count, 5);
                cluster.run_for(5ms);
                if (freed)
                    REQUIRE(cluster.free_group(group, 1));
                else
                    cluster.end_session(group, 1, false);
                cluster.run_for(5ms);
                REQUIRE_FALSE((out.ended || other.ended));

                Call& in = recv(cluster, group, 0, 1, count);
                Call& in_other = recv(cluster, group, 2, engine::any_rank, count);
                expect_end(cluster);
                REQUIRE((in.ok() && in_other.ok()));
                REQUIRE(in.out_at_end == Reference::input(4, 0, count, Dtype::i32));
                REQUIRE(in_other.out_at_end == Reference::input(5, 0, count, Dtype::i32));
                if (freed) REQUIRE((out.ok() && other.ok()));
                expect_code(recv(cluster, group, 0, 1, count), Errc::peer_lost, 1);
                expect_end(cluster);
            }
}

TEST_CASE("a send of a rank that has freed the group still has its deadline, and can be cancelled") {
    for (const std::vector<uint32_t>& placement : placements) {
        CAPTURE(placement);
        ClusterShape shape = three_nodes();
        shape.collective_timeout = 1s;
        Cluster cluster(5, shape);
        const SimGroup group = cluster.make_group(placement);
        Call& late = send(cluster, group, 1, 0, 60'000);
        Call& cancelled = send(cluster, group, 1, 0, 60'000);
        REQUIRE(cluster.free_group(group, 1));
        cluster.run_for(5ms);
        cluster.cancel(group, 1, cancelled);
        cluster.run_for(5ms);
        expect_code(cancelled, Errc::cancelled, -1);
        REQUIRE_FALSE(late.ended);
        expect_end(cluster);
        expect_code(late, Errc::timed_out, 0);
        for (uint32_t rank : {0u, 2u}) REQUIRE(cluster.free_group(group, rank));
        cluster.run_for(5ms);
        for (const auto& host : cluster.hosts)
            REQUIRE(host->engine->snapshot(cluster.clock.now()).groups.empty());
    }
}

TEST_CASE("a rank that takes its last message and frees the group fails nobody", "[D7]") {
    for (const uint64_t seed : seeds(40)) {
        CAPTURE(seed);
        Cluster cluster(seed, three_nodes());
        const SimGroup group = cluster.make_group(placements[seed % placements.size()]);
        Call& in = send(cluster, group, 0, 1, seed % 2 ? 10 : 60'000);
        Call& end = recv(cluster, group, 1, 0, 60'000);
        while (!end.ended) cluster.run_for(10us);
        REQUIRE(cluster.free_group(group, 1));
        expect_end(cluster);
        REQUIRE((end.ok() && in.ok()));
    }
}

// ---- Match ids ----

TEST_CASE("match ids that differ are a mismatch that names both sides, on all ranks", "[D19]") {
    for (const std::vector<uint32_t>& placement : placements)
        for (const OpKind kind : collective_kinds) {
            CAPTURE(placement, static_cast<int>(kind));
            Cluster cluster(6, three_nodes());
            const SimGroup group = cluster.make_group(placement);
            std::vector<Call*> calls;
            for (uint32_t rank = 0; rank < 3; ++rank) {
                OpDescriptor d{kind, Dtype::i32, ReduceOp::sum, count_for(kind, 900), 0, 7};
                if (rank == 2) d.match_id = 8;
                engine::OpRequest request = request_of(d);
                // Each has some, or nobody would wait for the one that has none.
                if (has_counts(row_of(kind)))
                    request.counts =
                        std::make_shared<const Counts>(*Counts::of(std::array{300ul, 300ul, 300ul}));
                calls.push_back(
                    &cluster.submit(group, rank, request, std::vector<std::byte>(3 * 3600), 3 * 3600));
            }
            expect_end(cluster);
            size_t named = 0;
            for (const Call* call : calls) {
                // Who only gives, or has a result of others only, may have ended before.
                if (call->ok()) continue;
                ++named;
                CAPTURE(call->outcome.error.text);
                REQUIRE(call->outcome.error.code == Errc::mismatch);
                REQUIRE(call->outcome.error.text.contains("match_id 7"));
                REQUIRE(call->outcome.error.text.contains("match_id 8"));
                REQUIRE(call->outcome.error.text.contains("rank 2 ("));
            }
            const bool of_lower = kind == OpKind::scan || kind == OpKind::exclusive_scan;
            REQUIRE(named >= (of_lower ? 1u : 2u));
        }
}

TEST_CASE("match ids that agree change nothing, whatever they are and in whatever order", "[D19]") {
    Cluster cluster(6, three_nodes());
    Program program(cluster, cluster.make_group({0, 1, 2, 0}));
    for (const uint64_t id : {uint64_t{5}, uint64_t{5}, uint64_t{0}, UINT64_MAX, uint64_t{1}})
        for (const OpKind kind : collective_kinds)
            program.add({kind, Dtype::i32, ReduceOp::sum, count_for(kind, 900), 0, id});
    program.start(30us, 4);
    expect_end(cluster);
    REQUIRE(program.wrong() == "");
}

// ---- Time-outs, and who is at fault ----

TEST_CASE(
    "an operation without a time-out of its own has the group's for its kind; the text says what raises it",
    "[U19]") {
    ClusterShape shape = three_nodes();
    shape.collective_timeout = 3s;
    shape.barrier_timeout = 1s;
    Cluster cluster(6, shape);
    const SimGroup group = cluster.make_group({0, 1});
    Call& barrier =
        cluster.submit(group, 0, request_of({OpKind::barrier, Dtype::f32, ReduceOp::sum, 0, 0}), {}, 0);
    Call& message = recv(cluster, group, 0, 1, 10);
    Call& reduce = cluster.submit(group, 0, request_of(all_reduce(1)), std::vector<std::byte>(4), 4);
    cluster.run_for(2s);
    expect_code(barrier, Errc::timed_out, 1);
    REQUIRE_FALSE(message.ended);
    REQUIRE_FALSE(reduce.ended);
    cluster.run_for(2s);
    expect_code(message, Errc::timed_out, 1);
    expect_code(reduce, Errc::timed_out, 1);
    // In the words of who set it: not how long it took until that was seen.
    REQUIRE(barrier.outcome.error.text.contains("within 1000 ms, the deadline of rank 0"));
    REQUIRE(message.outcome.error.text.contains("within 3000 ms"));
    REQUIRE(reduce.outcome.error.text.contains("within 3000 ms, the deadline of rank 0"));
    for (const auto& [call, what] :
         {std::pair(&barrier, "barrier"), {&reduce, "collective"}, {&message, "collective"}}) {
        const std::string kind = what, variable = kind == "barrier" ? "BARRIER" : "COLLECTIVE";
        INFO(call->outcome.error.text);
        REQUIRE(call->outcome.error.text.contains("timeout_ms of the call, " + kind +
                                                  "_timeout_ms of the group, or NEXAR_" + variable +
                                                  "_TIMEOUT_SECS"));
    }
    REQUIRE(reduce.outcome.error.pid == 1001);
    REQUIRE(reduce.outcome.error.host == "host1");
    REQUIRE((reduce.outcome.sequence == 1 && reduce.outcome.epoch == 1));
    REQUIRE(message.outcome.sequence == engine::no_sequence);
    const auto snapshot = cluster.hosts[0]->engine->snapshot(cluster.clock.now());
    REQUIRE(snapshot.groups.at(0).timeouts == engine::Timeouts{3s, 1s, 0s});
}

TEST_CASE("PEER_LOST names host, pid and the lost ranks: one of a process, all of a node", "[F19]") {
    for (const bool node : {false, true}) {
        CAPTURE(node);
        Cluster cluster(6, three_nodes());
        Program program(cluster, cluster.make_group({1, 0, 1, 2, 1}));
        program.add(all_reduce(10));
        program.add(all_reduce(10));
        for (uint32_t rank : {1u, 3u}) program.post(0, rank);
        cluster.run_for(5ms);
        if (node)
            cluster.kill(1, true);
        else
            cluster.end_session(program.group, 2);
        cluster.run_for(20s);
        for (uint32_t rank : {1u, 3u}) {
            const Error& error = program.steps[0].calls[rank]->outcome.error;
            expect_code(*program.steps[0].calls[rank], Errc::peer_lost, node ? 0 : 2);
            REQUIRE(error.lost_ranks == (node ? std::vector<uint32_t>{0, 2, 4} : std::vector<uint32_t>{2}));
            REQUIRE(error.host == "host1");
            REQUIRE(error.node == cluster.hosts[1]->id.hex());
            REQUIRE(error.pid == (node ? 1000 : 1002));
            // And so does what is refused from then on.
            const Error& later = program.post(1, rank).outcome.error;
            REQUIRE(later.lost_ranks == error.lost_ranks);
            REQUIRE((later.host == error.host && later.pid == error.pid));
        }
    }
}

TEST_CASE("PEER_LOST lists all ranks that its node knows to be lost when it says so", "[F19]") {
    for (const bool first_is_here : {true, false}) {
        CAPTURE(first_is_here);
        Cluster cluster(7, three_nodes());
        Program program(cluster, cluster.make_group({0, 0, 1, 1, 0, 2, 1}));
        for (int i = 0; i < 3; ++i) program.add(all_reduce(10));
        for (uint32_t rank : {0u, 6u}) program.post(0, rank);
        cluster.run_for(5ms);
        const std::vector<uint32_t> order =
            first_is_here ? std::vector<uint32_t>{1, 2, 4} : std::vector<uint32_t>{2, 1, 4};
        for (uint32_t rank : order) {
            cluster.end_session(program.group, rank);
            cluster.run_for(10ms);
        }
        for (uint32_t rank : {0u, 6u}) {
            expect_code(*program.steps[0].calls[rank], Errc::peer_lost, order[0]);
            REQUIRE(program.steps[0].calls[rank]->outcome.error.lost_ranks ==
                    std::vector<uint32_t>{order[0]});
            const Error& later = program.post(1, rank).outcome.error;
            REQUIRE(later.rank == order[0]);
            REQUIRE(later.lost_ranks == std::vector<uint32_t>{1, 2, 4});
        }
        // A rank that leaves in good order is not lost; a node that is, takes all of its ranks.
        cluster.end_session(program.group, 3, false);
        cluster.kill(2, true);
        cluster.run_for(20s);
        for (uint32_t rank : {0u, 6u})
            REQUIRE(program.post(2, rank).outcome.error.lost_ranks == std::vector<uint32_t>{1, 2, 4, 5});
    }
}

}  // namespace nexar::sim
