#include "collectives/rank_tree.hpp"

#include <algorithm>

namespace nexar::collectives {

TreeCut::TreeCut(const Layout& layout, uint64_t elements, uint32_t partial_bytes, uint32_t chunk_bytes,
                 uint32_t gather_phases, std::span<const uint64_t> owned)
    : elements_(elements), gather_phases_(gather_phases) {
    const uint64_t row = std::max<uint64_t>(1, layout.subtrees_max()) * partial_bytes;
    step_ = std::clamp<uint64_t>(tree_step_bytes_max / row, 1, std::max<uint64_t>(elements, 1));
    // A step may lie within one node's blocks: all partials of it arrive there.
    for (uint32_t node = 0; node < owned.size(); ++node) {
        const uint64_t others = layout.subtrees() - layout.subtrees_on(NodeIndex(node)).size();
        const uint64_t arriving = std::max<uint64_t>(1, others) * partial_bytes;
        const uint64_t most = std::max<uint64_t>(1, tree_step_bytes_max / arriving);
        if (owned[node] > most) step_ = std::min(step_, most);
    }
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
