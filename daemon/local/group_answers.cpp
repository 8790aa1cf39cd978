// See group_answers.hpp.
#include "local/group_answers.hpp"

#include <algorithm>
#include <unordered_map>

namespace nexar::local {
namespace {

template <size_t N>
uint32_t put(const std::string& text, char (&out)[N]) {
    const size_t bytes = std::min(text.size(), N);
    std::copy_n(text.begin(), bytes, out);
    return static_cast<uint32_t>(bytes);
}

void put(const GroupId& id, uint64_t (&out)[3]) {
    out[0] = id.creator, out[1] = id.incarnation, out[2] = id.counter;
}

uint32_t root_rank(const engine::GroupInfo& group, uint32_t rank) {
    return group.root ? group.root_ranks[rank] : rank;
}

}  // namespace

nexar_shm_group_info info_of(const engine::GroupInfo& group) {
    nexar_shm_group_info out{};
    put(group.id, out.id);
    if (group.parent) put(*group.parent, out.parent);
    out.collective_timeout_ms = to_ms(group.timeouts.collective);
    out.barrier_timeout_ms = to_ms(group.timeouts.barrier);
    out.rpc_timeout_ms = to_ms(group.timeouts.rpc);
    out.plan_version = group.plan.version;
    out.plan_lanes = group.plan.lanes;
    out.plan_chunk_bytes = group.plan.chunk_bytes;
    out.plan_shards = group.plan.bulk_shards;
    out.plan_segment_bytes = group.plan.segment_bytes;
    out.plan_small_bytes_max = group.plan.small_bytes_max;
    out.plan_doubling_bytes_max = group.plan.doubling_bytes_max;
    std::vector<NodeId> nodes;
    for (const engine::GroupMember& member : group.members) nodes.push_back(member.node);
    std::ranges::sort(nodes);
    nodes.erase(std::ranges::unique(nodes).begin(), nodes.end());
    out.nodes = static_cast<uint32_t>(nodes.size());
    out.name_bytes = put(group.name, out.name);
    out.parent_name_bytes = put(group.parent_name, out.parent_name);
    return out;
}

Result<std::vector<uint32_t>> translated(const engine::GroupInfo& from, const engine::GroupInfo& to,
                                         std::span<const uint32_t> ranks) {
    if (from.root.value_or(from.id) != to.root.value_or(to.id))
        return fail(Errc::invalid_argument, "the groups " + from.name + " and " + to.name +
                                                " are no children of one group, nor one the other's");
    std::unordered_map<uint32_t, uint32_t> by_root;
    for (uint32_t rank = 0; rank < to.size; ++rank) by_root.emplace(root_rank(to, rank), rank);
    std::vector<uint32_t> out;
    for (const uint32_t rank : ranks) {
        if (rank >= from.size)
            return fail(Errc::invalid_argument, "rank " + std::to_string(rank) + " is not in a group of " +
                                                    std::to_string(from.size));
        const auto at = by_root.find(root_rank(from, rank));
        out.push_back(at == by_root.end() ? NEXAR_SHM_ANY_RANK : at->second);
    }
    return out;
}

}  // namespace nexar::local
