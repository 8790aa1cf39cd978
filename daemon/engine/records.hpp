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
    return out;
}

inline Timeouts timeouts_of(const wire::TimeoutsRecord& r) {
    const auto of = [](int64_t ms) {
        return Duration(std::clamp<int64_t>(ms, 0, wire::timeout_ms_max) * 1'000'000);
    };
    return {of(r.collective_ms), of(r.barrier_ms), of(r.rpc_ms)};
}

}  // namespace nexar::engine
