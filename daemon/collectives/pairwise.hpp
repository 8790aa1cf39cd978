// What the pairwise algorithms share: a list of blocks for one node is one transfer, or several where one
// would be longer than a transfer may be.
#pragma once

#include <algorithm>

#include "collectives/extents.hpp"
#include "collectives/link.hpp"

namespace nexar::collectives {

// Calls post(phase, memory) for each transfer of a list, with phases from first_phase on.
template <class Post>
void for_each_transfer(const Extents& list, size_t transfer_bytes_max, uint32_t first_phase, Post post) {
    const size_t bytes = link::bytes_of(list);
    for (size_t begin = 0; begin < bytes; begin += transfer_bytes_max)
        post(first_phase++, slice(list, begin, std::min(transfer_bytes_max, bytes - begin)));
}

}  // namespace nexar::collectives
