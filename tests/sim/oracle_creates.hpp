// The creates of a program of tests/oracle: which rank has which created group, or waits for it.
#pragma once

#include <map>

#include "creation.hpp"
#include "oracle_text.hpp"

namespace nexar::sim {

class OracleCreates {
  public:
    enum class Has { yes, not_yet, no };

    // `groups`: by number; a created one is added when a rank has it.
    OracleCreates(Cluster& cluster, Text& text, std::map<uint32_t, SimGroup>& groups,
                  const std::map<uint32_t, SessionId>& sessions)
        : cluster_(cluster), text_(text), groups_(groups), sessions_(sessions) {}

    Has has(uint32_t rank, uint32_t group) const {
        if (text_.groups[group].how != "create") return Has::yes;
        for (const Item& item : text_.items[rank]) {
            if (item.what != "create" || item.group != group) continue;
            if (!item.open) return Has::no;
            return is_pending(item) ? Has::not_yet : error_of(item).code == Errc::ok ? Has::yes : Has::no;
        }
        return Has::no;
    }
    // A rank has one create of a parent and tag in flight [Y9].
    bool may_begin(const Item& create) const {
        for (const Item& item : text_.items[create.rank])
            if (item.is_create() && item.parent == create.parent && item.tag == create.tag &&
                is_pending(item))
                return false;
        return true;
    }
    void begin(Item& item) {
        const uint32_t rank = place_in(text_.groups[item.parent], item.rank);
        CreateCall call{item.list, item.tag, item.timeout};
        call.pid = 1000 + root_place(item.parent, item.rank);
        call.uid = 1000;
        item.called = cluster_.clock.now();
        item.open = create(cluster_, groups_.at(item.parent), rank, call);
    }
    void cancel(const Item& item) {
        if (is_pending(item)) sim::cancel(cluster_, *item.open);
    }
    // Frees what creates that may end early have got, and makes known what the others have.
    void settle(uint32_t rank) {
        for (Item& item : text_.items[rank]) {
            if (!item.is_create() || !item.open || is_pending(item) || error_of(item).code != Errc::ok)
                continue;
            SimGroup group = made(text_.groups[item.group], *group_of(item));
            if (item.what == "create") {
                const auto [at, is_first] = groups_.try_emplace(item.group, std::move(group));
                REQUIRE(at->second.id == *group_of(item));  // all ranks have the same one
            } else if (!std::exchange(item.is_freed, true))
                REQUIRE(cluster_.free_group(group, place_in(text_.groups[item.group], rank)));
        }
    }
    // Whether an ending of the item's step before it has made a group.
    bool has_got(const Item& again) const {
        return std::ranges::any_of(text_.items[again.rank], [&](const Item& item) {
            return item.what == "ending" && item.step == again.step && item.open && group_of(item);
        });
    }
    // Its answer; none: it is pending, or has failed.
    std::optional<GroupId> group_of(const Item& item) const {
        if (is_pending(item) || error_of(item).code != Errc::ok) return {};
        return (*cluster_.answer(*item.open))->id;
    }
    bool any_pending(uint32_t rank, bool endings_only) const {
        return std::ranges::any_of(text_.items[rank], [&](const Item& item) {
            return is_pending(item) && (item.what == "ending" || !endings_only);
        });
    }
    bool is_pending(const Item& item) const {
        return item.is_create() && item.open && item.open->accepted && cluster_.answer(*item.open) == nullptr;
    }
    // Requires: it was called, and is not pending.
    Error error_of(const Item& item) const {
        if (!item.open->accepted) return item.open->accepted.error();
        const Result<engine::GroupInfo>& answer = *cluster_.answer(*item.open);
        return answer ? Error{} : answer.error();
    }
    Time ended_at(const Item& item) const {
        const auto& times = cluster_.hosts[item.open->host]->opened_at;
        const auto at = times.find({item.open->session.value, item.open->ticket});
        return at == times.end() ? item.called : at->second;
    }
    static uint32_t place_in(const Made& made, uint32_t member) {
        return static_cast<uint32_t>(std::ranges::find(made.members, member) - made.members.begin());
    }

  private:
    // Processes are distinguished by their ranks in the opened group that a group comes from.
    uint32_t root_place(uint32_t group, uint32_t member) const {
        while (text_.groups[group].parent >= 0) group = static_cast<uint32_t>(text_.groups[group].parent);
        return place_in(text_.groups[group], member);
    }
    SimGroup made(const Made& group, const GroupId& id) const {
        SimGroup out;
        out.id = id;
        for (const uint32_t member : group.members) {
            out.placement.push_back(text_.places[member]);
            out.sessions.push_back(sessions_.at(text_.processes[member]));
        }
        return out;
    }
    Cluster& cluster_;
    Text& text_;
    std::map<uint32_t, SimGroup>& groups_;
    const std::map<uint32_t, SessionId>& sessions_;  // by process
};

}  // namespace nexar::sim
