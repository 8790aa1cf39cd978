// MemberTable (codec_lists-inl.hpp): a table of nodes, and members that name their line in it, so that the
// largest group fits in one message. A part of codec.cpp, which includes it inside its namespace.
#pragma once

// One line for each incarnation of a node.
struct NodeTable {
    using Incarnated = std::pair<NodeId, Incarnation>;
    struct Rest {
        uint64_t features = 0;
        Nonce nonce{};
    };
    std::map<Incarnated, uint16_t> index;
    std::vector<Incarnated> nodes;
    std::vector<Rest> rests;

    uint16_t line_of(const NodeId& node, const Incarnation& incarnation, const Rest& rest) {
        auto [at, added] = index.try_emplace({node, incarnation}, static_cast<uint16_t>(nodes.size()));
        if (added) {
            nodes.emplace_back(node, incarnation);
            rests.push_back(rest);
        }
        NEXAR_CHECK(nodes.size() <= group_nodes_max);
        return at->second;
    }
    // An origin has no incarnation of its own and shares any line of its node, once all nodes have theirs: so
    // a list that was read, and had room in one message, has room again.
    uint16_t line_of_origin(const NodeId& origin) {
        const auto at = index.lower_bound({origin, {}});
        return at != index.end() && at->first.first == origin ? at->second : line_of(origin, {}, {});
    }
    void fill(s::Members::Builder out) const {
        auto table = out.initNodes(static_cast<uint32_t>(nodes.size()));
        auto records = out.initIncarnations(static_cast<uint32_t>(nodes.size()));
        auto bits = out.initFeatures(static_cast<uint32_t>(nodes.size()));
        auto nonces = out.initNonces(static_cast<uint32_t>(nodes.size()));
        for (uint32_t i = 0; i < table.size(); ++i) {
            table.set(i, Node{"group node"}.out(nodes[i].first));
            fill_struct(records[i], nodes[i].second);
            bits.set(i, rests[i].features);
            nonces.set(i, FixedBytes{"nonce"}.out(rests[i].nonce));
        }
    }
};

void MemberTable::fill(auto make, const std::vector<GroupMemberRecord>& members) const {
    NEXAR_CHECK(members.size() <= ranks_max);
    s::Members::Builder out = make();
    NodeTable table;
    auto list = out.initList(static_cast<uint32_t>(members.size()));
    for (uint32_t i = 0; i < list.size(); ++i) {
        const auto& [request, node, rank, pid, incarnation, features, nonce] = members[i];
        list[i].setNumber(request.number);
        list[i].setRank(rank);
        list[i].setPid(pid);
        list[i].setNode(table.line_of(node, incarnation, {features, nonce}));
    }
    for (uint32_t i = 0; i < list.size(); ++i)
        list[i].setOrigin(table.line_of_origin(members[i].request.origin));
    table.fill(out);
}

void MemberTable::read(Decoder& d, s::Members::Reader in, std::vector<GroupMemberRecord>& members) const {
    const auto table = in.getNodes();
    const auto list = in.getList();
    const auto records = in.getIncarnations();
    const auto bits = in.getFeatures();
    const auto nonces = in.getNonces();
    d.limit("count of group nodes", table.size(), group_nodes_max);
    d.limit("count of group nodes' incarnations", records.size(), table.size());
    d.limit("count of group nodes' features", bits.size(), table.size());
    d.limit("count of group nodes' nonces", nonces.size(), table.size());
    d.limit("count of members", list.size(), ranks_max);
    if (!d.ok()) return;
    std::vector<NodeId> nodes(table.size());
    for (uint32_t i = 0; i < table.size(); ++i) Node{"group node"}.read(d, table[i], nodes[i]);
    std::vector<Incarnation> incarnations(nodes.size());
    for (uint32_t i = 0; i < records.size(); ++i) read_struct(d, records[i], incarnations[i]);
    std::vector<NodeTable::Rest> rests(nodes.size());
    for (uint32_t i = 0; i < bits.size(); ++i) rests[i].features = bits[i];
    for (uint32_t i = 0; i < nonces.size(); ++i) FixedBytes{"nonce"}.read(d, nonces[i], rests[i].nonce);
    members.reserve(list.size());
    for (const auto m : list) {
        if (m.getNode() >= nodes.size() || m.getOrigin() >= nodes.size())
            return d.complain("a member names node " + std::to_string(std::max(m.getNode(), m.getOrigin())) +
                              " of a table of " + std::to_string(nodes.size()));
        members.push_back({{nodes[m.getOrigin()], m.getNumber()},
                           nodes[m.getNode()],
                           m.getRank(),
                           m.getPid(),
                           incarnations[m.getNode()],
                           rests[m.getNode()].features,
                           rests[m.getNode()].nonce});
    }
}
