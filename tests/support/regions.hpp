// Memory of a test as regions: every region of it is of one object, the test's process, so that overlap is
// judged as in one memfd.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "core/region.hpp"

namespace nexar::test {

inline RegionMemory memory_of_test(void* data, size_t bytes, std::shared_ptr<const void> keep = {}) {
    auto* const base = static_cast<std::byte*>(data);
    return {base, bytes, {1, 1, reinterpret_cast<uint64_t>(base)}, std::move(keep)};
}
inline MemoryRef ref_of(Regions& regions, std::shared_ptr<std::vector<std::byte>> memory) {
    const size_t bytes = memory->size();
    std::byte* const data = memory->data();
    return {regions.add(RegionKind::memfd, {}, memory_of_test(data, bytes, std::move(memory))), 0, bytes};
}

// Of memory that the test keeps itself; the row stays until the process ends.
inline Place place_of(void* data) {
    static std::mutex mutex;
    static std::deque<Region> rows;
    const std::scoped_lock lock(mutex);
    rows.push_back({RegionId(rows.size() + 1), RegionKind::scratch, {}, memory_of_test(data, SIZE_MAX / 2)});
    return {&rows.back(), 0};
}

}  // namespace nexar::test
