// Scratch: what is counted against the limit, and what idle blocks give back when others need room.
#include <catch2/catch_test_macros.hpp>
#include <set>

#include "memory.hpp"

namespace nexar::c {
namespace {

constexpr uint64_t mib = uint64_t{1} << 20;

struct Owner {
    std::set<Region*> alive;
    Scratch scratch;

    explicit Owner(uint64_t limit)
        : scratch(
              limit,
              [this](uint64_t bytes) -> Result<Region*> {
                  auto* region = new Region;
                  region->bytes = bytes;
                  alive.insert(region);
                  return region;
              },
              [this](Region* region) {
                  REQUIRE(alive.erase(region) == 1);
                  delete region;
              }) {}
    ~Owner() {
        for (Region* region : alive) delete region;
    }
    ScratchBlock take(uint64_t bytes) {
        auto block = scratch.take(bytes);
        REQUIRE(block);
        REQUIRE(alive.contains(block->region));
        REQUIRE(block->bytes >= bytes);
        REQUIRE(block->offset + block->bytes <= block->region->bytes);
        return *block;
    }
    void use_and_give_back(std::initializer_list<uint64_t> sizes) {
        std::vector<ScratchBlock> blocks;
        for (const uint64_t bytes : sizes) blocks.push_back(take(bytes));
        for (const ScratchBlock& block : blocks) scratch.give_back(block);
    }
    uint64_t bytes_alive() const {
        uint64_t bytes = 0;
        for (const Region* region : alive) bytes += region->bytes;
        return bytes;
    }
};

}  // namespace

TEST_CASE("small blocks that nobody uses make room for a large one") {
    Owner o(4 * mib);
    o.use_and_give_back({400'000, 400'000, 400'000, 200'000, 200'000, 200'000, 200'000, 100, 5000});
    REQUIRE(o.scratch.held() > mib);

    CHECK(o.scratch.may_fit(4 * mib));
    const ScratchBlock large = o.take(4 * mib);

    CHECK(o.scratch.held() == 4 * mib);
    CHECK(o.bytes_alive() == 4 * mib);
    CHECK_FALSE(o.scratch.take(100));
    o.scratch.give_back(large);
    o.use_and_give_back({100, 400'000});  // and the reverse
    CHECK(o.scratch.held() <= 4 * mib);
    CHECK(o.bytes_alive() == o.scratch.held());
}

TEST_CASE("small blocks of one size make room for those of another") {
    Owner o(2 * mib);
    o.use_and_give_back({1000, 500'000, 500'000});
    o.use_and_give_back({250'000, 250'000, 250'000, 250'000, 250'000, 250'000});
    o.use_and_give_back({500'000, 500'000, 500'000});
    CHECK(o.scratch.held() <= 2 * mib);
}

TEST_CASE("a region with one block in use stays, whatever is idle in it") {
    Owner o(2 * mib);
    const ScratchBlock used = o.take(300'000);
    o.use_and_give_back({300'000});

    CHECK_FALSE(o.scratch.may_fit(2 * mib));
    CHECK_FALSE(o.scratch.take(2 * mib));
    CHECK(o.alive.contains(used.region));
    const ScratchBlock beside = o.take(mib);
    CHECK(beside.region != used.region);

    o.scratch.give_back(used);
    o.scratch.give_back(beside);
    CHECK(o.take(2 * mib).bytes == 2 * mib);
}

TEST_CASE("blocks in use at the same time never overlap, through many rounds at the limit") {
    Owner o(3 * mib);
    uint64_t state = 7;
    std::vector<ScratchBlock> held;
    size_t refused = 0;
    for (int round = 0; round < 4000; ++round) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        const uint64_t dice = state >> 33;
        if (!held.empty() && dice % 2 == 0) {
            const size_t which = (dice >> 1) % held.size();
            o.scratch.give_back(held[which]);
            held.erase(held.begin() + static_cast<ptrdiff_t>(which));
            continue;
        }
        const uint64_t bytes = 1 + (dice >> 1) % (uint64_t{1} << ((dice >> 20) % 22));
        const auto block = o.scratch.take(bytes);
        REQUIRE(o.bytes_alive() == o.scratch.held());
        REQUIRE(o.scratch.held() <= 3 * mib);
        if (!block) {
            ++refused;
            continue;
        }
        REQUIRE(o.alive.contains(block->region));
        for (const ScratchBlock& other : held)
            REQUIRE((other.region != block->region || other.offset + other.bytes <= block->offset ||
                     block->offset + block->bytes <= other.offset));
        held.push_back(*block);
    }
    CHECK(refused > 0);
    for (const ScratchBlock& block : held) o.scratch.give_back(block);
    CHECK(o.take(3 * mib).bytes == 3 * mib);
}

TEST_CASE("a limit below a mebibyte serves small blocks", "[D15]") {
    Owner o(512 * 1024);
    const ScratchBlock small = o.take(100);
    const ScratchBlock half = o.take(256 * 1024);
    CHECK(o.scratch.held() <= 512 * 1024);
    o.scratch.give_back(small);
    o.scratch.give_back(half);
    CHECK(o.take(512 * 1024).bytes == 512 * 1024);
}

TEST_CASE("rounding never refuses what would fit", "[D15]") {
    for (const uint64_t limit : {uint64_t{3} << 19, uint64_t{1'200'000}, uint64_t{700'001}, uint64_t{5000}}) {
        Owner o(limit);
        o.scratch.give_back(o.take(limit));
        CHECK(o.scratch.held() <= limit);
        const ScratchBlock most = o.take(limit - limit / 4);
        o.take(1);
        CHECK(o.scratch.held() <= limit);
        CHECK_FALSE(o.scratch.take(limit / 2));
        o.scratch.give_back(most);
        o.take(limit / 2);
    }
}

}  // namespace nexar::c
