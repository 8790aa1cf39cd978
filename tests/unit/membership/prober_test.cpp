// Questions: only a round trip begun after the question counts.
#include "membership/prober.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "failure_cluster.hpp"

namespace nexar::membership {
namespace {

const NodeId self = node_id(0), target = node_id(1), helper = node_id(2), other = node_id(3);

Prober prober(ProbeConfig config = {}) {
    return Prober(config, self, Incarnation{3, 4});
}

TEST_CASE("a question asks the target and each helper once", "[membership][F6]") {
    auto p = prober();
    p.ask(target, {1, 1}, {helper, target, self, other}, Prober::Asks::itself, at_ms(0));
    std::vector<NodeId> asked;
    while (const auto out = p.poll_send()) asked.push_back(out->to);
    CHECK(asked == std::vector{target, helper, other});
}

TEST_CASE("answers of helpers end a question unless the direct one matters", "[membership]") {
    const auto asks = GENERATE(Prober::Asks::anyone, Prober::Asks::itself);
    auto p = prober();
    const uint64_t q = p.ask(target, {1, 1}, {helper}, asks, at_ms(0));
    p.on_reply(helper, {q, true});
    if (asks == Prober::Asks::itself) {
        REQUIRE_FALSE(p.poll_answer());
        p.on_time(at_ms(250));
    }
    const auto answer = p.poll_answer();
    REQUIRE(answer);
    CHECK(answer->reached_by_helper);
    CHECK_FALSE(answer->reached_directly);
    CHECK(p.wake_at() == never);
}

TEST_CASE("a question about a helper is its own: the target is not asked, and a no ends it",
          "[membership][F9]") {
    const bool reached = GENERATE(false, true);
    auto p = prober();
    const uint64_t q = p.ask(target, {1, 1}, {helper}, Prober::Asks::helper, at_ms(0));
    CHECK(p.poll_send()->to == helper);
    CHECK_FALSE(p.poll_send());
    p.on_reply(target, {q, true});
    p.on_reply(other, {q, true});
    REQUIRE_FALSE(p.poll_answer());
    p.on_reply(helper, {q, reached});
    const auto answer = p.poll_answer();
    REQUIRE(answer);
    CHECK(answer->reached_by_helper == reached);
    CHECK_FALSE(answer->reached_directly);
    CHECK(p.wake_at() == never);
}

TEST_CASE("answers by other nodes, noes of helpers and wrong numbers do not count", "[membership][F5]") {
    auto p = prober();
    const uint64_t q = p.ask(target, {1, 1}, {helper}, Prober::Asks::anyone, at_ms(0));
    p.on_reply(other, {q, true});
    p.on_reply(helper, {q + 1, true});
    p.on_reply(helper, {q, false});
    REQUIRE_FALSE(p.poll_answer());
    p.on_time(at_ms(250));
    const auto answer = p.poll_answer();
    REQUIRE(answer);
    CHECK_FALSE(answer->reached_by_helper);
    CHECK_FALSE(answer->reached_directly);
}

TEST_CASE("a node asked about itself answers for its own incarnation only", "[membership][F5]") {
    auto p = prober();
    p.on_request(other, {71, self, {3, 4}}, at_ms(0));
    p.on_request(other, {72, self, {}}, at_ms(0));
    p.on_request(other, {73, self, {3, 5}}, at_ms(0));
    std::vector<bool> answers;
    while (const auto out = p.poll_send())
        answers.push_back(std::get<wire::ProbeReply>(out->message).reached);
    CHECK(answers == std::vector{true, true, false});
}

TEST_CASE("a helper asks the target itself and says no at its deadline", "[membership][F6]") {
    auto p = prober();
    p.on_request(other, {71, target, {1, 1}}, at_ms(0));
    const auto question = p.poll_send();
    REQUIRE(question);
    CHECK(question->to == target);
    const uint64_t nonce = std::get<wire::ProbeRequest>(question->message).nonce;
    const bool answered = GENERATE(true, false);
    if (answered)
        p.on_reply(target, {nonce, true});
    else
        p.on_time(at_ms(150));

    const auto out = p.poll_send();
    REQUIRE(out);
    CHECK(out->to == other);
    CHECK(std::get<wire::ProbeReply>(out->message).nonce == 71);
    CHECK(std::get<wire::ProbeReply>(out->message).reached == answered);
}

TEST_CASE("questions on behalf of others are bounded", "[membership][F14]") {
    ProbeConfig config;
    config.questions_max = 3;
    auto p = prober(config);
    for (uint64_t n = 0; n < 10; ++n) p.on_request(other, {n, target, {}}, at_ms(0));
    size_t sent = 0;
    while (p.poll_send()) ++sent;
    CHECK(sent == 3);
    p.on_time(at_ms(150));
    p.on_request(other, {20, target, {}}, at_ms(151));
    while (p.poll_send()) ++sent;
    CHECK(sent == 3 + 3 + 1);
}

TEST_CASE("a node that asks without end takes no answers from the others", "[membership][H6]") {
    ProbeConfig config;
    config.questions_max = 3;
    auto p = prober(config);
    for (uint64_t n = 0; n < 10; ++n) p.on_request(other, {n, target, {}}, at_ms(0));
    p.on_request(node_id(9), {20, target, {}}, at_ms(0));
    size_t sent = 0;
    while (p.poll_send()) ++sent;
    CHECK(sent == 3 + 1);
}

TEST_CASE("a node stalled during its own question asks again, a bounded number of times",
          "[membership][F6]") {
    auto p = prober();
    p.ask(target, {1, 1}, {}, Prober::Asks::anyone, at_ms(0));
    Time now = at_ms(0);
    for (int i = 0; i < 2; ++i) {
        now += ms(1000);
        p.on_time(now);
        CHECK_FALSE(p.poll_answer());
    }
    p.on_time(now + ms(1000));
    CHECK(p.poll_answer());
    CHECK(p.wake_at() == never);
}

TEST_CASE("a prober's invariants hold after every input", "[membership][F14]") {
    for (uint64_t seed = 1; seed <= 20; ++seed) {
        CAPTURE(seed);
        Random random(seed);
        ProbeConfig config;
        config.questions_max = 4;
        auto p = prober(config);
        Time now{};
        const NodeId nodes[] = {self, target, helper, other};
        const Prober::Asks asks[] = {Prober::Asks::anyone, Prober::Asks::itself, Prober::Asks::helper};
        const auto any = [&] { return nodes[random.below(4)]; };
        std::vector<uint64_t> own;
        for (int step = 0; step < 2000; ++step) {
            now += Duration(static_cast<int64_t>(random.below(100'000'000)));
            const uint64_t nonce = random.below(200);
            switch (random.below(5)) {
                case 0:
                    own.push_back(p.ask(any(), {1, 1}, {any(), any()}, asks[random.below(3)], now));
                    break;
                case 1:
                    if (!own.empty()) p.cancel(own[random.below(own.size())]);
                    break;
                case 2:
                    p.on_request(nodes[1 + random.below(3)], {nonce, any(), {3, 4}}, now);
                    break;
                case 3:
                    p.on_reply(any(), {nonce, random.one_in(2)});
                    break;
                default:
                    p.on_time(now);
            }
            p.check_invariants();
        }
    }
}

}  // namespace
}  // namespace nexar::membership
