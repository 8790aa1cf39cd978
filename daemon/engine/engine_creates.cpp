// Groups that are created from a list of ranks: how their calls begin and end
// (docs/protocol/children.md [Y9]-[Y12], [Y20]-[Y22], [Y24]). See engine_impl.hpp.
#include <algorithm>

#include "engine/engine_impl.hpp"

namespace nexar::engine {

Result<uint64_t> Engine::Impl::create(const OpenRequest& request, const ChargeRef& charge) {
    const CreateRequest& wanted = *request.create;
    Group* parent = find(wanted.parent);
    LocalRank* local = parent == nullptr ? nullptr : parent->find_local(request.session, wanted.rank);
    if (local == nullptr) return fail(Errc::not_found, "this session has no such rank of the group");
    const auto creation = begin_creation(*parent, *local, wanted);
    if (!creation) return fail(parent->explained(creation.error()));
    ChargeRef list;  // [Y24]
    if (const Creates::Entry* same = creates.find(wanted.parent, wanted.tag, wanted.ranks))
        if (const auto held = same->lists.find(request.tenant->number); held != same->lists.end())
            list = held->second.lock();
    if (list == nullptr) {
        NEXAR_TRY(list,
                  request.tenant->charge(Resource::scratch_bytes,
                                         Creation::bytes_of_list(wanted.ranks.size(), parent->facts.size())));
    }
    NEXAR_TRY(const uint64_t number, opening.open(open_of(request, **creation), charge, creation->get()));
    const Creates::Call call{request.session, request.ticket, number, list};
    Creates::Entry& entry = creates.add(*creation, wanted.rank, call, parent->user());
    entry.lists[request.tenant->number] = list;
    entry.pause = context.config.late_after;
    entry.asks_at = std::min(entry.asks_at, context.now + entry.pause);
    entry.wake_at(entry.asks_at);
    return number;
}

Result<CreationRef> Engine::Impl::begin_creation(Group& parent, const LocalRank& local,
                                                 const CreateRequest& wanted) {
    if (local.left) return fail(Errc::closed, "this rank has left the group " + parent.facts.name);
    if (!context.config.proof.hmac_sha256) return fail(Errc::unsupported, "this daemon makes no children");
    NEXAR_TRY_VOID(check_list(parent.facts, local.rank, wanted.ranks));
    if (parent.failed()) return fail(*parent.failed());
    for (const uint32_t rank : wanted.ranks)
        if (const auto gone = parent.departure_error(rank, false)) return fail(*gone);
    if (creates.of_rank(wanted.parent, local.rank, wanted.tag) != nullptr)
        return fail(Errc::bad_state, "rank " + std::to_string(local.rank) + " creates a group with tag " +
                                         std::to_string(wanted.tag) +
                                         " already: wait for it, or give each its own tag");
    const Creates::Entry* same = creates.find(wanted.parent, wanted.tag, wanted.ranks);
    if (const auto differs = end_differing_from(parent, {local.rank, wanted.tag, wanted.ranks}, same))
        return fail(*differs);
    if (same != nullptr) return same->what;
    return std::make_shared<const Creation>(
        creation_of(parent.facts, context.config.proof, wanted.ranks, wanted.tag));
}

// What an attempt has is not ended by anybody but the attempt [Y12].
bool Engine::Impl::waits(const Creates::Call& call) const {
    return !call.ended_here && !opening.is_reserved(call.session, call.ticket);
}

void Engine::Impl::end_create(Creates::Call& call, const Error& error) {
    call.ended_here = true;
    opening.end(call.session, call.ticket, error);
}

// The rendezvous names ranks of the group that is not there; the caller knows those of the parent.
Error Engine::Impl::created_error(const Opening::Answer& answer) const {
    const auto [entry, rank] = creates.find_call(answer.session, answer.ticket);
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

void Engine::Impl::rank_left(const GroupId& id, uint32_t rank) {
    const Group* group = find(id);
    if (group == nullptr || !creates.any_of(id)) return;
    auto gone = group->departure_error(rank, true);
    if (gone) gone = group->explained(*gone);
    Creates::Ending& end = ending_creates[id];
    if (end.gone.words() == 0) end.gone = Listed({}, group->facts.size());
    if (gone) end.gone.add(rank);
    end.left.emplace(rank, std::move(gone));
    end.note_another();
}

void Engine::Impl::end_creates(const Group& parent, const Error& error) {
    if (!creates.any_of(parent.facts.id)) return;
    Creates::Ending& end = ending_creates[parent.facts.id];
    if (end.all) return;
    end.all = parent.explained(error);
    end.note_another();
}

// Parents in turns, an entry of each.
void Engine::Impl::end_some_creates() {
    while (ends_left > 0 && !ending_creates.empty()) {
        auto at = ending_creates.upper_bound(ending_served);
        if (at == ending_creates.end()) at = ending_creates.begin();
        ending_served = at->first;
        if (!end_next_creates(at->first, at->second)) ending_creates.erase(at);
    }
}

// The calls with one list, or as many as there may be in this turn. False: there are no more.
bool Engine::Impl::end_next_creates(const GroupId& parent, Creates::Ending& end) {
    Creates::Entry* entry = creates.next(parent, end);
    if (entry == nullptr) return false;
    const Error* of_all = end.all ? &*end.all : nullptr;
    if (const auto gone = end.gone.first_common(entry->what->listed)) of_all = &*end.left.at(*gone);
    static const Error own{Errc::closed, "the parent was left by this rank", -1, -1, {}};
    for (auto at = entry->calls.lower_bound(end.rank); at != entry->calls.end(); ++at) {
        end.rank = at->first;
        if (at->second.ended_here) continue;
        const Error* why = end.left.contains(at->first) ? &own : of_all;
        if (why == nullptr) continue;
        if (ends_left == 0) return true;
        --ends_left;
        end_create(at->second, *why);
    }
    // After the calls: with a bound of 1 a call ends in each turn, too.
    if (ends_left > 0) --ends_left;
    ++end.number;
    end.rank = 0;
    return true;
}

}  // namespace nexar::engine
