// See creating.hpp.
#include "engine/creating.hpp"

#include <algorithm>

#include "core/child_name.hpp"

namespace nexar::engine {

namespace {

constexpr size_t listed_max = 12;  // of ranks in a text

std::string text_of(const std::vector<uint32_t>& ranks) {
    std::string out;
    for (size_t i = 0; i < std::min(ranks.size(), listed_max); ++i)
        out += (i > 0 ? ", " : "") + std::to_string(ranks[i]);
    return ranks.size() <= listed_max ? out
                                      : out + " and " + std::to_string(ranks.size() - listed_max) + " more";
}

// [Y10] Nobody who lacks the parent's secret can give these; `label` keeps the two apart.
rendezvous::Digest derive(const GroupFacts& parent, const rendezvous::ProofPort& port, std::string_view label,
                          const std::vector<uint32_t>& ranks, uint64_t tag) {
    std::vector<std::byte> data;
    Writer w(data);
    w.put_bytes(std::as_bytes(std::span(label)));
    w.put(parent.id.creator);
    w.put(parent.id.incarnation);
    w.put(parent.id.counter);
    w.put(parent.epoch.value);
    w.put(tag);
    w.put(static_cast<uint32_t>(ranks.size()));
    for (const uint32_t rank : ranks) w.put(rank);
    return port.hmac_sha256(std::as_bytes(std::span(parent.secret)), data);
}

}  // namespace

int64_t Creation::index_of(uint32_t parent_rank) const {
    const auto at = std::ranges::find(ranks, parent_rank);
    return at == ranks.end() ? -1 : at - ranks.begin();
}

Result<void> check_list(const GroupFacts& parent, uint32_t rank, const std::vector<uint32_t>& ranks) {
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
                                                ", which calls, is not in the list (" + text_of(ranks) +
                                                "): only listed ranks call nexar_group_create");
    return {};
}

Creation creation_of(const GroupFacts& parent, const rendezvous::ProofPort& port,
                     const std::vector<uint32_t>& ranks, uint64_t tag) {
    Creation out;
    out.parent = parent.id;
    out.root = parent.root.value_or(parent.id);
    out.parent_name = parent.name;
    out.name = created_name(parent.name, tag);
    out.ranks = ranks;
    out.tag = tag;
    out.timeouts = parent.timeouts;
    bool local = true;
    for (const uint32_t rank : ranks) {
        out.root_ranks.push_back(parent.root ? parent.root_ranks[rank] : rank);
        out.members.push_back(parent.members[rank]);
        local = local && parent.layout.node_of(rank) == parent.self;
    }
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
    for (size_t i = 0; i < std::min(creation.members.size(), prepare.members.size()); ++i) {
        const wire::GroupMemberRecord &wanted = creation.members[i], &given = prepare.members[i];
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
            parent.describe(a.rank) + " creates a group of the ranks " + text_of(a.ranks) + " with tag " +
                std::to_string(tag) + ", " + parent.describe(b.rank) + " one of the ranks " +
                text_of(b.ranks) + ": each list has both, so they must be the same, or their tags differ",
            b.rank, a.rank, parent.members[b.rank].node.hex()};
}

Creates::Entry* Creates::find(const GroupId& parent, uint64_t tag, const std::vector<uint32_t>& ranks) const {
    for (Entry* entry : of(parent))
        if (entry->what->tag == tag && entry->what->ranks == ranks) return entry;
    return nullptr;
}

Creates::Entry& Creates::add(const CreationRef& creation, const Call& call, uint64_t user) {
    Entry* entry = find(creation->parent, creation->tag, creation->ranks);
    if (entry == nullptr) {
        Entries& entries = by_parent_[creation->parent];
        entry = entries.emplace_back(std::make_unique<Entry>(*this, timers_, user, creation)).get();
    }
    entry->calls.push_back(call);
    by_call_.emplace(std::pair(call.session, call.ticket), entry);
    return *entry;
}

Creates::Removed Creates::remove(SessionId session, uint64_t ticket) {
    const auto at = by_call_.find({session, ticket});
    if (at == by_call_.end()) return {};
    const Entry& entry = *at->second;
    const auto call = std::ranges::find_if(
        entry.calls, [&](const Call& c) { return c.session == session && c.ticket == ticket; });
    Removed out{entry.what, call->ended_here};
    remove(at);
    return out;
}

void Creates::remove(std::map<std::pair<SessionId, uint64_t>, Entry*>::iterator at) {
    Entry* entry = at->second;
    const auto [session, ticket] = at->first;
    by_call_.erase(at);
    std::erase_if(entry->calls, [&](const Call& c) { return c.session == session && c.ticket == ticket; });
    if (!entry->calls.empty()) return;
    const auto parent = by_parent_.find(entry->what->parent);
    std::erase_if(parent->second, [&](const auto& e) { return e.get() == entry; });
    if (parent->second.empty()) by_parent_.erase(parent);
}

void Creates::remove_session(SessionId session) {
    for (auto at = by_call_.lower_bound({session, 0}); at != by_call_.end() && at->first.first == session;)
        remove(at++);
}

std::vector<Creates::Entry*> Creates::of(const GroupId& parent) const {
    std::vector<Entry*> out;
    if (const auto at = by_parent_.find(parent); at != by_parent_.end())
        for (const auto& entry : at->second) out.push_back(entry.get());
    return out;
}

}  // namespace nexar::engine
