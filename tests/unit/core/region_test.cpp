// Regions, pins, and overlap on objects.
#include "core/region.hpp"

#include <catch2/catch_test_macros.hpp>
#include <set>
#include <vector>

namespace nexar {

namespace {

RegionMemory memory_of(std::vector<std::byte>& bytes, const Backing& backing) {
    return {bytes.data(), bytes.size(), backing, {}};
}

}  // namespace

TEST_CASE("a region's number is never used again", "[M1]") {
    Regions regions;
    std::set<uint64_t> seen;
    for (int i = 0; i < 1000; ++i) REQUIRE(seen.insert(regions.add_scratch(1)->id.value).second);
    REQUIRE(regions.rows() == 0);
    REQUIRE(*seen.begin() > 0);
}

TEST_CASE("a row and its mapping go with the last pin", "[M2][M3]") {
    Regions regions;
    auto mapping = std::make_shared<std::vector<std::byte>>(64);
    const std::weak_ptr<const void> alive = mapping;
    std::byte* const base = mapping->data();
    RegionPin of_session = regions.add(RegionKind::memfd, SessionId(3), {base, 64, {}, std::move(mapping)});
    MemoryRef of_request{of_session, 16, 8};
    const RegionId id = of_session->id;

    of_session.reset();
    REQUIRE(regions.rows() == 1);
    REQUIRE((of_request.region->id == id && of_request.region->owner == SessionId(3)));
    REQUIRE(of_request.place().resolve() == base + 16);

    of_request = {};
    REQUIRE(regions.rows() == 0);
    REQUIRE(alive.expired());
}

TEST_CASE("ranges overlap by object and offset, however they are named and mapped", "[M4]") {
    Regions regions;
    std::vector<std::byte> memory(4096), other_mapping(4096);
    // One memfd, registered twice: from its start, and from byte 1024 on; mapped at different addresses.
    const RegionPin first = regions.add(RegionKind::memfd, {}, memory_of(memory, {8, 5, 0}));
    const RegionPin second = regions.add(RegionKind::memfd, {}, memory_of(other_mapping, {8, 5, 1024}));
    const RegionPin other = regions.add(RegionKind::memfd, {}, memory_of(memory, {8, 6, 0}));
    const Place a{first.get(), 0}, b{second.get(), 0}, c{other.get(), 0};

    REQUIRE(overlap(a, 1025, b, 1));
    REQUIRE(overlap(b, 1, a, 1025));
    REQUIRE_FALSE(overlap(a, 1024, b, 4096));
    REQUIRE_FALSE(overlap(b, 4096, a, 1024));
    REQUIRE(overlap(a + 1024, 8, b, 8));
    REQUIRE((a + 1024).same(b));
    REQUIRE_FALSE(a.same(b));
    // Another memfd, although it was mapped at the same address once.
    REQUIRE_FALSE(overlap(a, 4096, c, 4096));
    REQUIRE_FALSE(a.same(c));
    // Nothing overlaps with no memory, or with no bytes.
    REQUIRE_FALSE(overlap(a, 8, Place{}, 8));
    REQUIRE_FALSE(overlap(a, 0, a, 8));
    REQUIRE_FALSE(Place{}.same(Place{}));
}

TEST_CASE("scratch of the daemon overlaps with itself only", "[M4]") {
    Regions regions;
    const RegionPin a = regions.add_scratch(64), b = regions.add_scratch(64);
    REQUIRE(overlap({a.get(), 0}, 9, {a.get(), 8}, 8));
    REQUIRE_FALSE(overlap({a.get(), 0}, 64, {b.get(), 0}, 64));
}

}  // namespace nexar
