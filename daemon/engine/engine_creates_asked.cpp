// What nodes ask each other about creates that wait: lists that differ, and what a missing rank waits in
// (docs/protocol/children.md [Y13], [Y18]-[Y20], [Y23]). See engine_impl.hpp.
#include <algorithm>
#include <set>
#include <vector>

#include "core/features.hpp"
#include "engine/engine_impl.hpp"
#include "wire/codec.hpp"

namespace nexar::engine {

using collectives::NodeIndex;

namespace {

// Of a node's own ranks, and no more than it has: longer ones are a lie, and long to look through.
bool are_of(const GroupFacts& facts, NodeIndex node, const std::vector<wire::CreateCall>& calls) {
    return calls.size() <= facts.layout.ranks_on(node).size() &&
           std::ranges::all_of(calls, [&](const wire::CreateCall& call) {
               return call.rank < facts.size() && facts.layout.node_of(call.rank) == node;
           });
}

Listed listed(const std::vector<wire::CreateCall>& calls, uint32_t size) {
    std::vector<uint32_t> ranks;
    for (const wire::CreateCall& call : calls) ranks.push_back(call.rank);
    return {ranks, size};
}

}  // namespace

// [Y13] On one node both calls are known: those that differ from this one, which begins, end at once. `same`:
// the create that it joins.
std::optional<Error> Engine::Impl::end_differing_from(const Group& parent, const Creates::Wanted& wanted,
                                                      const Creates::Entry* same) {
    std::optional<Error> out;
    for (const uint32_t rank : wanted.ranks) {
        Creates::Entry* other = create_of_rank_here(parent.facts, rank, wanted.tag);
        if (other == nullptr || other == same || !other->what->listed.has(wanted.rank)) continue;
        Creates::Call& call = other->calls.at(rank);
        if (!waits(call)) continue;
        out = parent.explained(
            lists_differ(parent.facts, wanted.tag, {wanted.rank, wanted.ranks}, {rank, other->what->ranks}));
        end_create(call, *out);
    }
    return out;
}

// The same for calls that were in an attempt when the others began. Looks at each listed rank once, at as
// many bits as the parent has ranks, and at no call more than once [Y21].
void Engine::Impl::end_differing_late(const Group& parent, Creates::Entry& entry) {
    const GroupFacts& facts = parent.facts;
    Listed callers({}, facts.size());
    for (const auto& [rank, call] : entry.calls)
        if (waits(call)) callers.add(rank);
    Listed left = callers;                  // those that have not ended here
    const Creates::Entry* apart = nullptr;  // the last one that lists none: the ranks of a list share it
    for (const uint32_t rank : entry.what->ranks) {
        Creates::Entry* other = create_of_rank_here(facts, rank, entry.what->tag);
        if (other == nullptr || other == &entry || other == apart || !waits(other->calls.at(rank))) continue;
        context.creates_looked_at += callers.words();
        const auto first = callers.first_common(other->what->listed);
        if (!first) apart = other;
        if (!first) continue;
        const auto differ = [&](uint32_t own) {
            return parent.explained(
                lists_differ(facts, entry.what->tag, {own, entry.what->ranks}, {rank, other->what->ranks}));
        };
        end_create(other->calls.at(rank), differ(*first));
        while (const auto own = left.first_common(other->what->listed)) {
            end_create(entry.calls.at(*own), differ(*own));
            left.remove(*own);
        }
    }
}

Creates::Entry* Engine::Impl::create_of_rank_here(const GroupFacts& facts, uint32_t rank, uint64_t tag) {
    ++context.creates_looked_at;
    return facts.layout.node_of(rank) == facts.self ? creates.of_rank(facts.id, rank, tag) : nullptr;
}

void Engine::Impl::on_late_create(Creates::Entry& entry) {
    const Group* parent = find(entry.what->parent);
    if (entry.pause == context.config.late_after) {
        std::vector<uint32_t> here;
        for (const auto& [rank, call] : entry.calls) here.push_back(rank);
        context.ports.log.warn(
            parent ? parent->tenant() : nullptr, context.now, "create_late",
            {field("name", entry.what->name), field("parent", entry.what->parent),
             field("ranks_here", text_of_list(here)), field("size", entry.what->ranks.size())});
    }
    entry.pause = std::min(2 * entry.pause, context.config.ask_again_max);
    entry.asks_at = context.now + entry.pause;
    entry.wake_at(entry.asks_at);
    if (parent == nullptr || parent->failed()) return;
    end_differing_late(*parent, entry);
    const Creates::Wanted wanted{entry.calls.begin()->first, entry.what->tag, entry.what->ranks};
    if (const Creates::Entry* other = waits_elsewhere(*parent, wanted))
        for (const auto& [rank, call] : other->calls)
            if (entry.what->listed.has(rank) && waits(call))
                entry.note_elsewhere(rank, other->what->tag, other->what->ranks);
    ask_about(entry);
}

// States to the nodes of the other listed ranks which list was given here, and asks what they know of it.
// Without room in a log it does later [L8].
void Engine::Impl::ask_about(Creates::Entry& entry) {
    const Group* parent = find(entry.what->parent);
    const GroupFacts& facts = parent->facts;
    wire::CreateQuery query{facts.id,
                            facts.epoch.value,
                            entry.what->tag,
                            {entry.what->ranks.begin(), entry.what->ranks.end()},
                            {},
                            0};
    std::vector<SessionId> payers;
    for (const auto& [rank, call] : entry.calls) {
        if (!waits(call)) continue;
        payers.push_back(call.session);
        query.callers.push_back({rank, call.number});
    }
    if (payers.empty()) return;
    query.ask = ++entry.asks;
    entry.asked_at = context.now;
    std::set<NodeIndex> nodes;
    for (const uint32_t rank : entry.what->ranks) nodes.insert(facts.layout.node_of(rank));
    const auto bytes = wire::encode(query);
    for (const NodeIndex node : nodes)
        if (node != facts.self) append_paid(*parent, node, bytes, payers);
}

// [Y14] [Y19] At the expense of the first of these sessions' tenants that has room. False: none has, or the
// node lacks the feature.
bool Engine::Impl::append_paid(const Group& group, NodeIndex to, Bytes message,
                               std::span<const SessionId> payers) {
    const GroupFacts& facts = group.facts;
    if ((facts.members[facts.layout.ranks_on(to)[0]].features & feature_of_create_query) == 0) return false;
    const link::PeerIndex peer = facts.peers[to.value];
    std::set<link::Account> full;
    for (const SessionId id : payers) {
        const auto session = sessions.find(id);
        if (session == sessions.end() || !full.insert(session->second.account).second) continue;
        const link::Account account = session->second.account;
        if (!context.ports.peers.reserve(peer, account, link::ControlLog::cost_of(message.size()))) continue;
        context.ports.peers.append(peer, message, account);
        return true;
    }
    return false;
}

// [Y20] A create of this node in which a rank waits that the call waits for: one whose list differs, or else
// any.
Creates::Entry* Engine::Impl::waits_elsewhere(const Group& group, const Creates::Wanted& wanted) {
    const Listed listed(wanted.ranks, group.facts.size());
    const Creates::Entry* same = creates.find(group.facts.id, wanted.tag, wanted.ranks);
    for (const uint32_t rank : group.facts.layout.ranks_on(group.facts.self)) {
        ++context.creates_looked_at;
        if (!listed.has(rank)) continue;
        // It has called.
        if (same != nullptr && creates.of_rank(group.facts.id, rank, wanted.tag) == same) continue;
        for (Creates::Entry* entry : creates.all_of_rank(group.facts.id, rank)) {
            ++context.creates_looked_at;
            if (waits(entry->calls.at(rank))) return entry;
        }
    }
    return nullptr;
}

// It may be about calls that have ended by now, so nothing ends here: the node that asked knows [Y18].
void Engine::Impl::on_create_query(const Group& group, NodeIndex from, const wire::CreateQuery& query) {
    const GroupFacts& facts = group.facts;
    if (!are_of(facts, from, query.callers) || query.callers.empty() || query.ranks.size() > facts.size())
        return;
    const Listed theirs(query.ranks, facts.size()), callers = listed(query.callers, facts.size());
    if (!std::ranges::all_of(query.callers, [&](const auto& call) { return theirs.has(call.rank); })) return;
    const Creates::Entry* same = creates.find(facts.id, query.tag, query.ranks);
    const auto waits_for_them = [&](const Creates::Caller& caller) {
        ++context.creates_looked_at;
        return theirs.has(caller.first) && waits(caller.second);
    };
    const Creates::Entry* other = nullptr;
    for (const auto& entry : creates.with_tag(facts.id, query.tag)) {
        context.creates_looked_at += callers.words();
        if (entry.get() == same || !callers.first_common(entry->what->listed) ||
            std::ranges::none_of(entry->calls, waits_for_them))
            continue;
        other = entry.get();
        break;
    }
    if (other == nullptr) other = waits_elsewhere(group, {query.callers[0].rank, query.tag, query.ranks});
    if (other == nullptr) return;
    wire::CreateAnswer answer{facts.id,
                              facts.epoch.value,
                              query.tag,
                              query.callers,
                              other->what->tag,
                              {other->what->ranks.begin(), other->what->ranks.end()},
                              {},
                              false,
                              query.ask};
    std::vector<SessionId> payers;
    for (const Creates::Caller& caller : other->calls) {
        if (!waits_for_them(caller)) continue;
        payers.push_back(caller.second.session);
        answer.callers.push_back({caller.first, caller.second.number});
    }
    append_paid(group, from, wire::encode(answer), payers);
}

// [Y23] One that is not is of a time that may be over.
bool Engine::Impl::is_fresh(Creates::Entry& entry, const wire::CreateAnswer& answer) {
    if (answer.ask != entry.asks) return false;
    if (context.now <= entry.asked_at + context.config.late_after) return true;
    entry.wake_at(entry.asks_at = context.now);
    return false;
}

void Engine::Impl::on_create_answer(const Group& group, NodeIndex from, const wire::CreateAnswer& answer) {
    const GroupFacts& facts = group.facts;
    if (!are_of(facts, from, answer.callers) || !are_of(facts, facts.self, answer.calls) ||
        answer.callers.empty() || answer.ranks.size() > facts.size())
        return;
    Creates::Entry* entry = nullptr;
    std::vector<uint32_t> differing;  // calls of this node that wait, and that the other list has
    const Listed theirs(answer.ranks, facts.size());
    for (const wire::CreateCall& asked : answer.calls) {
        Creates::Entry* at = creates.of_rank(facts.id, asked.rank, answer.tag);
        if (at == nullptr || (entry != nullptr && at != entry)) continue;
        const Creates::Call& call = at->calls.at(asked.rank);
        if (call.number != asked.number || !waits(call)) continue;  // another call [Y18]
        entry = at;
        if (theirs.has(asked.rank)) differing.push_back(asked.rank);
    }
    if (entry == nullptr || !entry->what->listed.first_common(listed(answer.callers, facts.size()))) return;
    if (!answer.ended && !is_fresh(*entry, answer)) return;
    const bool same_tag = answer.tag == answer.other_tag;
    if (same_tag && std::ranges::equal(entry->what->ranks, answer.ranks)) return;
    if (same_tag && !differing.empty()) return end_differing(group, from, answer, *entry, differing);
    for (const wire::CreateCall& caller : answer.callers)
        if (entry->what->listed.has(caller.rank))
            entry->note_elsewhere(caller.rank, answer.other_tag, answer.ranks);
}

// [Y19] These wait now, and the calls of the other node did when it answered: at that moment they waited for
// each other. Without room for the message that ends those, none ends yet.
void Engine::Impl::end_differing(const Group& group, NodeIndex from, const wire::CreateAnswer& answer,
                                 Creates::Entry& entry, const std::vector<uint32_t>& ranks) {
    const GroupFacts& facts = group.facts;
    const Listed& ours = entry.what->listed;
    if (!answer.ended) {
        wire::CreateAnswer ended{facts.id,   facts.epoch.value,
                                 answer.tag, {},
                                 answer.tag, {entry.what->ranks.begin(), entry.what->ranks.end()},
                                 {},         true,
                                 0};
        for (const wire::CreateCall& caller : answer.callers)
            if (ours.has(caller.rank)) ended.calls.push_back(caller);
        std::vector<SessionId> payers;
        for (const uint32_t rank : ranks) {
            payers.push_back(entry.calls.at(rank).session);
            ended.callers.push_back({rank, entry.calls.at(rank).number});
        }
        if (!append_paid(group, from, wire::encode(ended), payers)) return;
    }
    const auto other = std::ranges::find_if(
        answer.callers, [&](const wire::CreateCall& call) { return ours.has(call.rank); });
    for (const uint32_t rank : ranks)
        end_create(entry.calls.at(rank),
                   group.explained(lists_differ(facts, answer.tag, {rank, entry.what->ranks},
                                                {other->rank, answer.ranks})));
}

}  // namespace nexar::engine
