#include "collectives/scan.hpp"

#include <algorithm>

#include "collectives/extents.hpp"

namespace nexar::collectives {

bool Scan::needs_spare() const {
    const auto is_in_place = [](const ScanRank& rank) {
        return !rank.out.empty() && rank.in[0].at.same(rank.out[0].at);
    };
    return premultiplies || (exclusive && std::ranges::any_of(ranks, is_in_place));
}

Op& Scan::load(Lane& lane, Extents into, Extents in, uint64_t scalar) const {
    if (premultiplies) return lane.combine({std::move(into)}, {std::move(in)}, arithmetic, {scalar});
    return lane.copy(std::move(into), std::move(in));
}

Extents part_of_side(const Extents& side, size_t begin, size_t bytes) {
    return side.empty() ? side : slice(side, begin, bytes);
}

ScanRank part_of_rank(const ScanRank& rank, size_t begin, size_t bytes) {
    return {part_of_side(rank.in, begin, bytes), part_of_side(rank.out, begin, bytes), rank.scalar};
}

Task<> ScanPrefix::take(ScanRank rank, bool is_last) {
    if (scan_->exclusive && is_last) {
        if (!rank.out.empty()) co_await done(lane_->copy(std::move(rank.out), memory_));
        co_return ok();
    }
    Extents in = std::move(rank.in);
    if (!spare_.empty()) {
        co_await done(scan_->load(*lane_, spare_, std::move(in), rank.scalar));
        in = spare_;
    }
    Vector<Extents> dsts;
    if (!is_last) dsts.push_back(memory_);
    if (!rank.out.empty() && scan_->exclusive)
        co_await done(lane_->copy(std::move(rank.out), memory_));
    else if (!rank.out.empty())
        dsts.push_back(std::move(rank.out));
    co_await include(std::move(in), std::move(dsts));
    co_return ok();
}

// What a combination with another rank's input would do to it, a logical operator does to the first one.
Task<> ScanPrefix::include(Extents in, Vector<Extents> dsts) {
    Vector<Extents> srcs;
    if (!empty_) srcs.push_back(memory_);
    srcs.push_back(std::move(in));
    const bool combines = !empty_ || reduce::is_logical(scan_->arithmetic.dtype, scan_->arithmetic.op);
    empty_ = false;
    if (combines) {
        Vector<uint64_t> scalars;
        co_await done(lane_->combine(std::move(dsts), std::move(srcs), scan_->arithmetic, scalars));
        co_return ok();
    }
    for (const Extents& dst : dsts) co_await done(lane_->copy(dst, srcs[0]));
    co_return ok();
}

Vector<ScanRun> scan_runs(const Layout& layout) {
    Vector<ScanRun> out;
    Vector<uint32_t> of_node(layout.nodes());
    for (uint32_t rank = 0; rank < layout.size(); ++rank) {
        const NodeIndex node = layout.node_of(rank);
        if (out.empty() || out.back().node != node) out.push_back({node, 0, of_node[node.value]++});
        ++out.back().ranks;
    }
    return out;
}

}  // namespace nexar::collectives
