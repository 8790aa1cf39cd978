// See create_calls.hpp.
#include "engine/create_calls.hpp"

#include <algorithm>

#include "engine/group.hpp"

namespace nexar::engine {

Result<void> CreateCalls::begin(const OpenRequest& request, const ChargeRef& charge) {
    const CreateRequest& wanted = *request.create;
    Group* parent = host_.find_group(wanted.parent);
    const LocalRank* local = parent == nullptr ? nullptr : parent->find_local(request.session, wanted.rank);
    if (local == nullptr) return fail(Errc::not_found, "this session has no such rank of the group");
    const auto creation = begin_creation(*parent, *local, wanted);
    if (!creation) return fail(parent->explained(creation.error()));
    NEXAR_TRY(const ChargeRef list, charge_for_list(*parent, request));
    NEXAR_TRY(const uint64_t number, opening_.open(open_of(request, **creation), charge, creation->get()));
    const Creates::Call call{request.session, request.ticket, number, list};
    Creates::Entry& entry = creates_.add(*creation, wanted.rank, call, parent->user());
    entry.lists[request.tenant->number] = list;
    entry.pause = context_.config.late_after;
    entry.asks_at = std::min(entry.asks_at, context_.now + entry.pause);
    entry.wake_at(entry.asks_at);
    return {};
}

// [Y24] The calls of a tenant with one list share a charge.
Result<ChargeRef> CreateCalls::charge_for_list(const Group& parent, const OpenRequest& request) const {
    const CreateRequest& wanted = *request.create;
    if (const Creates::Entry* same = creates_.find(wanted.parent, wanted.tag, wanted.ranks))
        if (const auto held = same->lists.find(request.tenant->number); held != same->lists.end())
            if (ChargeRef list = held->second.lock()) return list;
    return request.tenant->charge(Resource::scratch_bytes,
                                  Creation::bytes_of_list(wanted.ranks.size(), parent.facts.size()));
}

Result<CreationRef> CreateCalls::begin_creation(const Group& parent, const LocalRank& local,
                                                const CreateRequest& wanted) {
    if (local.left) return fail(Errc::closed, "this rank has left the group " + parent.facts.name);
    if (!context_.config.proof.hmac_sha256) return fail(Errc::unsupported, "this daemon makes no children");
    NEXAR_TRY_VOID(check_list(parent.facts, local.rank, wanted.ranks));
    if (parent.failed()) return fail(*parent.failed());
    for (const uint32_t rank : wanted.ranks)
        if (const auto gone = parent.departure_error(rank, false)) return fail(*gone);
    if (creates_.of_rank(wanted.parent, local.rank, wanted.tag) != nullptr)
        return fail(Errc::bad_state, "rank " + std::to_string(local.rank) + " creates a group with tag " +
                                         std::to_string(wanted.tag) +
                                         " already: wait for it, or give each its own tag");
    const Creates::Entry* same = creates_.find(wanted.parent, wanted.tag, wanted.ranks);
    if (const auto differs =
            questions_.end_differing_from(parent, {local.rank, wanted.tag, wanted.ranks}, same))
        return fail(*differs);
    if (same != nullptr) return same->what;
    return std::make_shared<const Creation>(
        creation_of(parent.facts, context_.config.proof, wanted.ranks, wanted.tag));
}

CreationRef CreateCalls::take(SessionId session, uint64_t ticket) {
    const Creates::Entry* entry = creates_.find_call(session, ticket).entry;
    if (entry == nullptr) return nullptr;
    CreationRef out = entry->what;
    creates_.remove(session, ticket);
    return out;
}

// The rendezvous names ranks of the group that is not there; the caller knows those of the parent.
Error CreateCalls::explained(const Opening::Answer& answer) const {
    const auto [entry, rank] = creates_.find_call(answer.session, answer.ticket);
    if (entry == nullptr || entry->calls.at(rank).ended_here) return answer.error;
    const int64_t missing = answer.error.rank;
    std::string elsewhere;
    if (missing >= 0 && missing < static_cast<int64_t>(entry->what->ranks.size()))
        if (const auto at = entry->elsewhere.find(entry->what->ranks[static_cast<size_t>(missing)]);
            at != entry->elsewhere.end())
            elsewhere = at->second;
    return of_parent(*entry->what, answer.error, elsewhere);
}

// ---- What leaves the parent, or ends it [Y12]: some calls in a turn [Y21] ----

void CreateCalls::rank_left(const Group& parent, uint32_t rank) {
    if (!creates_.any_of(parent.facts.id)) return;
    auto gone = parent.departure_error(rank, true);
    if (gone) gone = parent.explained(*gone);
    Creates::Ending& end = ending_[parent.facts.id];
    if (end.gone.words() == 0) end.gone = Listed({}, parent.facts.size());
    if (gone) end.gone.add(rank);
    end.left.emplace(rank, std::move(gone));
    end.note_another();
}

void CreateCalls::parent_ended(const Group& parent, const Error& error) {
    if (!creates_.any_of(parent.facts.id)) return;
    Creates::Ending& end = ending_[parent.facts.id];
    if (end.all) return;
    end.all = parent.explained(error);
    end.note_another();
}

// Parents in turns, an entry of each.
void CreateCalls::end_some(size_t& left) {
    while (left > 0 && !ending_.empty()) {
        auto at = ending_.upper_bound(served_);
        if (at == ending_.end()) at = ending_.begin();
        served_ = at->first;
        if (!end_next(at->first, at->second, left)) ending_.erase(at);
    }
}

// The calls with one list, or as many as there may be in this turn. False: there are no more.
bool CreateCalls::end_next(const GroupId& parent, Creates::Ending& end, size_t& left) {
    Creates::Entry* entry = creates_.next(parent, end);
    if (entry == nullptr) return false;
    const Error* of_all = end.all ? &*end.all : nullptr;
    if (const auto gone = end.gone.first_common(entry->what->listed)) of_all = &*end.left.at(*gone);
    static const Error own{Errc::closed, "the parent was left by this rank", -1, -1, {}};
    for (auto at = entry->calls.lower_bound(end.rank); at != entry->calls.end(); ++at) {
        end.rank = at->first;
        if (at->second.ended_here) continue;
        const Error* why = end.left.contains(at->first) ? &own : of_all;
        if (why == nullptr) continue;
        if (left == 0) return true;
        --left;
        creates_.end(at->second, *why);
    }
    // After the calls: with a bound of 1 a call ends in each turn, too.
    if (left > 0) --left;
    ++end.number;
    end.rank = 0;
    return true;
}

}  // namespace nexar::engine
