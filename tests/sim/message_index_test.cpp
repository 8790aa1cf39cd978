// Many messages that wait: which one a receive gets, and how many are looked at for it
// (docs/protocol/messages.md [X1], docs/protocol/priorities.md [K33]).
#include <catch2/catch_test_macros.hpp>

#include "post.hpp"
#include "seeds.hpp"

namespace nexar::sim {

TEST_CASE("[K33] a receive looks at few of the messages that wait, however many they are") {
    for (const uint64_t waiting : {300u, 1000u}) {
        CAPTURE(waiting);
        Cluster cluster(1, shape_of(2));
        Post post(cluster, cluster.make_group({0, 0, 1}));
        // No more from another node than a rank has credits for.
        const auto sender = [&](uint64_t tag) { return tag + 100 >= waiting && tag % 2 == 1 ? 2u : 0u; };
        for (uint64_t tag = 0; tag < waiting; ++tag) post.send(sender(tag), 1, tag, tag, 3);
        cluster.run_for(100ms);
        const engine::Engine& engine = *cluster.hosts[0]->engine;
        const uint64_t before = engine.offers_looked_at();
        size_t asked = 0;
        for (uint64_t tag = waiting; tag-- > waiting - 30;) {
            const uint32_t from = sender(tag);
            Call& none =
                post.look(OpKind::probe, 1, 2 - from, static_cast<int64_t>(tag), engine::OpRequest::only_now);
            Call& found = post.look(OpKind::probe, 1, engine::any_rank, static_cast<int64_t>(tag));
            Call& got = post.recv(1, tag % 3 == 0 ? engine::any_rank : from, static_cast<int64_t>(tag), 3);
            cluster.run_for(1ms);
            REQUIRE(none.ended);
            REQUIRE(found.ok());
            expect_message(got, tag, 3, from, tag);
            asked += 3;
        }
        REQUIRE(engine.offers_looked_at() - before <= 2 * asked);
        for (uint64_t tag = 0; tag < waiting - 30; ++tag) post.recv(1, engine::any_rank, -1, 3);
        expect_end(cluster);
    }
}

TEST_CASE(
    "[K33] [X1] of many messages a receive gets the oldest that fits, in whatever order they are taken") {
    for (const uint64_t seed : seeds(6)) {
        CAPTURE(seed);
        Cluster cluster(seed, shape_of(2));
        Random random(seed * 77);
        Post post(cluster, cluster.make_group({0, 0, 1, 1}));
        struct Sent {
            uint32_t from;
            uint64_t tag, salt;
        };
        std::vector<Sent> waiting;  // in order of arrival
        uint64_t salt = 0;
        const auto send = [&] {
            const Sent sent{std::vector<uint32_t>{0, 2, 3}[random.below(3)], random.below(20), ++salt};
            post.send(sent.from, 1, sent.tag, sent.salt, 2);
            waiting.push_back(sent);
            cluster.run_for(1ms);
        };
        const auto receive = [&] {
            const Sent& like = waiting[random.below(waiting.size())];
            const bool any_source = random.one_in(2), any_tag = random.one_in(4);
            const auto wanted = std::ranges::find_if(waiting, [&](const Sent& each) {
                return (any_source || each.from == like.from) && (any_tag || each.tag == like.tag);
            });
            const uint32_t source = any_source ? engine::any_rank : like.from;
            const int64_t tag = any_tag ? -1 : static_cast<int64_t>(like.tag);
            if (random.one_in(3)) {
                const Call& found = post.look(OpKind::probe, 1, source, tag);
                REQUIRE(found.ok());
                REQUIRE(found.outcome.tag == wanted->tag);
            }
            const Call& got = post.recv(1, source, tag, 2);
            cluster.run_for(1ms);
            expect_message(got, wanted->salt, 2, wanted->from, wanted->tag);
            waiting.erase(wanted);
        };
        // Above where they are indexed, below, to none, and above again.
        for (const size_t wanted : {150u, 40u, 120u, 0u, 100u, 0u})
            while (waiting.size() != wanted)
                if (waiting.size() < wanted && (waiting.empty() || !random.one_in(4)))
                    send();
                else if (!waiting.empty() && (waiting.size() > wanted || random.one_in(4)))
                    receive();
        expect_end(cluster);
    }
}

}  // namespace nexar::sim
