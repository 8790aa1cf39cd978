// What is kept of messages that come before their group: all of it, in order, bounded for each peer.
#include "engine/early_messages.hpp"

#include <catch2/catch_test_macros.hpp>

namespace nexar::engine {
namespace {

constexpr size_t message_bytes = 1000 + EarlyMessages::overhead_bytes;

wire::Message abort_of(uint64_t seq) {
    wire::OpAbort out;
    out.seq = seq;
    return out;
}
uint64_t seq_of(const EarlyMessages::Kept& kept) {
    return std::get<wire::OpAbort>(kept.message).seq;
}
GroupId group(uint64_t n) {
    return {1, 2, n};
}

TEST_CASE("a peer's early messages fill its own room and nobody else's, and none gives way", "[engine][H6]") {
    EarlyMessages early(100 * message_bytes);
    const PeerIndex loud{3}, quiet{4};
    REQUIRE(early.keep(quiet, group(1), abort_of(7), 1000));
    for (uint64_t i = 0; i < 100; ++i) REQUIRE(early.keep(loud, group(i % 2), abort_of(i), 1000));
    CHECK_FALSE(early.keep(loud, group(0), abort_of(100), 1000));
    CHECK_FALSE(early.keep(PeerIndex{5}, group(0), abort_of(100), 101 * message_bytes));
    CHECK(early.keep(quiet, group(0), abort_of(8), 1000));
    CHECK(early.size() == 102);

    const auto ones = early.take(group(1));
    REQUIRE(ones.size() == 51);
    CHECK(ones[0].from == quiet);
    CHECK(seq_of(ones[0]) == 7);
    for (size_t i = 1; i < ones.size(); ++i) CHECK(seq_of(ones[i]) == 2 * i - 1);
    CHECK(early.bytes_of(loud) == 50 * message_bytes);
    early.drop_if(loud, [](const GroupId& id) { return id == group(0); });
    CHECK(early.size() == 1);
    CHECK(early.bytes_of(quiet) == message_bytes);
    CHECK(early.bytes_of(loud) == 0);
    CHECK(early.keep(loud, group(2), abort_of(1), 1000));
}

TEST_CASE("[N21] what begins costs what was kept for it, however much was kept for others", "[engine]") {
    constexpr uint64_t others = 5000;
    EarlyMessages early(SIZE_MAX);
    const PeerIndex peer{3}, second{4};
    for (uint64_t i = 0; i < others; ++i) early.keep(peer, group(100 + i), abort_of(i), 10);
    REQUIRE(early.keep(second, group(1), abort_of(1), 10));
    REQUIRE(early.keep(peer, group(1), abort_of(2), 10));
    REQUIRE(early.keep(second, group(1), abort_of(3), 10));
    CHECK(early.take(group(50)).empty());
    CHECK(early.looked_at() == 0);

    const auto taken = early.take(group(1));
    REQUIRE(taken.size() == 3);
    for (uint64_t i = 0; i < 3; ++i) CHECK(seq_of(taken[i]) == i + 1);  // of two peers, as they came
    CHECK(early.looked_at() == 3);
    CHECK(early.take(group(1)).empty());

    size_t asked = 0;
    early.drop_if(second, [&](const GroupId&) { return ++asked, true; });
    CHECK(asked == 0);
    CHECK(early.size() == others);
}

TEST_CASE("[N21] so does a family, whose messages come back in the order in which they came", "[engine]") {
    EarlyMessages early(SIZE_MAX);
    const PeerIndex peer{3}, second{4};
    const auto of = [](uint64_t incarnation, uint64_t n) { return GroupId{1, incarnation, n}; };
    for (uint64_t i = 0; i < 100; ++i) {
        early.keep(peer, of(1, i), abort_of(1000), 10);
        early.keep(peer, of(3, i), abort_of(1000), 10);
    }
    const std::vector<GroupId> family{of(2, UINT64_MAX), of(2, 0), of(2, 7)};
    for (uint64_t i = 0; i < 30; ++i) early.keep(i % 2 == 0 ? peer : second, family[i % 3], abort_of(i), 10);

    const auto taken = early.take(Family{1, 2});
    REQUIRE(taken.size() == 30);
    for (uint64_t i = 0; i < 30; ++i) {
        CHECK(seq_of(taken[i]) == i);
        CHECK(taken[i].group == family[i % 3]);
        CHECK(taken[i].from == (i % 2 == 0 ? peer : second));
    }
    CHECK(early.looked_at() == 30);
    CHECK(early.size() == 200);
    CHECK(early.bytes_of(second) == 0);
}

}  // namespace
}  // namespace nexar::engine
