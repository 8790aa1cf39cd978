// all_to_allv. As all_to_all, the blocks from all ranks of one node to all ranks of another are one list, and
// workers copy the blocks between ranks of this node. The lengths are known to each block's two ranks only:
// they are compared before anything arrives in an output, here for ranks of this node, between nodes in the
// algorithm. Scratch: the counts of the blocks to and from other nodes.
#include <cstring>

#include "engine/schedules/schedule.hpp"

namespace nexar::engine {
namespace {

using collectives::NodeIndex;
using link::Extents;
using Lists = Vector<Extents>;  // by node

// Calls f(local, other) for each rank here and each of a node: sender by sender, as both nodes have them.
template <class F>
void for_sent_to(const TwoLevelOp& op, uint32_t node, F f) {
    for (const LocalBuffers& local : op.locals)
        for (const uint32_t other : op.layout->ranks_on(NodeIndex(node))) f(local, other);
}
template <class F>
void for_received_from(const TwoLevelOp& op, uint32_t node, F f) {
    for (const uint32_t other : op.layout->ranks_on(NodeIndex(node)))
        for (const LocalBuffers& local : op.locals) f(local, other);
}

// The block of a packed side.
void add_block(Extents& to, const Side& side, const Counts& counts, uint32_t rank, size_t element) {
    if (counts.of(rank) > 0)
        to.push_back({side.at + counts.begin(rank) * element, counts.of(rank) * element});
}

size_t counts_bytes(const TwoLevelOp& op, uint32_t node) {
    return op.locals.size() * op.layout->ranks_on(NodeIndex(node)).size() * sizeof(uint64_t);
}
size_t counts_bytes(const TwoLevelOp& op) {
    size_t out = 0;
    for (uint32_t node = 0; node < op.layout->nodes(); ++node)
        if (NodeIndex(node) != op.self) out += counts_bytes(op, node);
    return out;
}

// Room for the counts of each other node.
Lists counts_memory(MeshLane& lane, const TwoLevelOp& op) {
    Place memory = lane.scratch(counts_bytes(op)).at;
    Lists out(op.layout->nodes());
    for (uint32_t node = 0; node < op.layout->nodes(); ++node) {
        if (NodeIndex(node) == op.self) continue;
        out[node] = {{memory, counts_bytes(op, node)}};
        memory += counts_bytes(op, node);
    }
    return out;
}

Error mismatch(const TwoLevelOp& op, uint32_t from, uint64_t sent, uint32_t to, uint64_t expected) {
    const GroupFacts& facts = *op.facts;
    return {Errc::mismatch,
            op.descriptor.text() + ": " + facts.describe(from) + " sends " + std::to_string(sent) +
                " elements to " + facts.describe(to) + ", which receives " + std::to_string(expected),
            from, to, facts.nodes[op.layout->node_of(from).value].hex()};
}

// `counts`: what a node's ranks send to the ranks here.
Result<void> check_counts(const TwoLevelOp& op, uint32_t node, const std::byte* counts) {
    Result<void> out;
    for_received_from(op, node, [&](const LocalBuffers& local, uint32_t from) {
        uint64_t sent = 0;
        std::memcpy(&sent, counts, sizeof sent);
        counts += sizeof sent;
        const uint64_t expected = local.own_counts->receives.of(from);
        if (out && sent != expected) out = fail(mismatch(op, from, sent, local.rank, expected));
    });
    return out;
}

void write_counts(const TwoLevelOp& op, uint32_t node, std::byte* to) {
    for_sent_to(op, node, [&](const LocalBuffers& local, uint32_t receiver) {
        const uint64_t count = local.own_counts->sends.of(receiver);
        std::memcpy(to, &count, sizeof count);
        to += sizeof count;
    });
}

// One rank of this node sends what all ranks of it expect.
Result<void> check_local_counts(const TwoLevelOp& op, const LocalBuffers& from) {
    for (const LocalBuffers& local : op.locals) {
        const uint64_t sent = from.own_counts->sends.of(local.rank);
        const uint64_t expected = local.own_counts->receives.of(from.rank);
        if (sent != expected) return fail(mismatch(op, from.rank, sent, local.rank, expected));
    }
    return {};
}

// What an operation of many ranks does with its blocks is done in portions: other operations are served
// between them [Z8].
constexpr size_t blocks_at_once = 4096;
class Portion {
  public:
    bool is_full(size_t blocks) {
        done_ += blocks;
        return done_ >= blocks_at_once;
    }
    Task<> next(MeshLane& lane) {
        done_ = 0;
        return lane.next_turn();
    }

  private:
    size_t done_ = 0;
};

size_t blocks_with(const TwoLevelOp& op, uint32_t node) {
    return op.locals.size() * op.layout->ranks_on(NodeIndex(node)).size();
}

Task<> exchange(MeshLane& lane, const TwoLevelOp& op, Portion& portion, Lists from, Lists to) {
    collectives::CountedExchange all;
    all.outgoing = std::move(from);
    all.incoming = std::move(to);
    all.outgoing_counts = counts_memory(lane, op);
    all.incoming_counts = counts_memory(lane, op);
    for (uint32_t node = 0; node < op.layout->nodes(); ++node) {
        if (NodeIndex(node) == op.self) continue;
        write_counts(op, node, all.outgoing_counts[node][0].data());
        if (portion.is_full(blocks_with(op, node))) co_await portion.next(lane);
    }
    all.check = [&op](NodeIndex node, const Extents& arrived) {
        return check_counts(op, node.value, arrived[0].data());
    };
    all.transfer_bytes_max = size_t{link::transfer_chunks_max} * op.plan.chunk_bytes;
    co_await collectives::pairwise_all_to_allv(lane, std::move(all));
    co_return ok();
}

}  // namespace

uint64_t all_to_allv_scratch(const TwoLevelOp& op, const Geometry& at) {
    return at.alone() ? 0 : 2 * ScratchPool::rounded(counts_bytes(op));
}

Task<> all_to_allv_schedule(MeshLane& lane, const TwoLevelOp& op, Geometry at) {
    Portion portion;
    for (const LocalBuffers& sender : op.locals) {
        if (auto agreed = check_local_counts(op, sender); !agreed) co_return fail(std::move(agreed.error()));
        if (portion.is_full(op.locals.size())) co_await portion.next(lane);
    }
    const size_t element = reduce::size_of(op.descriptor.dtype);
    Lists from(at.nodes()), to(at.nodes());
    for (uint32_t node = 0; node < at.nodes(); ++node) {
        for_sent_to(op, node, [&](const LocalBuffers& local, uint32_t receiver) {
            add_block(from[node], local.in, local.own_counts->sends, receiver, element);
        });
        for_received_from(op, node, [&](const LocalBuffers& local, uint32_t sender) {
            add_block(to[node], local.out, local.own_counts->receives, sender, element);
        });
        if (portion.is_full(2 * blocks_with(op, node))) co_await portion.next(lane);
    }
    Lists own(1, std::move(to[op.self.value]));
    Op& local = lane.job(at.copy(std::move(own), std::move(from[op.self.value])));
    if (!at.alone()) co_await exchange(lane, op, portion, std::move(from), std::move(to));
    co_await done(local);
    co_return ok();
}

}  // namespace nexar::engine
