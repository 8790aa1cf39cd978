// See children.hpp.
#include "engine/children.hpp"

#include <algorithm>
#include <cstring>
#include <map>

#include "core/child_name.hpp"
#include "core/transcript.hpp"
#include "rendezvous/rendezvous.hpp"
#include "wire/limits.hpp"

namespace nexar::engine {

using collectives::NodeIndex;

namespace {

int64_t row_ms(Duration d) {
    return d < Duration{0} ? -1 : std::min(to_ms(d), wire::timeout_ms_max);
}

std::unexpected<Error> at_rank(const GroupFacts& parent, uint32_t rank, Errc code, const std::string& text) {
    return fail(Error{code, parent.describe(rank) + text, rank, -1, parent.members[rank].node.hex()});
}

Result<void> check_row(const GroupFacts& parent, uint32_t rank, const ChildRow& row) {
    const std::string most = std::to_string(row.limit) + " groups, the most that ";
    switch (ChildRefusal(row.refusal)) {
        case ChildRefusal::none:
            break;
        case ChildRefusal::session:
            return at_rank(parent, rank, Errc::table_full,
                           " gets no child: its session has " + most + "one may have; free some");
        case ChildRefusal::tenant:
            return at_rank(parent, rank, Errc::table_full,
                           " gets no child: its user has " + most +
                               "one may have on its host (groups_max, user_share_percent); free some");
        case ChildRefusal::daemon:
            return at_rank(parent, rank, Errc::table_full,
                           " gets no child: its daemon has " + most +
                               "all users may have there (groups_max); free some");
        case ChildRefusal::kept:
            return at_rank(
                parent, rank, Errc::table_full,
                " gets no child: its daemon has " + most +
                    "users with more than a few may have there: the rest of groups_max is kept for the "
                    "others; free some");
        default:
            return at_rank(parent, rank, Errc::table_full, " gets no child: its daemon refuses it");
    }
    for (const int64_t ms : {row.collective_ms, row.barrier_ms, row.rpc_ms})
        if (ms < -1 || ms > wire::timeout_ms_max)
            return at_rank(parent, rank, Errc::protocol_error,
                           " states a time-out of " + std::to_string(ms) + " ms");
    return {};
}

// The value that the child's ranks give, or the parent's.
Result<Duration> agree(const GroupFacts& parent, const Child& child, std::span<const ChildRow> rows,
                       int64_t ChildRow::* field, const char* name, Duration inherited) {
    std::optional<uint32_t> first;
    for (const uint32_t rank : child.ranks) {
        if (rows[rank].*field < 0) continue;
        if (!first) first = rank;
        const int64_t one = rows[*first].*field, other = rows[rank].*field;
        if (one == other) continue;
        const auto value = [](int64_t ms) { return ms == 0 ? "none" : std::to_string(ms) + " ms"; };
        Error error{Errc::options_differ,
                    parent.describe(*first) + " wants a " + name + " of " + value(one) + " for the child, " +
                        parent.describe(rank) + " one of " + value(other),
                    rank, *first, parent.members[rank].node.hex()};
        return fail(std::move(error));
    }
    return first ? Duration(rows[*first].*field * 1'000'000) : inherited;
}

Result<void> agree_on_timeouts(const GroupFacts& parent, std::span<const ChildRow> rows, Child& child) {
    NEXAR_TRY(child.timeouts.collective, agree(parent, child, rows, &ChildRow::collective_ms,
                                               "collective time-out", parent.timeouts.collective));
    // As in an open [R18]: who sets only that one means barriers, too.
    const bool sets_collective =
        std::ranges::any_of(child.ranks, [&](uint32_t rank) { return rows[rank].collective_ms >= 0; });
    const Duration barrier = sets_collective ? child.timeouts.collective : parent.timeouts.barrier;
    NEXAR_TRY(child.timeouts.barrier,
              agree(parent, child, rows, &ChildRow::barrier_ms, "barrier time-out", barrier));
    NEXAR_TRY(child.timeouts.rpc,
              agree(parent, child, rows, &ChildRow::rpc_ms, "rpc time-out", parent.timeouts.rpc));
    return {};
}

rendezvous::Digest derive(const rendezvous::ProofPort& port, const rendezvous::ProofKey& key,
                          std::string_view label, const GroupId& group, uint32_t epoch, uint64_t seq,
                          uint64_t colour) {
    Transcript w;
    w.label(label);
    w.put(group.creator);
    w.put(group.incarnation);
    w.put(group.counter);
    w.put(epoch);
    w.put(seq);
    w.put(colour);
    return port.hmac_sha256(std::as_bytes(std::span(key)), w.bytes());
}

uint64_t word_of(const rendezvous::Digest& digest, size_t at) {
    uint64_t out = 0;
    std::memcpy(&out, digest.data() + at, sizeof out);
    return out;
}

// No colour is as large, so a dup's secret is no split's.
constexpr uint64_t colour_of_dup = UINT64_MAX;
uint64_t colour_word(const Child& child) {
    return child.colour ? uint64_t{*child.colour} : colour_of_dup;
}

// Nodes are numbered in the order of their lowest ranks, as in every group.
void place(const GroupFacts& parent, const Child& child, GroupFacts& out) {
    std::map<uint32_t, uint32_t> numbers;  // by the node's number in the parent
    std::vector<uint32_t> placement;
    for (const uint32_t rank : child.ranks) {
        const uint32_t node = parent.layout.node_of(rank).value;
        const auto [at, first] = numbers.try_emplace(node, static_cast<uint32_t>(out.nodes.size()));
        placement.push_back(at->second);
        if (!first) continue;
        if (NodeIndex(node) == parent.self) out.self = NodeIndex(at->second);
        out.nodes.push_back(parent.nodes[node]);
        out.hosts.push_back(parent.hosts[node]);
        out.peers.push_back(parent.peers[node]);
    }
    out.layout = collectives::Layout(placement);
}

// Two nodes that have other rows do not agree on a byte: the hash of the plan table, which every header has,
// covers the ranks.
uint64_t hash_of(const GroupFacts& facts, const Child& child) {
    uint64_t h = facts.table.hash(facts.bulk_shards);
    const auto add = [&h](uint64_t word) { h = (h ^ word) * 0x9e3779b97f4a7c15u + (h >> 29); };
    for (const uint32_t rank : child.ranks) add(rank);
    for (const Duration d : {child.timeouts.collective, child.timeouts.barrier, child.timeouts.rpc})
        add(static_cast<uint64_t>(d.count()));
    return h;
}

}  // namespace

ChildRow child_row_of(const ChildRequest& r) {
    ChildRow out;
    out.colour = r.colour;
    out.refusal = static_cast<uint32_t>(r.refusal);
    out.key = r.key;
    out.limit = r.limit;
    out.collective_ms = row_ms(r.asked.collective);
    out.barrier_ms = row_ms(r.asked.barrier);
    out.rpc_ms = row_ms(r.asked.rpc);
    return out;
}

Result<std::vector<Child>> children_of(const GroupFacts& parent, OpKind kind,
                                       std::span<const ChildRow> rows) {
    std::map<uint32_t, Child> by_colour;
    for (uint32_t rank = 0; rank < parent.size(); ++rank) {
        const ChildRow& row = rows[rank];
        NEXAR_TRY_VOID(check_row(parent, rank, row));
        const uint32_t colour = kind == OpKind::group_dup ? 0 : row.colour;
        if (colour == no_colour) continue;
        Child& child = by_colour[colour];
        if (kind != OpKind::group_dup) child.colour = colour;
        child.ranks.push_back(rank);
    }
    std::vector<Child> out;
    for (auto& [colour, child] : by_colour) {
        if (kind != OpKind::group_dup)
            std::ranges::sort(child.ranks, {},
                              [&](uint32_t rank) { return std::pair(rows[rank].key, rank); });
        NEXAR_TRY_VOID(agree_on_timeouts(parent, rows, child));
        out.push_back(std::move(child));
    }
    return out;
}

GroupFacts facts_of(const GroupFacts& parent, const rendezvous::ProofPort& port, uint64_t seq,
                    const Child& child) {
    GroupFacts out;
    const Family family = family_of(parent, port, seq);
    out.id = {family.creator, family.incarnation, child.colour.value_or(0)};
    out.epoch = GroupEpoch(1);
    out.name = child_name(parent.name, seq, child.colour);
    std::vector<wire::GroupMemberRecord> members;
    for (const uint32_t rank : child.ranks) {
        members.push_back(parent.members[rank]);
        members.back().rank = static_cast<uint32_t>(members.size() - 1);
    }
    out.features = rendezvous::common_features(members);
    out.members = std::move(members);
    out.table = parent.table;
    out.bulk_shards = parent.bulk_shards;
    out.table_hash = hash_of(parent, child);
    out.timeouts = child.timeouts;
    place(parent, child, out);
    out.secret = rendezvous::ProofKey(derive(port, parent.secret, "nexar-child-v1", parent.id,
                                             parent.epoch.value, seq, colour_word(child)));
    out.parent = parent.id;
    out.parent_name = parent.name;
    out.root = parent.root.value_or(parent.id);
    std::vector<uint32_t> root_ranks;
    for (const uint32_t rank : child.ranks)
        root_ranks.push_back(parent.root ? parent.root_ranks[rank] : rank);
    out.root_ranks = std::move(root_ranks);
    return out;
}

Family family_of(const GroupFacts& parent, const rendezvous::ProofPort& port, uint64_t seq) {
    const auto digest = derive(port, parent.secret, "nexar-family-v1", parent.id, parent.epoch.value, seq, 0);
    return {word_of(digest, 0), word_of(digest, sizeof(uint64_t))};
}

rendezvous::ProofKey secret_of(const GroupId& group, const std::optional<rendezvous::ProofKey>& proof,
                               const rendezvous::ProofPort& port) {
    if (!port.hmac_sha256) return {};  // this engine makes no children
    rendezvous::ProofKey key = proof.value_or(rendezvous::ProofKey{});
    if (!proof && port.nonce) {
        const wire::Nonce one = port.nonce(), two = port.nonce();
        std::ranges::copy(one, key.begin());
        std::ranges::copy(two, key.begin() + one.size());
    }
    return rendezvous::ProofKey(derive(port, key, "nexar-group-v1", group, 0, 0, 0));
}

}  // namespace nexar::engine
