#include "engine/group_facts.hpp"

#include <algorithm>

namespace nexar::engine {

std::string GroupFacts::describe(uint32_t rank) const {
    return "rank " + std::to_string(rank) + " (node " + members[rank].node.short_hex() + ", pid " +
           std::to_string(members[rank].pid) + ")";
}

Error GroupFacts::explained(Error error) const {
    const bool named = error.rank >= 0 && error.rank < int64_t{size()};
    if (named) {
        const auto& member = members[static_cast<size_t>(error.rank)];
        if (error.node.empty()) error.node = member.node.hex();
        if (error.pid == 0 && error.node == member.node.hex()) error.pid = member.pid;
        if (error.code == Errc::peer_lost && error.lost_ranks.empty())
            error.lost_ranks.push_back(static_cast<uint32_t>(error.rank));
    }
    for (size_t i = 0; i < nodes.size() && error.host.empty(); ++i)
        if (error.node == nodes[i].hex()) error.host = hosts[i];
    return error;
}

Result<void> GroupFacts::check_supported(const OpDescriptor& descriptor) const {
    const uint64_t types = feature_of_types(uint64_t(descriptor.dtype), uint64_t(descriptor.op));
    const uint64_t asked = feature_of(descriptor.partials);
    const uint64_t needed = feature_of(descriptor.kind) | types | asked;
    if ((features & needed) == needed) return {};
    const auto lacks = std::ranges::find_if(
        members, [&](const auto& member) { return (member.features & needed) != needed; });
    const std::string& host = hosts[layout.node_of(lacks->rank).value];
    const bool has_kind = (lacks->features & feature_of(descriptor.kind)) == feature_of(descriptor.kind);
    const bool has_types = (lacks->features & types) == types;
    const std::string what = !has_kind    ? "operation"
                             : !has_types ? "type or reduction"
                                          : std::string("option (") + text_of(descriptor.partials) + ")";
    return fail(Error{Errc::unsupported,
                      (has_kind ? descriptor.text() : std::string(name_of(descriptor.kind))) + ": node " +
                          lacks->node.short_hex() + (host.empty() ? "" : " (" + host + ")") +
                          ", which has rank " + std::to_string(lacks->rank) +
                          ", runs a daemon without this " + what + "; upgrade it",
                      lacks->rank, -1, lacks->node.hex()});
}

}  // namespace nexar::engine
