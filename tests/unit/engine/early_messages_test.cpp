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
    early.drop_if([](const auto& kept) { return kept.group == group(0); });
    CHECK(early.size() == 0);
    CHECK(early.bytes_of(loud) == 0);
    CHECK(early.keep(loud, group(2), abort_of(1), 1000));
}

}  // namespace
}  // namespace nexar::engine
