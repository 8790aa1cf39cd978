// What a session answers about its groups, apart from the slots: the facts of one, and ranks of one as ranks
// of another.
#pragma once

#include <span>
#include <vector>

#include "core/result.hpp"
#include "engine/ports.hpp"
#include "shm_layout.h"

namespace nexar::local {

nexar_shm_group_info info_of(const engine::GroupInfo& group);

// NEXAR_SHM_ANY_RANK: the rank is not in `to`. An error: a rank is not one of `from`, or no group was opened
// that both come from.
Result<std::vector<uint32_t>> translated(const engine::GroupInfo& from, const engine::GroupInfo& to,
                                         std::span<const uint32_t> ranks);

}  // namespace nexar::local
