// A region that a SessionCore gets at once, as if its memory had been mapped while it was asked for.
#pragma once

#include <utility>

#include "local/session_core.hpp"

namespace nexar::test {

// `map` is called unless the region is refused before.
void add_region(local::SessionCore& core, uint32_t slot, uint32_t generation, uint32_t region, uint64_t bytes,
                auto map) {
    const auto charges = core.begin_region(slot, generation, region, bytes, 1);
    if (charges.empty()) return;
    RegionMemory memory = map();
    if (memory.charges) *memory.charges = charges;
    core.end_region(region, std::move(memory));
}

}  // namespace nexar::test
