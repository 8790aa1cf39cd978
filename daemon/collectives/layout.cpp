#include "collectives/layout.hpp"

#include <algorithm>
#include <map>

#include "collectives/extents.hpp"
#include "core/check.hpp"
#include "segments.h"

namespace nexar::collectives {

ElementRange part_of(uint64_t count, uint32_t parts, uint32_t index) {
    const uint64_t begin = nexar_shm_segment_begin(count, parts, index);
    return {begin, nexar_shm_segment_begin(count, parts, index + 1) - begin};
}

Layout::Layout(std::span<const uint32_t> node_of_rank) {
    std::map<uint32_t, NodeIndex> numbered;
    for (uint32_t rank = 0; rank < node_of_rank.size(); ++rank) {
        const auto next = NodeIndex(static_cast<uint32_t>(ranks_of_.size()));
        const auto [it, first] = numbered.try_emplace(node_of_rank[rank], next);
        if (first) ranks_of_.emplace_back();
        node_of_.push_back(it->second);
        ranks_of_[it->second.value].push_back(rank);
    }
    for (const std::vector<uint32_t>& ranks : ranks_of_) {
        subtrees_of_.push_back(reduce::subtrees_of(ranks, size()));
        subtrees_ += subtrees_of_.back().size();
        subtrees_max_ = std::max(subtrees_max_, subtrees_of_.back().size());
    }
}

link::Extents slice(std::span<const link::Extent> extents, size_t offset, size_t bytes) {
    link::Extents out;
    for (const link::Extent& e : extents) {
        if (bytes == 0) break;
        if (offset >= e.bytes) {
            offset -= e.bytes;
            continue;
        }
        const size_t take = std::min(e.bytes - offset, bytes);
        out.push_back({e.at + offset, take});
        offset = 0;
        bytes -= take;
    }
    NEXAR_CHECK(bytes == 0);
    return out;
}

}  // namespace nexar::collectives
