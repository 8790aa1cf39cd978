// See create_questions.hpp.
#include "engine/create_questions.hpp"

#include <algorithm>
#include <set>
#include <vector>

#include "core/features.hpp"
#include "engine/group.hpp"
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

std::optional<Error> CreateQuestions::end_differing_from(const Group& parent, const Creates::Wanted& wanted,
                                                         const Creates::Entry* same) {
    std::optional<Error> out;
    for (const uint32_t rank : wanted.ranks) {
        Creates::Entry* other = create_of_rank_here(parent.facts, rank, wanted.tag);
        if (other == nullptr || other == same || !other->what->listed.has(wanted.rank)) continue;
        Creates::Call& call = other->calls.at(rank);
        if (!creates_.waits(call)) continue;
        out = parent.explained(
            lists_differ(parent.facts, wanted.tag, {wanted.rank, wanted.ranks}, {rank, other->what->ranks}));
        creates_.end(call, *out);
    }
    return out;
}

// The same for calls that were in an attempt when the others began. Looks at each listed rank that waits here
// once, at as many bits as the parent has ranks, and at no call more than once [Y21].
void CreateQuestions::end_differing_late(const Group& parent, Creates::Entry& entry) {
    ++context_.creates_looked_at;
    if (creates_.is_alone(entry)) return;
    const GroupFacts& facts = parent.facts;
    Listed callers({}, facts.size());
    for (const auto& [rank, call] : entry.calls)
        if (creates_.waits(call)) callers.add(rank);
    Listed left = callers;                  // those that have not ended here
    const Creates::Entry* apart = nullptr;  // the last one that lists none: the ranks of a list share it
    const Listed here = creates_.ranks_here(facts.id);
    context_.creates_looked_at += here.words();
    for (auto at = here.first_common(entry.what->listed); at;
         at = here.first_common(entry.what->listed, *at + 1)) {
        const uint32_t rank = *at;
        Creates::Entry* other = create_of_rank_here(facts, rank, entry.what->tag);
        if (other == nullptr || other == &entry || other == apart || !creates_.waits(other->calls.at(rank)))
            continue;
        context_.creates_looked_at += callers.words();
        const auto first = callers.first_common(other->what->listed);
        if (!first) apart = other;
        if (!first) continue;
        const auto differ = [&](uint32_t own) {
            return parent.explained(
                lists_differ(facts, entry.what->tag, {own, entry.what->ranks}, {rank, other->what->ranks}));
        };
        creates_.end(other->calls.at(rank), differ(*first));
        while (const auto own = left.first_common(other->what->listed)) {
            creates_.end(entry.calls.at(*own), differ(*own));
            left.remove(*own);
        }
    }
}

Creates::Entry* CreateQuestions::create_of_rank_here(const GroupFacts& facts, uint32_t rank, uint64_t tag) {
    ++context_.creates_looked_at;
    return facts.layout.node_of(rank) == facts.self ? creates_.of_rank(facts.id, rank, tag) : nullptr;
}

void CreateQuestions::on_late(Creates::Entry& entry) {
    const Group* parent = host_.find_group(entry.what->parent);
    if (entry.pause == context_.config.late_after) log_late(parent, entry);
    entry.pause = std::min(2 * entry.pause, context_.config.ask_again_max);
    entry.asks_at = context_.now + entry.pause;
    entry.wake_at(entry.asks_at);
    if (parent == nullptr || parent->failed()) return;
    end_differing_late(*parent, entry);
    note_elsewhere_here(*parent, entry);
    ask_about(*parent, entry);
}

void CreateQuestions::log_late(const Group* parent, const Creates::Entry& entry) {
    std::vector<uint32_t> here;
    for (const auto& [rank, call] : entry.calls) here.push_back(rank);
    context_.ports.log.warn(
        parent ? parent->tenant() : nullptr, context_.now, "create_late",
        {field("name", entry.what->name), field("parent", entry.what->parent),
         field("ranks_here", text_of_list(here)), field("size", entry.what->ranks.size())});
}

// [Y20] What listed ranks of this node wait in instead.
void CreateQuestions::note_elsewhere_here(const Group& parent, Creates::Entry& entry) {
    const Creates::Entry* other = waits_elsewhere(parent, entry.what->listed, entry.what->tag, &entry);
    if (other == nullptr) return;
    for (const auto& [rank, call] : other->calls)
        if (entry.what->listed.has(rank) && creates_.waits(call))
            entry.note_elsewhere(rank, other->what->tag, other->what->ranks);
}

// States to the nodes of the other listed ranks which list was given here, and asks what they know of it.
// Without room in a log it does later [L8].
void CreateQuestions::ask_about(const Group& parent, Creates::Entry& entry) {
    const GroupFacts& facts = parent.facts;
    std::vector<bool> asked(facts.layout.nodes());  // by NodeIndex
    context_.creates_looked_at += entry.what->ranks.size();
    for (const uint32_t rank : entry.what->ranks) asked[facts.layout.node_of(rank).value] = true;
    asked[facts.self.value] = false;
    wire::CreateQuery query{facts.id, facts.epoch.value, entry.what->tag, {}, {}, 0};
    std::vector<SessionId> payers;
    for (const auto& [rank, call] : entry.calls) {
        if (!creates_.waits(call)) continue;
        payers.push_back(call.session);
        query.callers.push_back({rank, call.number});
    }
    if (payers.empty() || std::ranges::find(asked, true) == asked.end()) return;
    query.ranks = {entry.what->ranks.begin(), entry.what->ranks.end()};
    query.ask = ++entry.asks;
    entry.asked_at = context_.now;
    const auto bytes = wire::encode(query);
    const std::vector<link::Account> accounts = accounts_of(payers);
    for (uint32_t node = 0; node < asked.size(); ++node)
        if (asked[node]) append_paid(parent, NodeIndex{node}, bytes, accounts);
}

// Each once, in this order.
std::vector<link::Account> CreateQuestions::accounts_of(std::span<const SessionId> sessions) const {
    std::vector<link::Account> out;
    std::set<link::Account> known;
    for (const SessionId id : sessions)
        if (const auto account = host_.account_of(id); account && known.insert(*account).second)
            out.push_back(*account);
    return out;
}

// [Y14] [Y19] At the expense of the first of these tenants that has room. False: none has, or the node lacks
// the feature.
bool CreateQuestions::append_paid(const Group& group, NodeIndex to, Bytes message,
                                  std::span<const link::Account> payers) {
    const GroupFacts& facts = group.facts;
    if ((facts.members[facts.layout.ranks_on(to)[0]].features & feature_of_create_query) == 0) return false;
    const link::PeerIndex peer = facts.peers[to.value];
    for (const link::Account& account : payers) {
        if (!context_.ports.peers.reserve(peer, account, link::ControlLog::cost_of(message.size()))) continue;
        context_.ports.peers.append(peer, message, account);
        return true;
    }
    return false;
}

// [Y20] A create of this node in which a rank waits that the call waits for: one whose list differs, or else
// any. It is for a text: of many that are in an attempt just now, and so wait for nobody, few are looked at,
// of each of those ranks its share.
Creates::Entry* CreateQuestions::waits_elsewhere(const Group& group, const Listed& listed, uint64_t tag,
                                                 const Creates::Entry* same) {
    constexpr size_t looks_max = 64;
    const GroupId& parent = group.facts.id;
    const Listed& here = creates_.ranks_here(parent);
    context_.creates_looked_at += here.words();
    size_t left = looks_max, ranks = here.common(listed);
    context_.creates_looked_at += here.words();
    for (auto rank = here.first_common(listed); rank; rank = here.first_common(listed, *rank + 1)) {
        ++context_.creates_looked_at;
        size_t share = std::max<size_t>(left / ranks--, 1);
        if (same != nullptr && creates_.of_rank(parent, *rank, tag) == same) continue;  // it has called
        for (Creates::Entry* entry : creates_.all_of_rank(parent, *rank)) {
            if (share-- == 0) break;
            left -= std::min<size_t>(left, 1);
            ++context_.creates_looked_at;
            if (creates_.waits(entry->calls.at(*rank))) return entry;
        }
    }
    return nullptr;
}

// It may be about calls that have ended by now, so nothing ends here: the node that asked knows [Y18].
void CreateQuestions::on_query(const Group& group, NodeIndex from, const wire::CreateQuery& query) {
    const GroupFacts& facts = group.facts;
    if (!are_of(facts, from, query.callers) || query.callers.empty() || query.ranks.size() > facts.size())
        return;
    const Listed theirs(query.ranks, facts.size()), callers = listed(query.callers, facts.size());
    if (!std::ranges::all_of(query.callers, [&](const auto& call) { return theirs.has(call.rank); })) return;
    const Creates::Entry* same = creates_.find(facts.id, query.tag, query.ranks);
    const auto waits_for_them = [&](const Creates::Caller& caller) {
        ++context_.creates_looked_at;
        return theirs.has(caller.first) && creates_.waits(caller.second);
    };
    const Creates::Entry* other = nullptr;
    for (const auto& entry : creates_.with_tag(facts.id, query.tag)) {
        context_.creates_looked_at += callers.words();
        if (entry.get() == same || !callers.first_common(entry->what->listed) ||
            std::ranges::none_of(entry->calls, waits_for_them))
            continue;
        other = entry.get();
        break;
    }
    if (other == nullptr) other = waits_elsewhere(group, theirs, query.tag, same);
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
    append_paid(group, from, wire::encode(answer), accounts_of(payers));
}

// [Y23] One that is not is of a time that may be over.
bool CreateQuestions::is_fresh(Creates::Entry& entry, const wire::CreateAnswer& answer) {
    if (answer.ask != entry.asks) return false;
    if (context_.now <= entry.asked_at + context_.config.late_after) return true;
    entry.wake_at(entry.asks_at = context_.now);
    return false;
}

void CreateQuestions::on_answer(const Group& group, NodeIndex from, const wire::CreateAnswer& answer) {
    const GroupFacts& facts = group.facts;
    if (!are_of(facts, from, answer.callers) || !are_of(facts, facts.self, answer.calls) ||
        answer.callers.empty() || answer.ranks.size() > facts.size())
        return;
    Creates::Entry* entry = nullptr;
    std::vector<uint32_t> differing;  // calls of this node that wait, and that the other list has
    const Listed theirs(answer.ranks, facts.size());
    for (const wire::CreateCall& asked : answer.calls) {
        Creates::Entry* at = creates_.of_rank(facts.id, asked.rank, answer.tag);
        if (at == nullptr || (entry != nullptr && at != entry)) continue;
        const Creates::Call& call = at->calls.at(asked.rank);
        if (call.number != asked.number || !creates_.waits(call)) continue;  // another call [Y18]
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
void CreateQuestions::end_differing(const Group& group, NodeIndex from, const wire::CreateAnswer& answer,
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
        if (!append_paid(group, from, wire::encode(ended), accounts_of(payers))) return;
    }
    const auto other = std::ranges::find_if(
        answer.callers, [&](const wire::CreateCall& call) { return ours.has(call.rank); });
    for (const uint32_t rank : ranks)
        creates_.end(entry.calls.at(rank),
                     group.explained(lists_differ(facts, answer.tag, {rank, entry.what->ranks},
                                                  {other->rank, answer.ranks})));
}

}  // namespace nexar::engine
