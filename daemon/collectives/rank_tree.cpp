#include "collectives/rank_tree.hpp"

#include <algorithm>

namespace nexar::collectives {

std::vector<reduce::RankRange> subtrees_on(const Layout& layout, NodeIndex node) {
    return reduce::subtrees_of(layout.ranks_on(node), layout.size());
}

TreeCut::TreeCut(const Layout& layout, uint64_t elements, uint32_t partial_bytes, uint32_t chunk_bytes,
                 uint32_t gather_phases)
    : elements_(elements), gather_phases_(gather_phases) {
    uint64_t subtrees = 1;  // of the node with the most
    for (uint32_t node = 0; node < layout.nodes(); ++node)
        subtrees = std::max<uint64_t>(subtrees, subtrees_on(layout, NodeIndex(node)).size());
    const uint64_t row = subtrees * partial_bytes;
    step_ = std::clamp<uint64_t>(tree_step_bytes_max / row, 1, std::max<uint64_t>(elements, 1));
    const uint64_t transfer_bytes_max = uint64_t{link::transfer_chunks_max} * chunk_bytes;
    exchange_phases_ = static_cast<uint32_t>((step_ * row + transfer_bytes_max - 1) / transfer_bytes_max);
}

ElementRange TreeCut::step(uint32_t index) const {
    const uint64_t begin = index * step_;
    return {begin, std::min(step_, elements_ - begin)};
}

ElementRange even_share(ElementRange step, uint32_t nodes, uint32_t node) {
    const ElementRange part = part_of(step.count, nodes, node);
    return {step.begin + part.begin, part.count};
}

std::vector<uint64_t> even_shares(const SegmentShape& segment, const TreeCut& cut) {
    std::vector<uint64_t> out(segment.nodes());
    for (uint32_t step = 0; step < cut.steps(); ++step)
        for (uint32_t node = 0; node < segment.nodes(); ++node)
            out[node] += even_share(cut.step(step), segment.nodes(), node).count;
    return out;
}

}  // namespace nexar::collectives
