// Memory by name (docs/protocol/memory.md): regions, which the daemon numbers, and references into them that
// pin them. Only the code that touches the bytes resolves a reference to an address.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "core/ids.hpp"
#include "core/tenant.hpp"

namespace nexar {

using RegionId = Id<struct RegionIdTag, uint64_t>;  // of one daemon's regions; never reused

enum class RegionKind : uint8_t {
    memfd,    // of a session: a range of its memfd, mapped
    scratch,  // the daemon's own
};

// The object whose bytes a region has, and where in it the region begins. Two regions may be of one memfd.
struct Backing {
    uint64_t device = 0, inode = 0;  // 0, region's number: no other region has it
    uint64_t offset = 0;
    bool same_object(const Backing& other) const { return device == other.device && inode == other.inode; }
};

// Memory that is to become a region. `mapping` unmaps or frees it when the last holder lets go.
struct RegionMemory {
    std::byte* base = nullptr;
    uint64_t bytes = 0;
    Backing backing;
    std::shared_ptr<const void> mapping;
    // For what the mapping uses: they end when it is unmapped. Null: it costs nobody anything.
    std::shared_ptr<std::vector<ChargeRef>> charges{};
};

// A row of the daemon's table of regions. It never changes, so every thread may read it.
struct Region {
    RegionId id;
    RegionKind kind = RegionKind::scratch;
    SessionId owner;  // of scratch: 0
    RegionMemory memory;
    std::vector<ChargeRef> charges{};  // for what it uses; end with the row [N2]
};

// Keeps the row, and with it the mapping, also when the region was freed or its session has ended.
using RegionPin = std::shared_ptr<const Region>;

// A position in a region. Requires: someone pins the region.
struct Place {
    const Region* region = nullptr;
    uint64_t offset = 0;

    explicit operator bool() const { return region != nullptr; }
    std::byte* resolve() const { return region->memory.base + offset; }
    Place operator+(uint64_t n) const { return {region, offset + n}; }
    Place& operator+=(uint64_t n) {
        offset += n;
        return *this;
    }
    bool same_object(const Place& other) const {
        return region != nullptr && other.region != nullptr &&
               region->memory.backing.same_object(other.region->memory.backing);
    }
    uint64_t in_object() const { return region->memory.backing.offset + offset; }
    // The same byte of the same object, however it is mapped.
    bool same(const Place& other) const { return same_object(other) && in_object() == other.in_object(); }
};

// Memory of an operation: pins its region. Empty: there is none.
struct MemoryRef {
    RegionPin region;
    uint64_t offset = 0;
    uint64_t bytes = 0;

    Place place() const { return {region.get(), offset}; }
};

// Whether the first a_bytes of one and b_bytes of the other have a byte in common, judged on objects and
// offsets: never on addresses, which differ between two mappings of one memfd.
inline bool overlap(const Place& a, uint64_t a_bytes, const Place& b, uint64_t b_bytes) {
    if (a_bytes == 0 || b_bytes == 0 || !a.same_object(b)) return false;
    const uint64_t at_a = a.in_object(), at_b = b.in_object();
    return at_a < at_b ? at_b - at_a < a_bytes : at_a - at_b < b_bytes;
}

// The daemon's table of regions. A row leaves it with its last pin.
// Thread: add() is the control loop's; pins end on any thread.
class Regions {
  public:
    RegionPin add(RegionKind kind, SessionId owner, RegionMemory memory,
                  std::vector<ChargeRef> charges = {}) {
        const RegionId id(++last_);
        if (memory.backing.device == 0) memory.backing = {0, id.value, 0};
        rows_->fetch_add(1, std::memory_order_relaxed);
        return {new Region{id, kind, owner, std::move(memory), std::move(charges)},
                [rows = rows_](const Region* row) {
                    delete row;
                    rows->fetch_sub(1, std::memory_order_relaxed);
                }};
    }
    RegionPin add_scratch(size_t bytes) {
        auto memory = std::make_shared_for_overwrite<std::byte[]>(bytes);
        std::byte* const base = memory.get();
        return add(RegionKind::scratch, {}, {base, bytes, {}, std::move(memory)});
    }
    size_t rows() const { return rows_->load(std::memory_order_relaxed); }

  private:
    uint64_t last_ = 0;  // the newest number
    std::shared_ptr<std::atomic<size_t>> rows_ = std::make_shared<std::atomic<size_t>>(0);
};

}  // namespace nexar
