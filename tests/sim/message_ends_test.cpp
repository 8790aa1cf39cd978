// What becomes of a message whose receive ends early [D8].
#include "post.hpp"
#include "seeds.hpp"

namespace nexar::sim {

TEST_CASE("a receive that ends early, at any moment, has the message or leaves it to the next, in order",
          "[D8]") {
    size_t early = 0, well = 0;
    for (const uint64_t seed : seeds(240)) {
        const bool by_deadline = seed % 2 == 0, next_is_there = seed % 3 == 0, breaks = seed % 4 == 1;
        const uint64_t count = seed % 5 == 0 ? 2'000 : 50'000;
        CAPTURE(seed, by_deadline, next_is_there, breaks, count);
        ClusterShape shape = shape_of(2);
        shape.collective_timeout = Duration{0};
        Cluster cluster(seed, shape);
        Post post(cluster, cluster.make_group({0, 1}));
        std::vector<Call*> sent, received;
        for (uint64_t i = 0; i < 3; ++i) sent.push_back(&post.send(0, 1, i, seed + i, count + i));
        cluster.run_for(cluster.clock.some(300us));
        const Duration at = 1us + cluster.clock.some(400us);
        if (breaks)
            cluster.clock.after(cluster.clock.some(600us),
                                [&] { cluster.break_channel(0, 1, cluster.clock.some(200us)); });
        Call& first = post.recv(1, 0, -1, count + 9, by_deadline ? at : Duration{-1});
        if (!by_deadline) {
            cluster.run_for(at);
            cluster.cancel(post.group, 1, first);
        }
        if (next_is_there) received.push_back(&post.recv(1, 0, -1, count + 9));
        while (!first.ended) cluster.run_for(10us);
        if (first.ok()) received.insert(received.begin(), &first);
        (first.ok() ? well : early) += 1;
        while (received.size() < 3) received.push_back(&post.recv(1, engine::any_rank, -1, count + 9));

        cluster.run_for(1s);
        // The next receive had begun with the second message: the first one would come after it.
        const bool passed = by_deadline && next_is_there && !first.ok() && !sent[0]->ok();
        if (passed) {
            REQUIRE((sent[0]->ended && sent[0]->outcome.error.code == Errc::aborted));
            cluster.cancel(post.group, 1, *received.back());
            received.pop_back();
            sent.erase(sent.begin());
        }
        expect_end(cluster);

        if (!first.ok())
            REQUIRE(first.outcome.error.code == (by_deadline ? Errc::timed_out : Errc::cancelled));
        for (uint64_t i = 0; i < received.size(); ++i) {
            const uint64_t message = i + (passed ? 1 : 0);
            expect_message(*received[i], seed + message, count + message, 0, message);
        }
        for (const Call* call : sent) REQUIRE(call->ok());
    }
    REQUIRE(met(early));
    REQUIRE(met(well));
}

TEST_CASE("a message that its receive gave back is taken back by its sender, or goes with its rank", "[D8]") {
    for (const uint64_t seed : seeds(60)) {
        CAPTURE(seed);
        ClusterShape shape = shape_of(2);
        shape.collective_timeout = Duration{0};
        Cluster cluster(seed, shape);
        Post post(cluster, cluster.make_group({0, 1}));
        Call& send = post.send(0, 1, 1, 5, 50'000);
        Call& begun = post.recv(1, 0, 1, 50'000);
        cluster.run_for(cluster.clock.some(200us));
        cluster.cancel(post.group, 1, begun);
        cluster.run_for(cluster.clock.some(100us));
        if (seed % 2)
            cluster.cancel(post.group, 0, send);
        else
            REQUIRE(cluster.free_group(post.group, 1));
        cluster.run_for(20ms);
        REQUIRE((begun.ended && send.ended));
        if (!begun.ok() && seed % 2) REQUIRE(send.outcome.error.code == Errc::cancelled);
        if (!begun.ok() && seed % 2 == 0) REQUIRE(send.outcome.error.code == Errc::aborted);
        if (seed % 2) {
            post.send(0, 1, 1, 6, 40'000);
            const Call& next = post.recv(1, 0, 1, 50'000);
            expect_end(cluster);
            expect_message(next, 6, 40'000, 0, 1);
        }
        expect_end(cluster);
    }
}

TEST_CASE("what a rank has sent that aborts its group ends with the group, and is not taken back before",
          "[F16][F22]") {
    uint64_t lost = 0;
    for (const uint64_t seed : seeds(200)) {
        CAPTURE(seed);
        ClusterShape shape = shape_of(2);
        if (seed % 2 == 0) shape.network.jitter = 3ms;
        if (seed % 3 == 0) shape.worker_delay = 500us;
        Cluster cluster(seed, shape);
        Post post(cluster, cluster.make_group({0, 1}));
        // The first one is on its way when the abort takes it back, and the second one may have arrived.
        post.send(0, 1, 7, seed, 40'000);
        post.send(0, 1, 7, seed + 1, 9);
        const Call* const calls[] = {&post.recv(1, 0, 7, 50'000), &post.recv(1, 0, 7, 50'000)};
        cluster.clock.after(cluster.clock.some(seed % 2 == 0 ? 8ms : 600us),
                            [&] { REQUIRE(cluster.abort_group(post.group, 0, "it cannot go on")); });
        expect_end(cluster);
        for (const Call* call : calls) {
            CAPTURE(call->outcome.error.text);
            if (call->ok()) continue;
            ++lost;
            REQUIRE(call->outcome.error.code == Errc::peer_lost);
            REQUIRE(call->outcome.error.rank == 0);
        }
    }
    REQUIRE(met(lost));
}

}  // namespace nexar::sim
