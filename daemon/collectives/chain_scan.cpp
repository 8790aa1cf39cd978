// Pipelined chain scan, for large data: the reduction of all ranks so far goes from node to node in rank
// order, and each node includes its ranks. Where the ranks of nodes interleave, it comes to a node as often
// as the node has runs of successive ranks. The data is cut into pieces, so that nodes work at the same time.
//
// Steps: one less than there are runs, and one per further piece. Bytes: the data once from each run's node
// to that of the next one. Scratch: the data, and as much again where Scan::needs_spare.
#include <algorithm>

#include "collectives/algorithms.hpp"
#include "collectives/cost.hpp"
#include "collectives/extents.hpp"

namespace nexar::collectives {
namespace {

constexpr uint64_t pieces_max = 16;

uint32_t pieces_of(uint64_t bytes, uint32_t chunk_bytes) {
    return static_cast<uint32_t>(std::clamp<uint64_t>(bytes / chunk_bytes, 1, pieces_max));
}

struct Piece {
    uint32_t index, of;
    size_t begin, bytes;
    // From one run to the next.
    uint32_t phase(const ScanRun& to) const { return to.number * of + index; }
};

// All receives are into one memory: the prefix that comes to a run has this node's last one in it, so nothing
// of that is still to be sent, and a repeated send of it has no effect.
Task<> chain_piece(Lane& lane, const Scan& scan, const Vector<ScanRun>& runs, Piece piece,
                   ScanPrefix prefix) {
    Vector<Op*> arrivals(runs.size());
    for (size_t run = 1; run < runs.size(); ++run)
        if (runs[run].node == lane.self())
            arrivals[run] = &lane.recv_copy(runs[run - 1].node, piece.phase(runs[run]), prefix.memory());

    size_t next = 0;  // of this node's ranks
    for (size_t run = 0; run < runs.size(); ++run) {
        if (runs[run].node != lane.self()) continue;
        if (arrivals[run] != nullptr) {
            co_await done(*arrivals[run]);
            prefix.set_received();
        }
        const bool is_last_run = run + 1 == runs.size();
        for (const size_t end = next + runs[run].ranks; next < end; ++next) {
            ScanRank rank = part_of_rank(scan.ranks[next], piece.begin, piece.bytes);
            co_await prefix.take(std::move(rank), is_last_run && next + 1 == end);
        }
        if (!is_last_run) lane.send(runs[run + 1].node, piece.phase(runs[run + 1]), prefix.memory());
    }
    co_return ok();
}

}  // namespace

Task<> chain_scan(Lane& lane, Scan scan) {
    const Vector<ScanRun> runs = scan_runs(*scan.layout);
    const size_t bytes = scan.bytes(), element = reduce::size_of(scan.arithmetic.dtype);
    const Extents memory{lane.scratch(bytes)};
    Extents spare;
    if (scan.needs_spare()) spare.push_back(lane.scratch(bytes));

    const uint32_t of = pieces_of(bytes, scan.chunk_bytes);
    Vector<Task<>> pieces;
    for (uint32_t index = 0; index < of; ++index) {
        const ElementRange range = part_of(bytes / element, of, index);
        const Piece piece{index, of, range.begin * element, range.count * element};
        ScanPrefix prefix(lane, scan, part_of_side(memory, piece.begin, piece.bytes),
                          part_of_side(spare, piece.begin, piece.bytes));
        pieces.push_back(chain_piece(lane, scan, runs, piece, std::move(prefix)));
    }
    co_await all(pieces);
    co_return ok();
}

const Cost chain_scan_cost{
    .phases =
        [](const SegmentShape& s) {
            uint32_t runs = 0;  // of the node with the most
            for (const ScanRun& run : scan_runs(s.layout)) runs = std::max(runs, run.number + 1);
            return runs * pieces_of(s.bytes(), s.chunk_bytes);
        },
    .bytes =
        [](Ledger& ledger, const SegmentShape& s) {
            const Vector<ScanRun> runs = scan_runs(s.layout);
            for (size_t run = 1; run < runs.size(); ++run)
                ledger.add(runs[run - 1].node.value, runs[run].node.value, s.bytes());
        },
};

}  // namespace nexar::collectives
