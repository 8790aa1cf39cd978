// See group_rows.hpp.
#include "engine/schedules/group_rows.hpp"

#include <cstring>

namespace nexar::engine {

using link::Extent;
using link::Extents;

namespace {

size_t table_bytes(const TwoLevelOp& op) {
    return op.layout->size() * sizeof(ChildRow);
}

// In scratch memory, with the rows of this node's ranks.
Extent table_of(MeshLane& lane, const TwoLevelOp& op) {
    const Extent table = lane.scratch(table_bytes(op));
    for (const LocalBuffers& local : op.locals) {
        const ChildRow row = child_row_of(*local.child);
        std::memcpy(table.data() + local.rank * sizeof row, &row, sizeof row);
    }
    return table;
}

Vector<Extents> rows_by_node(const TwoLevelOp& op, const Extent& table) {
    Vector<Extents> out(op.layout->nodes());
    for (uint32_t node = 0; node < out.size(); ++node)
        for (const uint32_t rank : op.layout->ranks_on(collectives::NodeIndex(node)))
            out[node].push_back({table.at + rank * sizeof(ChildRow), sizeof(ChildRow)});
    return out;
}

// Copied: the memory may be written again by a peer that breaks the protocol.
Task<> hand_over(const TwoLevelOp& op, const Extent& table) {
    std::vector<ChildRow> rows(op.layout->size());
    std::memcpy(rows.data(), table.data(), table_bytes(op));
    return op.gathered->rows_gathered(std::move(rows));
}

}  // namespace

uint64_t group_rows_scratch(const TwoLevelOp& op, const Geometry& at) {
    return ScratchPool::rounded(table_bytes(op)) + barrier_scratch(op, at);
}

Task<> group_rows_schedule(MeshLane& lane, const TwoLevelOp& op) {
    const Extent table = table_of(lane, op);
    return collectives::confirmed_gather(lane, rows_by_node(op, table),
                                         [&op, table] { return hand_over(op, table); });
}

}  // namespace nexar::engine
