// Memory that operations pass on to later ones (docs/protocol/shm.md [S25]).
#include "core/recycled.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <map>
#include <memory>
#include <thread>

#include "support/allocations.hpp"

namespace nexar {

TEST_CASE("blocks are of powers of two, and what was returned is taken again", "[S25]") {
    CHECK(recycled::shelf_of(1) == 0);
    CHECK(recycled::shelf_of(64) == 0);
    CHECK(recycled::shelf_of(65) == 1);
    CHECK(recycled::shelf_of(recycled::bytes_max) == recycled::shelves - 1);
    for (const size_t bytes : {size_t{1}, size_t{64}, size_t{65}, size_t{5000}, recycled::bytes_max}) {
        void* const first = recycled::take(bytes);
        std::memset(first, 0xee, bytes);
        recycled::give(first, bytes);
        const size_t before = test::allocations();
        void* const again = recycled::take(bytes);
        const size_t asked = test::allocations() - before;
        CHECK(asked == (recycled::is_on ? 0 : 1));
        std::memset(again, 0xdd, bytes);
        recycled::give(again, bytes);
    }
    const size_t before = test::allocations();
    recycled::give(recycled::take(recycled::bytes_max + 1), recycled::bytes_max + 1);
    recycled::give(recycled::take(recycled::bytes_max + 1), recycled::bytes_max + 1);
    CHECK(test::allocations() == before + 2);  // too long to be kept
}

TEST_CASE("a thread keeps so much and no more, and nothing when it has ended", "[S25]") {
    constexpr size_t bytes = 1024, blocks = 2 * recycled::shelf_bytes_max / bytes;
    const size_t shelf = recycled::shelf_of(bytes);
    size_t kept = 0, after = 0, asked = 1;
    std::thread([&] {
        std::vector<void*> all(blocks);
        for (void*& block : all) block = recycled::take(bytes);
        for (void* block : all) recycled::give(block, bytes);
        kept = recycled::kept.bytes[shelf];
        // Another size is kept nevertheless.
        recycled::give(recycled::take(4 * bytes), 4 * bytes);
        const size_t before = test::allocations();
        recycled::give(recycled::take(4 * bytes), 4 * bytes);
        asked = test::allocations() - before;
        // What the loop took, a shard returns, and does not hoard.
        void* const block = recycled::take(bytes);
        std::thread([&] {
            recycled::give(block, bytes);
            after = recycled::kept.bytes[shelf];
        }).join();
    }).join();
    CHECK(kept == (recycled::is_on ? recycled::shelf_bytes_max : 0));
    CHECK(asked == (recycled::is_on ? 0 : 1));
    CHECK(after == 0);
}

TEST_CASE("containers and objects use it", "[S25]") {
    struct Row : RecycledObject {
        uint64_t values[20] = {};
    };
    using Map = std::map<uint64_t, std::unique_ptr<Row>, std::less<>,
                         Recycled<std::pair<const uint64_t, std::unique_ptr<Row>>>>;
    const auto work = [] {
        Vector<uint64_t> list;
        Map map;
        for (uint64_t i = 0; i < 100; ++i) {
            list.push_back(i);
            map.emplace(i, std::make_unique<Row>()).first->second->values[19] = i;
        }
        uint64_t sum = 0;
        for (const auto& [i, row] : map) sum += row->values[19] + list[i];
        return sum;
    };
    CHECK(work() == 9900);
    const size_t before = test::allocations();
    const uint64_t sum = work();
    const size_t asked = test::allocations() - before;
    CHECK(sum == 9900);
    CHECK((asked == 0) == recycled::is_on);
}

}  // namespace nexar
