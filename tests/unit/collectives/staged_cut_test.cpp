// Clients cut staged operations with proto/shm_layout.h, the engine with plan(): they must agree to the
// element, or bytes land in wrong windows. docs/protocol/shm.md [S12].
#include <catch2/catch_test_macros.hpp>

#include "collectives/plan.hpp"
#include "core/random.hpp"
#include "shm_layout.h"

namespace nexar::collectives {

TEST_CASE("client and engine cut an operation into the same segments") {
    Random random(11);
    for (int i = 0; i < 50'000; ++i) {
        std::vector<uint32_t> placement(1 + random.below(9));
        for (uint32_t& node : placement) node = static_cast<uint32_t>(random.below(4));
        const Layout layout(placement);
        PlanTable table;
        table.segment_bytes = segment_bytes_min + random.below(uint64_t{1} << (1 + random.below(25)));
        const Shape shape{static_cast<Kind>(1 + random.below(5)), random.next() >> (20 + random.below(44)),
                          uint32_t{1} << random.below(4), 0};
        const uint64_t row_bytes = shape.element_bytes * row_blocks(row_of(shape.kind), layout.size());
        CAPTURE(shape.count, row_bytes, table.segment_bytes, layout.nodes());

        const Plan cut = staged_plan(shape, layout, table);

        const uint64_t segment_bytes = segment_bytes_of(layout, table);
        REQUIRE(nexar_shm_segments(shape.count, row_bytes, segment_bytes) == cut.segments);
        REQUIRE((cut.lanes >= 1 && cut.lanes <= cut.segments));
        if (layout.nodes() > 1) REQUIRE(cut == plan(shape, layout, table));
        for (const uint32_t index :
             {uint32_t{0}, static_cast<uint32_t>(random.below(cut.segments)), cut.segments - 1}) {
            const ElementRange part = part_of(shape.count, cut.segments, index);
            REQUIRE(nexar_shm_segment_begin(shape.count, cut.segments, index) == part.begin);
            REQUIRE(nexar_shm_segment_begin(shape.count, cut.segments, index + 1) == part.begin + part.count);
            REQUIRE(part.count * shape.element_bytes <=
                    nexar_shm_window_bytes(shape.count, cut.segments, shape.element_bytes, 1));
        }
    }
}

TEST_CASE("an operation of one node is cut only when it is staged") {
    const Layout one(std::vector<uint32_t>{0, 0});
    const Shape shape{Kind::all_reduce, 10 << 20, 4, 0};

    REQUIRE(plan(shape, one, {}).segments == 1);
    REQUIRE(plan(shape, one, {}).text() == "local");
    REQUIRE(staged_plan(shape, one, {}).segments == 40);
    REQUIRE(staged_plan(shape, one, {}).text() == "local, 40 segments, 2 lanes");
    REQUIRE(staged_plan({Kind::all_reduce, 10, 4, 0}, one, {}).text() == "local");
}

}  // namespace nexar::collectives
