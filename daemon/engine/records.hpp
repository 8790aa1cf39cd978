// Records of control messages as what the engine works with.
#pragma once

#include <algorithm>

#include "collectives/plan.hpp"
#include "engine/ports.hpp"
#include "wire/limits.hpp"
#include "wire/messages.hpp"

namespace nexar::engine {

inline collectives::PlanTable table_of(const wire::PlanTableRecord& r) {
    collectives::PlanTable out;
    out.version = r.version;
    out.small_bytes_max = r.small_bytes_max;
    out.doubling_bytes_max = r.doubling_bytes_max;
    out.chunk_bytes = static_cast<uint32_t>(std::min<uint64_t>(r.chunk_bytes, UINT32_MAX));
    out.segment_bytes = r.segment_bytes;
    out.lanes = r.lanes;
    out.model = {{r.small_start_ns, r.small_ps_per_byte},
                 {r.bulk_start_ns, r.bulk_ps_per_byte},
                 r.memory_ps_per_byte,
                 r.shared_ps_per_byte};
    out.large_message_bytes = r.large_message_bytes;
    out.ring_nodes_max = r.ring_nodes_max;
    out.family = static_cast<collectives::Family>(r.family);  // PlanTable::check() refuses others
    return out;
}

inline wire::PlanTableRecord record_of(const collectives::PlanTable& t) {
    wire::PlanTableRecord out;
    out.version = t.version;
    out.small_bytes_max = t.small_bytes_max;
    out.doubling_bytes_max = t.doubling_bytes_max;
    out.chunk_bytes = t.chunk_bytes;
    out.segment_bytes = t.segment_bytes;
    out.lanes = t.lanes;
    out.small_start_ns = t.model.small.start_ns;
    out.small_ps_per_byte = t.model.small.ps_per_byte;
    out.bulk_start_ns = t.model.bulk.start_ns;
    out.bulk_ps_per_byte = t.model.bulk.ps_per_byte;
    out.memory_ps_per_byte = t.model.memory_ps_per_byte;
    out.shared_ps_per_byte = t.model.shared_ps_per_byte;
    out.large_message_bytes = t.large_message_bytes;
    out.ring_nodes_max = t.ring_nodes_max;
    out.family = static_cast<uint8_t>(t.family);
    return out;
}

inline Timeouts timeouts_of(const wire::TimeoutsRecord& r) {
    const auto of = [](int64_t ms) {
        return Duration(std::clamp<int64_t>(ms, 0, wire::timeout_ms_max) * 1'000'000);
    };
    return {of(r.collective_ms), of(r.barrier_ms), of(r.rpc_ms)};
}

}  // namespace nexar::engine
