// scan, and what it shares with exclusive_scan: see scan_steps.hpp.
#include <algorithm>

#include "engine/schedules/scan_steps.hpp"

namespace nexar::engine {

using collectives::Algorithm;
using collectives::Scan;
using collectives::ScanPrefix;
using collectives::ScanRank;
using link::Extents;

namespace {

constexpr size_t scan_part_bytes = 1024 * 1024;  // of scratch, on one node

Scan scan_of(const TwoLevelOp& op, const Geometry& at, bool exclusive) {
    Scan out;
    out.layout = op.layout;
    out.arithmetic = at.arithmetic();
    out.premultiplies = at.premultiplies();
    out.exclusive = exclusive;
    out.chunk_bytes = op.plan.chunk_bytes;
    for (const LocalBuffers& local : op.locals)
        out.ranks.push_back(
            {at.rows(local.in), exclusive && local.rank == 0 ? Extents{} : at.rows(local.out), local.scalar});
    return out;
}

Task<> scan_alone(MeshLane& lane, const Scan& scan) {
    const size_t step = std::min(scan.bytes(), scan_part_bytes);
    const Extents memory{lane.scratch(step)};
    Extents spare;
    if (scan.needs_spare()) spare.push_back(lane.scratch(step));
    for (size_t begin = 0; begin < scan.bytes(); begin += step) {
        const size_t bytes = std::min(step, scan.bytes() - begin);
        ScanPrefix prefix(lane, scan, collectives::part_of_side(memory, 0, bytes),
                          collectives::part_of_side(spare, 0, bytes));
        for (const ScanRank& rank : scan.ranks) {
            ScanRank part = collectives::part_of_rank(rank, begin, bytes);
            co_await prefix.take(std::move(part), &rank == &scan.ranks.back());
        }
    }
    co_return ok();
}

}  // namespace

uint64_t scan_steps_scratch(const TwoLevelOp& op, const Geometry& at, bool exclusive) {
    if (at.bytes() == 0) return 0;
    if (op.plan.algorithm == Algorithm::direct_scan) {
        const uint64_t inputs = op.layout->ranks_on(op.self).back() + 1;
        return ScratchPool::rounded(inputs * at.bytes()) + ScratchPool::rounded(at.bytes());
    }
    const size_t bytes = at.alone() ? std::min(at.bytes(), scan_part_bytes) : at.bytes();
    return ScratchPool::rounded(bytes) * (scan_of(op, at, exclusive).needs_spare() ? 2 : 1);
}

Task<> scan_steps(MeshLane& lane, const TwoLevelOp& op, Geometry at, bool exclusive) {
    if (at.bytes() == 0) co_return ok();
    const Scan scan = scan_of(op, at, exclusive);
    if (op.plan.algorithm == Algorithm::direct_scan)
        co_await collectives::direct_scan(lane, scan);
    else if (op.plan.algorithm == Algorithm::chain_scan)
        co_await collectives::chain_scan(lane, scan);
    else
        co_await scan_alone(lane, scan);

    // Rank 0's output may be its input's memory, which is not used any more.
    Vector<Op*> finished;
    for (const LocalBuffers& local : op.locals) {
        Vector<Extents> results(1, at.rows(local.out));
        const bool is_empty = exclusive && local.rank == 0;
        finished.push_back(&lane.job(is_empty ? at.identity(std::move(results[0]))
                                              : at.finish(std::move(results), local.rank + 1)));
    }
    co_await all(finished);
    co_return ok();
}

uint64_t scan_scratch(const TwoLevelOp& op, const Geometry& at) {
    return scan_steps_scratch(op, at, false);
}

Task<> scan_schedule(MeshLane& lane, const TwoLevelOp& op, Geometry at) {
    return scan_steps(lane, op, at, false);
}

}  // namespace nexar::engine
