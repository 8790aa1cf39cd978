#include "collectives/plan.hpp"

#include <algorithm>
#include <bit>

#include "core/check.hpp"

namespace nexar::collectives {
namespace {

constexpr uint64_t divide_up(uint64_t a, uint64_t b) {
    return a / b + (a % b != 0 ? 1 : 0);
}

Algorithm choose(const Shape& shape, uint64_t bytes, const Layout& layout, const PlanTable& table) {
    const bool small = bytes <= table.small_bytes_max;
    if (layout.nodes() <= 1) return Algorithm::local;
    // An op without data still synchronises: that is when its descriptors are compared.
    if (bytes == 0) return Algorithm::dissemination_barrier;
    switch (shape.kind) {
        case Kind::barrier:
            return Algorithm::dissemination_barrier;
        case Kind::all_reduce:
            return bytes <= table.doubling_bytes_max ? Algorithm::doubling_all_reduce
                                                     : Algorithm::ring_all_reduce;
        case Kind::reduce:
            return small ? Algorithm::binomial_reduce : Algorithm::chain_reduce;
        case Kind::broadcast:
            return small ? Algorithm::binomial_broadcast : Algorithm::chain_broadcast;
        case Kind::all_gather:
            return Algorithm::ring_all_gather;
        case Kind::reduce_scatter:
            return Algorithm::ring_reduce_scatter;
        default:
            return Algorithm::local;  // messages have no plan
    }
}

uint32_t phases_of(Algorithm algorithm, uint32_t nodes) {
    switch (algorithm) {
        case Algorithm::ring_all_reduce:
            return 2 * (nodes - 1);
        case Algorithm::ring_all_gather:
        case Algorithm::ring_reduce_scatter:
            return nodes - 1;
        case Algorithm::doubling_all_reduce:
            return static_cast<uint32_t>(std::bit_width(nodes)) + 1;
        case Algorithm::dissemination_barrier:
            return static_cast<uint32_t>(std::bit_width(nodes - 1));
        default:
            return 1;
    }
}

// Bytes per node pair of one segment.
class Ledger {
  public:
    Ledger(std::vector<uint64_t>& bytes, uint32_t nodes) : bytes_(bytes), nodes_(nodes) {}

    void add(uint32_t from, uint32_t to, uint64_t n) { bytes_[from * nodes_ + to] += n; }

    // Every node sends to the right all blocks, less that of the node `skipped` places to the right of
    // itself.
    void ring(const std::vector<uint64_t>& blocks, uint32_t skipped) {
        uint64_t total = 0;
        for (uint64_t b : blocks) total += b;
        for (uint32_t i = 0; i < nodes_; ++i)
            add(i, (i + 1) % nodes_, total - blocks[(i + skipped) % nodes_]);
    }
    void doubling(uint64_t bytes) {
        const uint32_t participants = std::bit_floor(nodes_);
        const uint32_t folded = nodes_ - participants;
        const auto node = [&](uint32_t index) { return index < folded ? 2 * index + 1 : index + folded; };
        for (uint32_t pair = 0; pair < folded; ++pair) {
            add(2 * pair, 2 * pair + 1, bytes);
            add(2 * pair + 1, 2 * pair, bytes);
        }
        for (uint32_t index = 0; index < participants; ++index)
            for (uint32_t mask = 1; mask < participants; mask *= 2)
                add(node(index), node(index ^ mask), bytes);
    }
    // `outwards`: away from the root.
    void binomial(uint32_t root, uint64_t bytes, bool outwards) {
        for (uint32_t position = 1; position < nodes_; ++position) {
            const uint32_t child = (position + root) % nodes_;
            const uint32_t parent = ((position & (position - 1)) + root) % nodes_;
            add(outwards ? parent : child, outwards ? child : parent, bytes);
        }
    }
    void chain(uint32_t root, uint64_t bytes, bool outwards) {
        for (uint32_t position = 1; position < nodes_; ++position) {
            const uint32_t farther = (position + root) % nodes_;
            const uint32_t nearer = (position - 1 + root) % nodes_;
            add(outwards ? nearer : farther, outwards ? farther : nearer, bytes);
        }
    }
    void dissemination() {
        for (uint32_t i = 0; i < nodes_; ++i)
            for (uint32_t distance = 1; distance < nodes_; distance *= 2) add(i, (i + distance) % nodes_, 1);
    }

  private:
    std::vector<uint64_t>& bytes_;
    uint32_t nodes_;
};

void add_segment(Ledger& ledger, Algorithm algorithm, const Shape& shape, const Layout& layout,
                 uint64_t elements) {
    const uint64_t bytes = elements * shape.element_bytes;
    const uint32_t root = layout.node_of(shape.root).value;
    std::vector<uint64_t> even, by_ranks;
    for (uint32_t i = 0; i < layout.nodes(); ++i) {
        even.push_back(part_of(elements, layout.nodes(), i).count * shape.element_bytes);
        by_ranks.push_back(layout.ranks_on(NodeIndex(i)).size() * bytes);
    }
    switch (algorithm) {
        case Algorithm::local:
            break;
        case Algorithm::dissemination_barrier:
            ledger.dissemination();
            break;
        case Algorithm::doubling_all_reduce:
            ledger.doubling(bytes);
            break;
        case Algorithm::ring_all_reduce:
            ledger.ring(even, 0);
            ledger.ring(even, 1);
            break;
        case Algorithm::binomial_broadcast:
            ledger.binomial(root, bytes, true);
            break;
        case Algorithm::chain_broadcast:
            ledger.chain(root, bytes, true);
            break;
        case Algorithm::binomial_reduce:
            ledger.binomial(root, bytes, false);
            break;
        case Algorithm::chain_reduce:
            ledger.chain(root, bytes, false);
            break;
        case Algorithm::ring_all_gather:
            ledger.ring(by_ranks, 1);
            break;
        case Algorithm::ring_reduce_scatter:
            ledger.ring(by_ranks, 0);
            break;
    }
}

}  // namespace

uint64_t PlanTable::hash() const {
    uint64_t h = 0xcbf29ce484222325u;  // FNV-1a over the words: all of them count, their order too
    for (uint64_t word : {uint64_t{version}, small_bytes_max, doubling_bytes_max, uint64_t{chunk_bytes},
                          segment_bytes, uint64_t{lanes}}) {
        for (int shift = 0; shift < 64; shift += 8) h = (h ^ ((word >> shift) & 0xff)) * 0x100000001b3u;
    }
    return h;
}

Result<void> PlanTable::check() const {
    if (version != 1)
        return fail(Errc::unsupported,
                    "plan table version " + std::to_string(version) + "; this daemon knows 1");
    if (chunk_bytes == 0 || chunk_bytes % 64 != 0 || chunk_bytes > link::chunk_bytes_max)
        return fail(Errc::invalid_argument, "plan table: chunk_bytes " + std::to_string(chunk_bytes) +
                                                " is not a multiple of 64 from 64 to " +
                                                std::to_string(link::chunk_bytes_max));
    if (lanes == 0 || lanes > lanes_max)
        return fail(Errc::invalid_argument, "plan table: lanes " + std::to_string(lanes) + " is not in 1.." +
                                                std::to_string(lanes_max));
    if (segment_bytes < segment_bytes_min || segment_bytes > segment_bytes_max)
        return fail(Errc::invalid_argument, "plan table: segment_bytes " + std::to_string(segment_bytes) +
                                                " is not in " + std::to_string(segment_bytes_min) + ".." +
                                                std::to_string(segment_bytes_max));
    // A segment is a transfer, or a little more: whole rows of all ranks.
    if (divide_up(segment_bytes, chunk_bytes) > link::transfer_chunks_max / 2)
        return fail(Errc::invalid_argument, "plan table: segment_bytes " + std::to_string(segment_bytes) +
                                                " is more than " +
                                                std::to_string(link::transfer_chunks_max / 2) +
                                                " chunks of chunk_bytes " + std::to_string(chunk_bytes));
    // One segment of a doubling op has scratch for every step.
    if (doubling_bytes_max > segment_bytes || small_bytes_max > segment_bytes)
        return fail(Errc::invalid_argument,
                    "plan table: small_bytes_max and doubling_bytes_max may not exceed "
                    "segment_bytes " +
                        std::to_string(segment_bytes));
    return {};
}

std::string_view name_of(Algorithm algorithm) {
    switch (algorithm) {
        case Algorithm::local:
            return "local";
        case Algorithm::dissemination_barrier:
            return "dissemination barrier";
        case Algorithm::doubling_all_reduce:
            return "recursive doubling";
        case Algorithm::ring_all_reduce:
            return "ring";
        case Algorithm::binomial_broadcast:
            return "binomial broadcast";
        case Algorithm::chain_broadcast:
            return "chain broadcast";
        case Algorithm::binomial_reduce:
            return "binomial reduce";
        case Algorithm::chain_reduce:
            return "chain reduce";
        case Algorithm::ring_all_gather:
            return "ring all-gather";
        case Algorithm::ring_reduce_scatter:
            return "ring reduce-scatter";
    }
    return "unknown";
}

std::string Plan::text() const {
    if (algorithm == Algorithm::local)
        return segments == 1 ? "local"
                             : "local, " + std::to_string(segments) + " segments, " + std::to_string(lanes) +
                                   (lanes == 1 ? " lane" : " lanes");
    return std::string(name_of(algorithm)) + (cls == link::Class::bulk ? ", bulk, " : ", small, ") +
           std::to_string(segments) + (segments == 1 ? " segment, " : " segments, ") + std::to_string(lanes) +
           (lanes == 1 ? " lane, chunks of " : " lanes, chunks of ") + std::to_string(chunk_bytes) + " bytes";
}

uint64_t segment_bytes_of(const Layout& layout, const PlanTable& table) {
    return layout.nodes() <= 1 ? local_segment_bytes : table.segment_bytes;
}

Plan plan(const Shape& shape, const Layout& layout, const PlanTable& table) {
    const OpRow& row = row_of(shape.kind);
    const uint64_t count = row.has_elements ? shape.count : 0;
    const uint64_t bytes = count * shape.element_bytes * row_blocks(row, layout.size());

    Plan out;
    out.algorithm = choose(shape, bytes, layout, table);
    out.cls = bytes <= table.small_bytes_max ? link::Class::small : link::Class::bulk;
    out.chunk_bytes = table.chunk_bytes;
    if (out.algorithm == Algorithm::local) return out;
    out.segments = segments_of(row, shape.count, shape.element_bytes, layout.size(), table.segment_bytes);
    out.lanes = std::min(table.lanes, out.segments);
    out.phases = phases_of(out.algorithm, layout.nodes());
    return out;
}

Plan staged_plan(const Shape& shape, const Layout& layout, const PlanTable& table) {
    Plan out = plan(shape, layout, table);
    if (out.algorithm != Algorithm::local) return out;
    out.segments =
        segments_of(row_of(shape.kind), shape.count, shape.element_bytes, layout.size(), local_segment_bytes);
    out.lanes = std::min(table.lanes, out.segments);
    return out;
}

std::vector<uint64_t> predict_bytes(const Plan& plan, const Shape& shape, const Layout& layout) {
    std::vector<uint64_t> bytes(size_t{layout.nodes()} * layout.nodes());
    Ledger ledger(bytes, layout.nodes());
    for (uint32_t i = 0; i < plan.segments; ++i)
        add_segment(ledger, plan.algorithm, shape, layout, part_of(shape.count, plan.segments, i).count);
    return bytes;
}

}  // namespace nexar::collectives
