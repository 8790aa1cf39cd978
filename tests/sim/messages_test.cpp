// Send and receive: order, tags, any source, one node and several, too long, cancelled, withdrawn, refused.
#include <catch2/catch_test_macros.hpp>

#include "post.hpp"
#include "seeds.hpp"

namespace nexar::sim {
TEST_CASE("messages of one pair arrive in the order in which they were sent, small and large, near and far") {
    for (const std::vector<uint32_t>& placement : {std::vector<uint32_t>{0, 1}, {0, 0}})
        for (const uint64_t seed : seeds(30)) {
            CAPTURE(seed, placement);
            Cluster cluster(seed, shape_of(2));
            Post post(cluster, cluster.make_group(placement));
            const uint64_t counts[] = {1, 50'000, 0, 3, 20'000, 7, 100, 9000};
            std::vector<Call*> received;
            for (uint64_t i = 0; i < 8; ++i) {
                post.send(0, 1, 5, i, counts[i]);
                if (seed % 2) cluster.run_for(cluster.clock.some(30us));
                received.push_back(&post.recv(1, seed % 3 ? 0 : engine::any_rank, 5, 60'000));
            }

            expect_end(cluster);

            for (uint64_t i = 0; i < 8; ++i) expect_message(*received[i], i, counts[i], 0, 5);
        }
}

TEST_CASE("messages without bytes survive a channel that breaks, in their order among the others") {
    for (const uint64_t seed : seeds(60)) {
        CAPTURE(seed);
        Cluster cluster(seed, shape_of(2));
        Post post(cluster, cluster.make_group({0, 1}));
        const uint64_t counts[] = {3, 0, 5000, 0, 0, 40'000, 0, 2};
        cluster.clock.after(cluster.clock.some(100us),
                            [&] { cluster.break_channel(0, 1, cluster.clock.some(200us)); });
        for (uint64_t i = 0; i < 8; ++i) {
            post.send(0, 1, 5, i, counts[i]);
            cluster.run_for(cluster.clock.some(20us));
        }
        std::vector<Call*> received;
        for (uint64_t i = 0; i < 8; ++i) received.push_back(&post.recv(1, 0, 5, 60'000));

        expect_end(cluster);

        for (uint64_t i = 0; i < 8; ++i) expect_message(*received[i], i, counts[i], 0, 5);
    }
}

TEST_CASE("a message without bytes ends as others do: when it was received; none is lost or refused",
          "[L9]") {
    for (const std::vector<uint32_t>& placement : {std::vector<uint32_t>{0, 1}, {0, 0}}) {
        CAPTURE(placement);
        Cluster cluster(1, shape_of(2));
        Post post(cluster, cluster.make_group(placement));
        constexpr size_t all = 1124;  // more than a node keeps of unexpected ones
        std::vector<Call*> sent, received;
        for (uint64_t i = 0; i < all; ++i) sent.push_back(&post.send(0, 1, i, i, 0));
        cluster.run_for(100ms);
        for (const Call* call : sent) REQUIRE_FALSE(call->ended);
        for (uint64_t i = 0; i < all; ++i) received.push_back(&post.recv(1, 0, static_cast<int64_t>(i), 0));

        expect_end(cluster);

        for (uint64_t i = 0; i < all; ++i) {
            REQUIRE(sent[i]->ok());
            expect_message(*received[i], i, 0, 0, i);
        }
    }
}

TEST_CASE(
    "a message of more chunks than a transfer may have is refused, at the sender and from a node that offers "
    "it") {
    ClusterShape shape = shape_of(2);
    shape.plan.chunk_bytes = 64;  // the plan of the group's creator
    Cluster cluster(1, shape);
    Post post(cluster, cluster.make_group({0, 1}));
    constexpr uint64_t most = uint64_t{64} << 20;
    Call& recv = post.recv(1, 0, 5, most / 4 + 1);
    engine::OpRequest r = request_of({OpKind::send, Dtype::i32, ReduceOp::sum, most / 4 + 1, 0});
    r.peer = 1;
    r.tag = 5;
    Call& send = cluster.submit(post.group, 0, r, std::vector<std::byte>(most + 4), 0);
    REQUIRE_FALSE(send.accepted);
    REQUIRE(send.outcome.error.code == Errc::invalid_argument);
    REQUIRE(send.outcome.error.text.contains(std::to_string(most)));

    const uint64_t number = link::OpKey::message_bit | 9;
    cluster.hosts[1]->engine->on_message(
        cluster.clock.now(), link::PeerIndex(0),
        wire::MessageOffer{post.group.id, 1, 0, 1, 5, most + 4, static_cast<uint8_t>(Dtype::i32), number});
    cluster.hosts[1]->after_input();
    cluster.run_for(1ms);
    REQUIRE_FALSE(recv.ended);
}

TEST_CASE("a receive takes the oldest message with its tag and source") {
    Cluster cluster(2, shape_of(2));
    Post post(cluster, cluster.make_group({0, 1, 0, 1}));
    post.send(0, 1, 7, 100, 10);
    post.send(0, 1, 8, 101, 10);
    cluster.run_for(1ms);
    post.send(3, 1, 8, 102, 10);
    post.send(1, 1, 9, 103, 10);  // to itself
    cluster.run_for(1ms);

    Call& from_three = post.recv(1, 3, -1, 10);
    Call& tag_eight = post.recv(1, engine::any_rank, 8, 10);
    Call& anything = post.recv(1, engine::any_rank, -1, 10);
    Call& own = post.recv(1, 1, 9, 10);
    expect_end(cluster);

    expect_message(from_three, 102, 10, 3, 8);
    expect_message(tag_eight, 101, 10, 0, 8);
    expect_message(anything, 100, 10, 0, 7);
    expect_message(own, 103, 10, 1, 9);
}

TEST_CASE("a message that is too long, or of another type, is an error on both sides naming both") {
    for (const std::vector<uint32_t>& placement : {std::vector<uint32_t>{0, 1}, {0, 0}}) {
        CAPTURE(placement);
        Cluster cluster(3, shape_of(2));
        Post post(cluster, cluster.make_group(placement));

        Call& send = post.send(0, 1, 1, 5, 100);
        Call& recv = post.recv(1, 0, 1, 25);
        engine::OpRequest other = request_of({OpKind::recv, Dtype::f32, ReduceOp::sum, 100, 0});
        other.peer = 0;
        other.any_tag = true;
        Call& send_typed = post.send(0, 1, 1, 5, 100);
        Call& recv_typed = cluster.submit(post.group, 1, other, {}, 400);
        Call& send_after = post.send(0, 1, 1, 6, 20);
        Call& recv_after = post.recv(1, 0, 1, 25);
        expect_end(cluster);

        for (const Call* call : {&send, &recv}) {
            CAPTURE(call->outcome.error.text);
            REQUIRE(call->outcome.error.code == Errc::mismatch);
            REQUIRE(call->outcome.error.text.contains("400 bytes from rank 0"));
            REQUIRE(call->outcome.error.text.contains("100 bytes by rank 1"));
        }
        for (const Call* call : {&send_typed, &recv_typed}) {
            REQUIRE(call->outcome.error.code == Errc::mismatch);
            REQUIRE(call->outcome.error.text.contains("i32"));
            REQUIRE(call->outcome.error.text.contains("f32"));
        }
        REQUIRE(send_after.ok());
        expect_message(recv_after, 6, 20, 0, 1);
    }
}

TEST_CASE("a cancelled or late send leaves no trace: the receive takes the next message") {
    for (const bool by_deadline : {false, true})
        for (const uint64_t count : {10u, 100'000u}) {
            CAPTURE(by_deadline, count);
            Cluster cluster(4, shape_of(2));
            Post post(cluster, cluster.make_group({0, 1}));
            Call& first = post.send(0, 1, 1, 5, count, by_deadline ? Duration{2ms} : Duration{-1});
            Call& second = post.send(0, 1, 1, 6, count);
            cluster.run_for(1ms);
            if (!by_deadline) cluster.cancel(post.group, 0, first);
            cluster.run_for(5ms);

            Call& recv = post.recv(1, 0, 1, count);
            expect_end(cluster);

            CAPTURE(second.outcome.error.text, recv.outcome.error.text, cluster.unfinished());
            REQUIRE(first.outcome.error.code == (by_deadline ? Errc::timed_out : Errc::cancelled));
            REQUIRE(second.ok());
            expect_message(recv, 6, count, 0, 1);
        }
}

TEST_CASE("a send cancelled at any moment: the receive gets it, or the next one, whole") {
    for (const uint64_t seed : seeds(60)) {
        CAPTURE(seed);
        Cluster cluster(seed, shape_of(2));
        Post post(cluster, cluster.make_group({0, 1}));
        Call& recv = post.recv(1, 0, 1, 60'000);
        Call& first = post.send(0, 1, 1, 5, 50'000);
        Call& second = post.send(0, 1, 1, 6, 40'000);
        cluster.run_for(cluster.clock.some(400us));
        cluster.cancel(post.group, 0, first);
        cluster.run_for(20ms);

        if (first.ok()) {
            expect_message(recv, 5, 50'000, 0, 1);
        } else if (recv.outcome.bytes == 4 * 50'000) {  // applied whole, the acknowledgement came too late
            expect_message(recv, 5, 50'000, 0, 1);
        } else {
            expect_message(recv, 6, 40'000, 0, 1);
            REQUIRE(second.ok());
        }
        cluster.cancel(post.group, 0, second);
        expect_end(cluster);
    }
}

TEST_CASE("a receive whose cancel came too late: its sender succeeds, too") {
    size_t well = 0;
    for (const uint64_t seed : seeds(120)) {
        CAPTURE(seed);
        Cluster cluster(seed, shape_of(2));
        Post post(cluster, cluster.make_group({0, 1}));
        Call& recv = post.recv(1, 0, 1, 60'000);
        Call& send = post.send(0, 1, 1, seed, 50'000);
        cluster.run_for(cluster.clock.some(400us));
        cluster.cancel(post.group, 1, recv);
        while (!recv.ended) cluster.run_for(10us);
        cluster.run_for(20ms);
        if (!recv.ok()) continue;
        ++well;
        expect_message(recv, seed, 50'000, 0, 1);
        CAPTURE(send.outcome.error.text);
        REQUIRE((send.ended && send.ok()));
    }
    REQUIRE(met(well));
}

TEST_CASE("a cancelled receive ends alone: its message, also one that had begun, waits for the next",
          "[D8]") {
    Cluster cluster(5, shape_of(2));
    Post post(cluster, cluster.make_group({0, 1}));
    Call& waiting = post.recv(1, 0, 1, 100);
    cluster.run_for(100us);
    cluster.cancel(post.group, 1, waiting);
    REQUIRE(waiting.outcome.error.code == Errc::cancelled);
    cluster.block(0, 1, true);  // offers stay in the pipe ...
    Call& send = post.send(0, 1, 1, 5, 1'000'000);
    cluster.run_for(100us);
    cluster.block(0, 1, false);
    Call& begun = post.recv(1, 0, 1, 1'000'000);
    cluster.run_for(60us);
    REQUIRE_FALSE(begun.ended);

    cluster.cancel(post.group, 1, begun);
    cluster.run_for(10ms);

    REQUIRE(begun.outcome.error.code == Errc::cancelled);
    REQUIRE_FALSE(send.ended);
    Call& next = post.recv(1, 0, 1, 1'000'000);
    expect_end(cluster);
    REQUIRE(send.ok());
    expect_message(next, 5, 1'000'000, 0, 1);
}

TEST_CASE("the deadline of a receive is its own: the message that had begun waits for the next receive",
          "[D8]") {
    ClusterShape shape = shape_of(2);
    shape.collective_timeout = Duration{0};
    Cluster cluster(5, shape);
    Post post(cluster, cluster.make_group({0, 1}));
    Call& send = post.send(0, 1, 1, 5, 1'000'000);
    cluster.run_for(1ms);
    Call& late = post.recv(1, 0, 1, 1'000'000, 60us);
    cluster.run_for(10ms);
    REQUIRE(late.ended);
    REQUIRE(late.outcome.error.code == Errc::timed_out);

    Call& next = post.recv(1, 0, 1, 1'000'000);
    cluster.run_for(1s);
    CHECK((send.ended && send.ok()));
    CHECK((next.ended && next.ok() && next.out_at_end == Reference::input(5, 0, 1'000'000, Dtype::i32)));
}

TEST_CASE("a send that does not wait: received where a receive waits, else TIMED_OUT and never received") {
    for (const std::vector<uint32_t>& placement : {std::vector<uint32_t>{0, 1}, {0, 0}})
        for (const uint64_t count : {0u, 10u, 60'000u})
            for (const bool breaks : {false, true}) {
                CAPTURE(placement, count, breaks);
                ClusterShape shape = shape_of(2);
                shape.collective_timeout = Duration{0};
                Cluster cluster(5, shape);
                Post post(cluster, cluster.make_group(placement));
                Call& refused = post.send(0, 1, 1, 5, count, engine::OpRequest::only_now);
                Call& other_tag = post.recv(1, 0, 2, count);
                cluster.run_for(1ms);
                REQUIRE(refused.ended);
                CAPTURE(refused.outcome.error.text);
                REQUIRE(refused.outcome.error.code == Errc::timed_out);
                REQUIRE(refused.outcome.error.rank == 1);
                for (const char* named : {"rank 1", "tag 1", "rank 0"})
                    REQUIRE(refused.outcome.error.text.contains(named));

                Call& recv = post.recv(1, 0, 1, count);
                cluster.run_for(1ms);
                REQUIRE_FALSE((recv.ended || other_tag.ended));
                Call& send = post.send(0, 1, 1, 6, count, engine::OpRequest::only_now);
                if (breaks) cluster.break_channel(0, 1, 300us);
                cluster.run_for(20ms);
                expect_message(recv, 6, count, 0, 1);
                REQUIRE(send.ok());
                cluster.cancel(post.group, 1, other_tag);
                expect_end(cluster);
            }
}

TEST_CASE("a receive that does not wait takes the message that is here, however long it is") {
    for (const std::vector<uint32_t>& placement : {std::vector<uint32_t>{0, 1}, {0, 0}})
        for (const uint64_t count : {0u, 10u, 60'000u}) {
            CAPTURE(placement, count);
            Cluster cluster(5, shape_of(2));
            Post post(cluster, cluster.make_group(placement));
            Call& none = post.recv(1, 0, 1, count, engine::OpRequest::only_now);
            cluster.run_for(1us);
            Call& send = post.send(0, 1, 1, 5, count);
            cluster.run_for(1ms);
            REQUIRE((none.ended && !send.ended));
            REQUIRE(none.outcome.error.code == Errc::timed_out);

            Call& recv = post.recv(1, 0, 1, count, engine::OpRequest::only_now);
            expect_end(cluster);
            expect_message(recv, 5, count, 0, 1);
            REQUIRE(send.ok());
        }
}

TEST_CASE("a receive that does not wait ends when its sender takes the message back") {
    size_t taken_back = 0;
    for (const uint64_t seed : seeds(30)) {
        CAPTURE(seed);
        Cluster cluster(seed, shape_of(2));
        Post post(cluster, cluster.make_group({0, 1}));
        Call& send = post.send(0, 1, 1, 5, 60'000);
        cluster.run_for(1ms);
        Call& recv = post.recv(1, 0, 1, 60'000, engine::OpRequest::only_now);
        cluster.run_for(cluster.clock.some(100us));
        cluster.cancel(post.group, 0, send);
        cluster.run_for(20ms);
        REQUIRE(recv.ended);
        if (recv.ok()) continue;
        ++taken_back;
        REQUIRE(recv.outcome.error.code == Errc::timed_out);
        REQUIRE(send.outcome.error.code == Errc::cancelled);
        expect_end(cluster);
    }
    REQUIRE(met(taken_back));
}

TEST_CASE("a receive without a message ends at its deadline, naming what it waited for") {
    Cluster cluster(6, shape_of(2));
    Post post(cluster, cluster.make_group({0, 1}));

    Call& recv = post.recv(1, 0, 9, 10, 50ms);
    expect_end(cluster);

    REQUIRE(recv.outcome.error.code == Errc::timed_out);
    for (const char* named : {"rank 1", "rank 0", "tag 9"}) REQUIRE(recv.outcome.error.text.contains(named));
    REQUIRE(recv.outcome.error.rank == 0);
}

TEST_CASE("messages with a rank that is gone: what it had sent arrives, the rest names it") {
    for (const std::vector<uint32_t>& placement : {std::vector<uint32_t>{0, 1}, {0, 0}}) {
        CAPTURE(placement);
        Cluster cluster(8, shape_of(2));
        Post post(cluster, cluster.make_group(placement));
        post.send(0, 1, 1, 5, 50'000);
        Call& lost = post.send(1, 0, 1, 6, 10);  // rank 0 never receives it
        cluster.end_session(post.group, 0, false);
        cluster.run_for(5ms);

        Call& recv = post.recv(1, 0, 1, 50'000);
        Call& more = post.recv(1, 0, 1, 50'000);
        Call& send = post.send(1, 0, 1, 5, 10);
        expect_end(cluster);

        expect_message(recv, 5, 50'000, 0, 1);
        for (const Call* call : {&lost, &more, &send}) {
            REQUIRE(call->outcome.error.code == Errc::peer_lost);
            REQUIRE(call->outcome.error.rank == 0);
        }
    }
}

TEST_CASE("a receive from any rank ends when all other ranks have left; what they had sent arrives first",
          "[D14]") {
    for (const std::vector<uint32_t>& placement : {std::vector<uint32_t>{0, 1, 0}, {0, 0, 0}, {0, 1, 2}}) {
        CAPTURE(placement);
        ClusterShape shape = shape_of(3);
        shape.collective_timeout = Duration{0};
        Cluster cluster(8, shape);
        Post post(cluster, cluster.make_group(placement));
        Call& before = post.recv(1, engine::any_rank, 1, 100);
        Call& other_tag = post.recv(1, engine::any_rank, 9, 100);
        post.send(0, 1, 1, 5, 100);
        cluster.end_session(post.group, 0, false);
        cluster.run_for(100ms);
        expect_message(before, 5, 100, 0, 1);
        REQUIRE_FALSE(other_tag.ended);  // rank 2 may still send

        post.send(2, 1, 2, 6, 50'000);
        cluster.end_session(post.group, 2, false);
        cluster.run_for(100ms);

        REQUIRE(other_tag.ended);
        Call& sent_before = post.recv(1, engine::any_rank, 2, 50'000);
        Call& after = post.recv(1, engine::any_rank, -1, 100);
        expect_end(cluster);
        expect_message(sent_before, 6, 50'000, 2, 2);
        for (const Call* call : {&other_tag, &after}) {
            REQUIRE(call->outcome.error.code == Errc::peer_lost);
            REQUIRE((call->outcome.error.rank == 0 || call->outcome.error.rank == 2));
        }
    }
}

TEST_CASE("a rank that is alone in its group may wait for a message from itself", "[D14]") {
    Cluster cluster(8, shape_of(1));
    Post post(cluster, cluster.make_group({0}));
    Call& recv = post.recv(0, engine::any_rank, 1, 10);
    cluster.run_for(1ms);
    REQUIRE_FALSE(recv.ended);
    post.send(0, 0, 1, 5, 10);
    expect_end(cluster);
    expect_message(recv, 5, 10, 0, 1);
}

TEST_CASE("messages survive channels that break, in order and once") {
    for (const uint64_t seed : seeds(40)) {
        CAPTURE(seed);
        Cluster cluster(seed, shape_of(2));
        Post post(cluster, cluster.make_group({0, 1}));
        std::vector<Call*> received;
        for (int i = 0; i < 5; ++i)
            cluster.clock.after(cluster.clock.some(3ms),
                                [&] { cluster.break_channel(0, 1, cluster.clock.some(300us)); });
        for (uint64_t i = 0; i < 20; ++i) {
            post.send(0, 1, 5, i, 1 + 977 * i);
            cluster.run_for(cluster.clock.some(150us));
            received.push_back(&post.recv(1, 0, 5, 60'000));
        }

        expect_end(cluster);

        for (uint64_t i = 0; i < 20; ++i) expect_message(*received[i], i, 1 + 977 * i, 0, 5);
    }
}

TEST_CASE("a crash reaches a receive between live ranks; an orderly leave does not disturb it") {
    for (const bool crashed : {true, false}) {
        CAPTURE(crashed);
        Cluster cluster(7, shape_of(3));
        Post post(cluster, cluster.make_group({0, 1, 2}));
        Call& recv = post.recv(1, 0, 3, 10);
        cluster.run_for(1ms);

        cluster.end_session(post.group, 2, crashed);
        cluster.run_for(20ms);

        REQUIRE(recv.ended == crashed);
        if (crashed) {
            REQUIRE(recv.outcome.error.code == Errc::peer_lost);
            REQUIRE(recv.outcome.error.rank == 2);
        } else {
            post.send(0, 1, 3, 4, 10);
        }
        expect_end(cluster);
        if (!crashed) expect_message(recv, 4, 10, 0, 3);
    }
}

}  // namespace nexar::sim
