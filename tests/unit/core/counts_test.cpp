// The list of an operation with a count per rank.
#include "core/counts.hpp"

#include <array>
#include <catch2/catch_test_macros.hpp>

namespace nexar {

TEST_CASE("blocks are packed in rank order") {
    const Counts counts = *Counts::of(std::array<uint64_t, 5>{3, 0, 4, 1, 0});
    REQUIRE(counts.size() == 5);
    REQUIRE(counts.sum() == 8);
    const std::array<uint64_t, 5> begins{0, 3, 3, 7, 8};
    for (uint32_t rank = 0; rank < 5; ++rank) REQUIRE(counts.begin(rank) == begins[rank]);
    REQUIRE(counts.of(1) == 0);
    REQUIRE(counts.of(2) == 4);
}

TEST_CASE("every run of the packed elements is shared out to the ranks without gaps") {
    const Counts counts = *Counts::of(std::array<uint64_t, 6>{0, 3, 0, 4, 1, 0});
    for (uint64_t first = 0; first <= counts.sum(); ++first)
        for (uint64_t end = first; end <= counts.sum(); ++end) {
            uint64_t at = first;
            for (uint32_t rank = 0; rank < counts.size(); ++rank) {
                const Counts::Part part = counts.part(rank, first, end);
                if (part.count == 0) continue;
                REQUIRE(part.begin == at);
                REQUIRE(part.begin >= counts.begin(rank));
                REQUIRE(part.begin + part.count <= counts.begin(rank) + counts.of(rank));
                at += part.count;
            }
            REQUIRE(at == end);
        }
}

TEST_CASE("counts whose sum is too large are refused, and the error names the rank") {
    REQUIRE(Counts::of(std::array<uint64_t, 1>{(uint64_t{1} << 63) - 1}).has_value());
    const auto text = [](uint64_t a, uint64_t b) {
        const auto made = Counts::of(std::array<uint64_t, 3>{5, a, b});
        REQUIRE_FALSE(made.has_value());
        REQUIRE(made.error().code == Errc::invalid_argument);
        return made.error().text;
    };
    REQUIRE(text(UINT64_MAX, 0).contains("that of rank 1 is 18446744073709551615"));
    REQUIRE(text(uint64_t{1} << 62, uint64_t{1} << 62).contains("ranks 0 to 2"));
    REQUIRE(text(UINT64_MAX - 4, 7).contains("rank 1"));  // wraps to 0
}

TEST_CASE("lists that differ have digests that differ, also with one sum") {
    const auto digest = [](std::array<uint64_t, 3> list) { return Counts::of(list)->digest(); };
    REQUIRE(digest({1, 2, 3}) == digest({1, 2, 3}));
    REQUIRE(digest({1, 2, 3}) != digest({2, 1, 3}));
    REQUIRE(digest({6, 0, 0}) != digest({0, 0, 6}));
    REQUIRE(digest({0, 0, 0}) != 0);
}

}  // namespace nexar
