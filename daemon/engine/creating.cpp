// See creating.hpp.
#include "engine/creating.hpp"

#include <algorithm>
#include <bit>

#include "core/child_name.hpp"
#include "core/transcript.hpp"

namespace nexar::engine {

namespace {

constexpr size_t listed_max = 12;  // of ranks in a text

// [Y10] Nobody who lacks the parent's secret can give these; `label` keeps the two apart.
rendezvous::Digest derive(const GroupFacts& parent, const rendezvous::ProofPort& port, std::string_view label,
                          std::span<const uint32_t> ranks, uint64_t tag) {
    Transcript w;
    w.label(label);
    w.put(parent.id.creator);
    w.put(parent.id.incarnation);
    w.put(parent.id.counter);
    w.put(parent.epoch.value);
    w.put(tag);
    w.put(static_cast<uint32_t>(ranks.size()));
    for (const uint32_t rank : ranks) w.put(rank);
    return port.hmac_sha256(std::as_bytes(std::span(parent.secret)), w.bytes());
}

}  // namespace

std::string text_of_list(std::span<const uint32_t> ranks) {
    std::string out;
    for (size_t i = 0; i < std::min(ranks.size(), listed_max); ++i)
        out += (i > 0 ? ", " : "") + std::to_string(ranks[i]);
    return ranks.size() <= listed_max ? out
                                      : out + " and " + std::to_string(ranks.size() - listed_max) + " more";
}

std::optional<uint32_t> Listed::first_common(const Listed& other, uint32_t from) const {
    const size_t end = std::min(has_.size(), other.has_.size());
    uint64_t wanted = ~uint64_t{0} << from % 64;
    for (size_t i = from / 64; i < end; ++i, wanted = ~uint64_t{0})
        if (const uint64_t both = has_[i] & other.has_[i] & wanted; both != 0)
            return static_cast<uint32_t>(64 * i) + static_cast<uint32_t>(std::countr_zero(both));
    return {};
}

size_t Listed::common(const Listed& other) const {
    size_t out = 0;
    for (size_t i = 0; i < std::min(has_.size(), other.has_.size()); ++i)
        out += static_cast<size_t>(std::popcount(has_[i] & other.has_[i]));
    return out;
}

size_t Creation::bytes_of_list(size_t ranks, uint32_t parent_size) {
    return ranks * sizeof(uint32_t) + (parent_size + 63) / 64 * sizeof(uint64_t);
}

int64_t Creation::index_of(uint32_t parent_rank) const {
    const auto at = std::ranges::find(ranks, parent_rank);
    return at == ranks.end() ? -1 : at - ranks.begin();
}

std::vector<uint32_t> Creation::root_ranks() const {
    std::vector<uint32_t> out;
    for (const uint32_t rank : ranks)
        out.push_back(parent_root_ranks.empty() ? rank : parent_root_ranks[rank]);
    return out;
}

Result<void> check_list(const GroupFacts& parent, uint32_t rank, std::span<const uint32_t> ranks) {
    if (ranks.empty() || ranks.size() > parent.size())
        return fail(Errc::invalid_argument, "the list has " + std::to_string(ranks.size()) +
                                                " ranks; allowed: 1 to " + std::to_string(parent.size()) +
                                                ", the size of the parent");
    std::vector<uint32_t> places(parent.size(), UINT32_MAX);
    for (uint32_t i = 0; i < ranks.size(); ++i) {
        if (ranks[i] >= parent.size())
            return fail(Errc::invalid_argument,
                        "ranks[" + std::to_string(i) + "] is " + std::to_string(ranks[i]) +
                            "; allowed: 0 to " + std::to_string(parent.size() - 1) + ", the parent's ranks");
        uint32_t& place = places[ranks[i]];
        if (place != UINT32_MAX)
            return fail(Errc::invalid_argument,
                        "rank " + std::to_string(ranks[i]) + " is in the list twice, as ranks[" +
                            std::to_string(place) + "] and ranks[" + std::to_string(i) + "]");
        place = i;
    }
    if (places[rank] == UINT32_MAX)
        return fail(Errc::invalid_argument, "rank " + std::to_string(rank) +
                                                ", which calls, is not in the list (" + text_of_list(ranks) +
                                                "): only listed ranks call nexar_group_create");
    return {};
}

Creation creation_of(const GroupFacts& parent, const rendezvous::ProofPort& port,
                     const SharedList<uint32_t>& ranks, uint64_t tag) {
    Creation out;
    out.parent = parent.id;
    out.root = parent.root.value_or(parent.id);
    out.parent_name = parent.name;
    out.name = created_name(parent.name, tag);
    out.ranks = ranks;
    out.listed = Listed(ranks, parent.size());
    out.tag = tag;
    out.timeouts = parent.timeouts;
    out.parent_members = parent.members;
    if (parent.root) out.parent_root_ranks = parent.root_ranks;
    const bool local = std::ranges::all_of(
        ranks, [&parent](uint32_t rank) { return parent.layout.node_of(rank) == parent.self; });
    out.credentials.key = derive(parent, port, "nexar-create-v1", ranks, tag);
    if (!local)
        out.credentials.proof =
            rendezvous::ProofKey(derive(parent, port, "nexar-create-proof-v1", ranks, tag));
    return out;
}

OpenRequest open_of(const OpenRequest& asked, const Creation& creation) {
    OpenRequest out = asked;
    out.name = creation.name;
    out.size = static_cast<uint32_t>(creation.ranks.size());
    out.rank = creation.index_of(asked.create->rank);
    if (out.timeout < Duration{0}) out.timeout = creation.timeouts.collective;
    // As in an open [R18]: who sets only that one means barriers, too.
    if (out.asked.barrier < Duration{0})
        out.asked.barrier =
            out.asked.collective < Duration{0} ? creation.timeouts.barrier : out.asked.collective;
    if (out.asked.collective < Duration{0}) out.asked.collective = creation.timeouts.collective;
    if (out.asked.rpc < Duration{0}) out.asked.rpc = creation.timeouts.rpc;
    return out;
}

std::optional<Error> contradiction(const Creation& creation, const wire::GroupPrepare& prepare) {
    for (size_t i = 0; i < std::min(creation.ranks.size(), prepare.members.size()); ++i) {
        const wire::GroupMemberRecord &wanted = creation.member(i), &given = prepare.members[i];
        const bool other_incarnation = wanted.incarnation != Incarnation{} &&
                                       given.incarnation != Incarnation{} &&
                                       wanted.incarnation != given.incarnation;
        if (wanted.node == given.node && wanted.pid == given.pid && !other_incarnation) continue;
        return Error{Errc::protocol_error,
                     "pid " + std::to_string(given.pid) + " on node " + given.node.short_hex() +
                         " took the place of rank " + std::to_string(creation.ranks[i]) + " of group " +
                         creation.parent_name + ", which is pid " + std::to_string(wanted.pid) + " on node " +
                         wanted.node.short_hex(),
                     creation.ranks[i], -1, given.node.hex()};
    }
    return {};
}

// The lower rank first, so that both sides report the same error.
Error lists_differ(const GroupFacts& parent, uint64_t tag, const CallWithList& a, const CallWithList& b) {
    if (b.rank < a.rank) return lists_differ(parent, tag, b, a);
    return {Errc::mismatch,
            parent.describe(a.rank) + " creates a group of the ranks " + text_of_list(a.ranks) +
                " with tag " + std::to_string(tag) + ", " + parent.describe(b.rank) + " one of the ranks " +
                text_of_list(b.ranks) +
                ": each list has both, so they must be the same, or their tags differ",
            b.rank, a.rank, parent.members[b.rank].node.hex()};
}

Error of_parent(const Creation& creation, Error error, const std::string& elsewhere) {
    const auto translate = [&](int64_t& rank) {
        if (rank >= 0 && rank < static_cast<int64_t>(creation.ranks.size()))
            rank = creation.ranks[static_cast<size_t>(rank)];
    };
    const bool translated = error.rank >= 0 && error.rank < static_cast<int64_t>(creation.ranks.size());
    if (error.code == Errc::group_incomplete && translated) {
        const auto& member = creation.member(static_cast<size_t>(error.rank));
        error.node = member.node.hex();
        error.pid = member.pid;
        error.text = "rank " + std::to_string(creation.ranks[static_cast<size_t>(error.rank)]) + " of " +
                     creation.parent_name + " (node " + member.node.short_hex() + ", pid " +
                     std::to_string(member.pid) + ") has not called" +
                     (elsewhere.empty() ? "" : ", and waited in another create, " + elsewhere) + ": " +
                     error.text;
    } else if (error.code == Errc::rank_clash || error.code == Errc::options_differ) {
        // From the leader, which does not know the list.
        error.text += " (ranks in this text are places in the list)";
    }
    translate(error.rank);
    translate(error.other_rank);
    return error;
}

}  // namespace nexar::engine
