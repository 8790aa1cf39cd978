// ArrivalInquiry: when a late collective is announced, asked about, logged and given up.
#include "engine/arrival_inquiry.hpp"

#include <catch2/catch_test_macros.hpp>
#include <numeric>

#include "run_fixture.hpp"

namespace nexar::engine {
namespace {

using collectives::NodeIndex;
using namespace std::chrono_literals;

constexpr Time start = Time(Duration{5'000'000'000});
const ArrivalInquiry::Timing timing{2ms, 1s, 200ms, 8s, 200us};
constexpr Duration announced_after = 2200us;  // of a group on three nodes

struct Scene {
    GroupFacts facts = facts_of({0, 1, 2, 1});
    ArrivalInquiry inquiry{facts, 4, timing};

    wire::ArrivalReply reply(uint64_t nonce, std::vector<wire::Arrival> ranks) const {
        return {facts.id, nonce, std::move(ranks)};
    }
};

}  // namespace

TEST_CASE(
    "a collective that ends soon asks nobody; one that waits is announced, then asked about, then logged") {
    Scene s;
    CHECK(s.inquiry.wake_at() == never);
    s.inquiry.begin(start, start + 30s);
    REQUIRE(s.inquiry.wake_at() == start + announced_after);

    auto due = s.inquiry.on_time(start + announced_after);
    CHECK((due.announce && !due.ask && !due.log_late && !due.expire));
    s.inquiry.set_announced();
    REQUIRE(s.inquiry.wake_at() == start + 1s);
    due = s.inquiry.on_time(start + 1s);
    CHECK((due.ask && !due.announce && !due.log_late));
    REQUIRE(s.inquiry.wake_at() == start + 1200ms);
    due = s.inquiry.on_time(start + 1200ms);
    CHECK((due.log_late && !due.ask));
    // Again after 2, 4, 8, ... seconds in all, at most every ask_again_max.
    REQUIRE(s.inquiry.wake_at() == start + 2s);
    CHECK(s.inquiry.on_time(start + 2s).ask);
    REQUIRE(s.inquiry.wake_at() == start + 4s);
    CHECK(s.inquiry.on_time(start + 4s).ask);
    CHECK(s.inquiry.on_time(start + 8s).ask);
    CHECK(s.inquiry.on_time(start + 16s).ask);
    REQUIRE(s.inquiry.wake_at() == start + 24s);
}

TEST_CASE("the more nodes an announcement goes to, the later it is") {
    for (const uint32_t nodes : {2u, 3u, 66u}) {
        std::vector<uint32_t> placement(nodes);
        std::iota(placement.begin(), placement.end(), 0u);
        const GroupFacts facts = facts_of(placement);
        ArrivalInquiry inquiry(facts, 0, timing);
        inquiry.begin(start, never);
        const Time at = start + 2ms + (nodes - 2) * 200us;
        CHECK(inquiry.wake_at() == at);
        CHECK(!inquiry.on_time(at - 1ns).announce);
        CHECK(inquiry.on_time(at).announce);
    }
}

TEST_CASE("a node is asked once until it answers, and only answers to this query count") {
    Scene s;
    s.inquiry.begin(start, never);
    CHECK(!s.inquiry.has_asked());
    const wire::ArrivalQuery query = s.inquiry.query(42);
    CHECK(s.inquiry.query(99).nonce == query.nonce);
    CHECK(s.inquiry.ask(NodeIndex(1)));
    CHECK(!s.inquiry.ask(NodeIndex(1)));
    CHECK(!s.inquiry.on_reply(NodeIndex(1), s.reply(query.nonce + 2, {{1, 9, false}})));
    CHECK(!s.inquiry.has_arrived(1));
    CHECK(s.inquiry.on_reply(NodeIndex(1), s.reply(query.nonce, {{1, 5, false}, {3, 4, true}})));
    CHECK(s.inquiry.has_arrived(1) == true);   // it has posted 0 to 4
    CHECK(s.inquiry.has_arrived(3) == false);  // its next one is number 4
    CHECK(!s.inquiry.has_arrived(2));
    CHECK(s.inquiry.stalled() == std::vector<uint32_t>{3});
    CHECK(s.inquiry.silent() == std::vector<NodeIndex>{NodeIndex(2)});
    CHECK(s.inquiry.ask(NodeIndex(1)));
}

TEST_CASE("at the deadline old answers do not count, and new ones are waited for, not for ever") {
    Scene s;
    s.inquiry.begin(start, start + 500ms);
    s.inquiry.set_announced();
    const uint64_t nonce = s.inquiry.query(42).nonce;
    CHECK(s.inquiry.on_reply(NodeIndex(1), s.reply(nonce, {})));
    CHECK(s.inquiry.on_reply(NodeIndex(2), s.reply(nonce, {})));

    auto due = s.inquiry.on_time(start + 500ms);
    CHECK((due.ask && !due.expire));
    CHECK(s.inquiry.silent().size() == 2);
    REQUIRE(s.inquiry.wake_at() == start + 700ms);
    SECTION("all answer") {
        CHECK(s.inquiry.on_reply(NodeIndex(1), s.reply(nonce, {})));
        CHECK(!s.inquiry.all_answered().expire);
        CHECK(s.inquiry.on_reply(NodeIndex(2), s.reply(nonce, {})));
        CHECK(s.inquiry.all_answered().expire);
    }
    SECTION("one does not") {
        CHECK(s.inquiry.on_reply(NodeIndex(1), s.reply(nonce, {})));
        CHECK(s.inquiry.on_time(start + 700ms).expire);
        CHECK(s.inquiry.silent() == std::vector<NodeIndex>{NodeIndex(2)});
    }
}

TEST_CASE("on one node there is nobody to ask: it is logged, and ends at its deadline") {
    GroupFacts facts = facts_of({0, 0});
    ArrivalInquiry inquiry(facts, 0, timing);
    inquiry.begin(start, start + 3s);
    REQUIRE(inquiry.wake_at() == start + 1s);
    CHECK(!inquiry.on_time(start + 1s).announce);
    CHECK(inquiry.on_time(start + 1200ms).log_late);
    REQUIRE(inquiry.wake_at() == start + 3s);
    CHECK(!inquiry.on_time(start + 3s).ask);
    REQUIRE(inquiry.wake_at() == start + 3s);
    CHECK(inquiry.on_time(start + 3s).expire);
}

TEST_CASE("lists of ranks name eight, and say how many more there are") {
    const GroupFacts facts = facts_of(std::vector<uint32_t>(12, 0));
    CHECK(names_of(facts, {}).empty());
    CHECK(stalled_text(facts, {}).empty());
    CHECK(names_of(facts, {3}) == facts.describe(3));
    CHECK(names_of(facts, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}).ends_with(" and 2 more"));
    CHECK(stalled_text(facts, {3}).contains("must call wait"));
}

}  // namespace nexar::engine
