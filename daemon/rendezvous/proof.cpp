// See proof.hpp.
#include "rendezvous/proof.hpp"

#include <map>
#include <span>
#include <string_view>
#include <tuple>
#include <vector>

#include "core/transcript.hpp"

namespace nexar::rendezvous {
namespace {

constexpr std::string_view label = "nexar-prepare-v2";

void put_plan(Transcript& w, const wire::PlanTableRecord& plan) {
    w.put(plan.version);
    w.put(plan.small_bytes_max);
    w.put(plan.doubling_bytes_max);
    w.put(plan.chunk_bytes);
    w.put(plan.segment_bytes);
    w.put(plan.lanes);
    w.put(plan.bulk_shards);
    // A member that does not know these fields has a group of an older plan function [O3].
    if (plan.version < 3) return;
    w.put(plan.small_start_ns);
    w.put(plan.small_ps_per_byte);
    w.put(plan.bulk_start_ns);
    w.put(plan.bulk_ps_per_byte);
    w.put(plan.memory_ps_per_byte);
    w.put(plan.shared_ps_per_byte);
    w.put(plan.large_message_bytes);
    w.put(plan.ring_nodes_max);
    w.put(plan.family);
}

// What a GroupPrepare states of a node stands once, before its first member. A request's origin is the
// member's node [R5].
void put_members(Transcript& w, const std::vector<wire::GroupMemberRecord>& members) {
    std::map<std::tuple<NodeId, Incarnation, uint64_t, wire::Nonce>, uint32_t> lines;
    w.put(static_cast<uint32_t>(members.size()));
    for (const wire::GroupMemberRecord& m : members) {
        const auto [line, added] = lines.try_emplace({m.node, m.incarnation, m.features, m.nonce},
                                                     static_cast<uint32_t>(lines.size()));
        w.put(line->second);
        if (added) {
            w.put(m.node.bytes);
            w.put(m.incarnation);
            w.put(m.features);
            w.put(m.nonce);
        }
        w.put(m.request.number);
        w.put(m.rank);
        w.put(m.pid);
    }
}

}  // namespace

void add_nonce(wire::Nonce& sum, const wire::Nonce& nonce) {
    for (size_t i = 0; i < sum.size(); ++i) sum[i] = static_cast<uint8_t>(sum[i] ^ nonce[i]);
}

std::vector<std::byte> transcript_of(const wire::GroupPrepare& prepare) {
    Transcript w;
    w.text(label);
    w.put(prepare.group.creator);
    w.put(prepare.group.incarnation);
    w.put(prepare.group.counter);
    w.put(prepare.epoch);
    w.put(prepare.key);
    w.text(prepare.name);
    put_members(w, prepare.members);
    put_plan(w, prepare.plan);
    w.put(prepare.timeouts.collective_ms);
    w.put(prepare.timeouts.barrier_ms);
    w.put(prepare.timeouts.rpc_ms);
    return {w.bytes().begin(), w.bytes().end()};
}

wire::Tag Proof::tag_of(const NodeId& node, Incarnation incarnation) const {
    Transcript w;
    w.put(digest_);
    w.put(node.bytes);
    w.put(incarnation);
    return port_->hmac_sha256(std::as_bytes(std::span(key_)), w.bytes());
}

bool Proof::holds(const wire::Tag& tag, const NodeId& node, Incarnation incarnation) const {
    const wire::Tag right = tag_of(node, incarnation);
    return equal_in_constant_time(std::as_bytes(std::span(right)), std::as_bytes(std::span(tag)));
}

}  // namespace nexar::rendezvous
