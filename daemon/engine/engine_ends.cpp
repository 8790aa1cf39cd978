// What ends with a session or a group, in portions: the loop serves others in between [G11]. See
// engine_impl.hpp.
#include <algorithm>
#include <utility>

#include "engine/engine_impl.hpp"

namespace nexar::engine {

// Groups in turns. Whatever is left continues in the next turn of the loop: Engine::wake_at(). Creates come
// first in every other turn: a user who keeps them ending, by one departure after the other, holds up nobody
// else's groups and processes, nor the reverse. Groups that are given up come before both, each once.
void Engine::Impl::end_some() {
    while (ends_left > 0 && !giving_up.empty()) {
        const auto [id, error] = std::exchange(giving_up.front(), {});
        giving_up.pop_front();
        Group* group = find(id);
        ends_left -= std::min(ends_left, group == nullptr ? size_t{1} : 1 + group->locals().size());
        if (group != nullptr) group->give_up(error);
    }
    if (creates_first) creates.end_some(ends_left);
    while (ends_left > 0 && !ending.empty()) {
        const GroupId id = ending.front();
        ending.pop_front();
        Group* group = find(id);
        if (group != nullptr && !group->end_some(ends_left)) ending.push_back(id);
    }
    while (ends_left > 0 && !departing.empty()) depart();
    creates.end_some(ends_left);
}

// To leave looks at every request of the group, which costs far less than to end it.
void Engine::Impl::depart() {
    constexpr size_t looks_per_end = 16;
    const Departure next = std::exchange(departing.front(), {});
    departing.pop_front();
    Group* group = find(next.group);
    LocalRank* local = group == nullptr ? nullptr : group->find_local(next.session, next.rank);
    if (local == nullptr) return;
    ends_left -= std::min(ends_left, 1 + group->in_flight() / looks_per_end);
    group->leave(*local, next.how, next.reason);
    unlist(*group, *local);
}

}  // namespace nexar::engine
