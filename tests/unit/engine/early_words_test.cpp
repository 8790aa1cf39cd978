// What is kept of words that come before their group: bounded for each peer by bytes.
#include "engine/early_words.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>

namespace nexar::engine {
namespace {

constexpr size_t word_bytes = 1000 + EarlyWords::overhead_bytes;

wire::Message word(uint64_t seq) {
    wire::OpAbort out;
    out.seq = seq;
    return out;
}
uint64_t seq_of(const EarlyWords::Word& w) {
    return std::get<wire::OpAbort>(w.message).seq;
}
GroupId group(uint64_t n) {
    return {1, 2, n};
}

TEST_CASE("a peer's early words fill its own room and nobody else's, and the oldest give way", "[engine]") {
    EarlyWords words(10'000, 100 * word_bytes);
    const PeerIndex loud{3}, quiet{4};
    words.keep(quiet, group(1), word(7), 1000);
    size_t most = 0;
    for (uint64_t i = 0; i < 500; ++i) {
        words.keep(loud, group(i % 2), word(i), 1000);
        most = std::max(most, words.bytes_of(loud));
    }
    CHECK(most == 100 * word_bytes);
    CHECK(words.size() == 101);

    const auto ones = words.take(group(1));
    REQUIRE(ones.size() == 51);
    CHECK(ones[0].from == quiet);
    CHECK(seq_of(ones[0]) == 7);
    for (size_t i = 1; i < ones.size(); ++i)
        CHECK(seq_of(ones[i]) == 399 + 2 * i);  // the last ones, in order
    CHECK(words.bytes_of(quiet) == 0);
    CHECK(words.bytes_of(loud) == 50 * word_bytes);
    CHECK(words.take(group(0)).size() == 50);
    CHECK(words.bytes_of(loud) == 0);
}

TEST_CASE("a word larger than a peer's room is not kept, and the number of all is bounded too", "[engine]") {
    EarlyWords words(3, 2 * word_bytes);
    words.keep(PeerIndex{1}, group(1), word(0), 5000);
    CHECK(words.size() == 0);
    for (uint32_t peer = 0; peer < 5; ++peer) words.keep(PeerIndex{peer}, group(1), word(peer), 10);
    const auto kept = words.take(group(1));
    REQUIRE(kept.size() == 3);
    CHECK(seq_of(kept[0]) == 2);
}

TEST_CASE("a peer that fills the number of all words takes no place of the others'", "[engine][H6]") {
    EarlyWords words(100, 1000 * word_bytes);
    const PeerIndex loud{3}, quiet{4};
    for (uint64_t i = 0; i < 10; ++i) words.keep(quiet, group(1), word(i), 10);
    for (uint64_t i = 0; i < 500; ++i) words.keep(loud, group(2), word(i), 10);
    CHECK(words.size() == 100);
    CHECK(words.take(group(1)).size() == 10);
    const auto last = words.take(group(2));
    REQUIRE(last.size() == 90);
    CHECK(seq_of(last[0]) == 410);
}

}  // namespace
}  // namespace nexar::engine
