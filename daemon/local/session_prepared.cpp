// What a session keeps of persistent operations between their starts [S22]. See session_core.hpp.
#include <algorithm>
#include <cstring>

#include "engine/known_operation.hpp"
#include "local/session_core.hpp"

namespace nexar::local {

namespace {

bool uses(const engine::OpRequest& request, const RegionPin& region) {
    return request.in.region == region || request.out.region == region;  // messages in pieces are not kept
}

}  // namespace

// Null: nothing is kept of what is not persistent.
SessionCore::Prepared* SessionCore::keep_prepared(uint32_t slot, const nexar_shm_descriptor& asked,
                                                  const engine::OpRequest& request, uint32_t segments) {
    if ((asked.flags & NEXAR_SHM_FLAG_PERSISTENT) == 0) return nullptr;
    prepared_[slot] = std::make_unique<Prepared>(Prepared{asked, request, segments});
    prepared_[slot]->request.known = std::make_shared<engine::KnownOperation>();
    return prepared_[slot].get();
}

// Null: this slot's descriptor is another one than before, or its group is not what it was. Then nothing is
// kept.
SessionCore::Prepared* SessionCore::find_prepared(uint32_t slot, const nexar_shm_descriptor& asked) {
    std::unique_ptr<Prepared>& kept = prepared_[slot];
    if (!kept) return nullptr;
    const auto group = groups_.find(asked.group);
    const bool same = std::memcmp(&kept->asked, &asked, sizeof asked) == 0;
    if (same && group != groups_.end() && group->second.epoch.value == asked.epoch) return kept.get();
    kept.reset();
    return nullptr;
}

// A freed region is pinned by operations in flight, and not by what is kept.
void SessionCore::forget_region(const RegionPin& region) {
    for (auto& one : prepared_)
        if (one && uses(one->request, region)) one.reset();
}

void SessionCore::forget_group(uint32_t group) {
    for (auto& one : prepared_)
        if (one && one->asked.group == group) one.reset();
}

size_t SessionCore::prepared() const {
    return static_cast<size_t>(std::ranges::count_if(prepared_, [](const auto& one) { return bool(one); }));
}

}  // namespace nexar::local
