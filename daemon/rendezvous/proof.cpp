// See proof.hpp.
#include "rendezvous/proof.hpp"

#include <map>
#include <span>
#include <string_view>
#include <tuple>
#include <vector>

namespace nexar::rendezvous {
namespace {

constexpr std::string_view label = "nexar-prepare-v2";

void put_text(Writer& w, std::string_view text) {
    w.put(static_cast<uint32_t>(text.size()));
    w.put_bytes(std::as_bytes(std::span(text)));
}

void put_incarnation(Writer& w, const Incarnation& incarnation) {
    w.put(incarnation.counter);
    w.put(incarnation.nonce);
}

void put_plan(Writer& w, const wire::PlanTableRecord& plan) {
    w.put(plan.version);
    w.put(plan.small_bytes_max);
    w.put(plan.doubling_bytes_max);
    w.put(plan.chunk_bytes);
    w.put(plan.segment_bytes);
    w.put(plan.lanes);
    w.put(plan.bulk_shards);
}

// What a GroupPrepare states of a node stands once, before its first member. A request's origin is the
// member's node [R5].
void put_members(Writer& w, const std::vector<wire::GroupMemberRecord>& members) {
    std::map<std::tuple<NodeId, Incarnation, uint64_t, wire::Nonce>, uint32_t> lines;
    w.put(static_cast<uint32_t>(members.size()));
    for (const wire::GroupMemberRecord& m : members) {
        const auto [line, added] = lines.try_emplace({m.node, m.incarnation, m.features, m.nonce},
                                                     static_cast<uint32_t>(lines.size()));
        w.put(line->second);
        if (added) {
            w.put(m.node.bytes);
            put_incarnation(w, m.incarnation);
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
    std::vector<std::byte> out;
    Writer w(out);
    put_text(w, label);
    w.put(prepare.group.creator);
    w.put(prepare.group.incarnation);
    w.put(prepare.group.counter);
    w.put(prepare.epoch);
    w.put(prepare.key);
    put_text(w, prepare.name);
    put_members(w, prepare.members);
    put_plan(w, prepare.plan);
    w.put(prepare.timeouts.collective_ms);
    w.put(prepare.timeouts.barrier_ms);
    w.put(prepare.timeouts.rpc_ms);
    return out;
}

wire::Tag Proof::tag_of(const NodeId& node, Incarnation incarnation) const {
    std::vector<std::byte> data;
    Writer w(data);
    w.put(digest_);
    w.put(node.bytes);
    put_incarnation(w, incarnation);
    return port_->hmac_sha256(std::as_bytes(std::span(key_)), data);
}

bool Proof::holds(const wire::Tag& tag, const NodeId& node, Incarnation incarnation) const {
    const wire::Tag right = tag_of(node, incarnation);
    unsigned difference = 0;
    for (size_t i = 0; i < tag.size(); ++i) difference |= static_cast<unsigned>(tag[i] ^ right[i]);
    return difference == 0;
}

}  // namespace nexar::rendezvous
