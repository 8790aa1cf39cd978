// DueTurns: what is due at some time, and what is next of all that is due: nodes in turns, in a node's turn
// its users, and a user's in the order of time (docs/protocol/rendezvous.md [R33]). Dry.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "core/ids.hpp"
#include "core/time.hpp"

namespace nexar::rendezvous {

// Whose turn something takes. Only `way` is proved: what a node states of its users counts within what came
// through it.
struct TurnOf {
    NodeId way;                        // the node that it came through
    std::pair<NodeId, uint64_t> user;  // an open's node and opener_mark
};

template <class Id>
class DueItems {
  public:
    void add(Time at, const Id& id) { items_.insert({at, id}); }
    size_t remove(Time at, const Id& id) { return items_.erase({at, id}); }
    bool contains(Time at, const Id& id) const { return items_.contains({at, id}); }
    bool empty() const { return items_.empty(); }
    Time next() const { return items_.begin()->first; }
    Id take(Time) { return items_.extract(items_.begin()).value().second; }

  private:
    std::set<std::pair<Time, Id>> items_;
};

// `Row`: DueItems, or other DueRows. A row that was served counts as due since then, so it is behind all
// others that are due. One without items is not kept.
template <class Key, class Row>
class DueRows {
  public:
    template <class... Rest>
    void add(const Key& key, const Rest&... rest) {
        const auto at = rows_.try_emplace(key).first;
        leave_order(at->second, key);
        at->second.row.add(rest...);
        enter_order(at);
    }
    // Returns how many were removed: none, if it is not there.
    template <class... Rest>
    size_t remove(const Key& key, const Rest&... rest) {
        const auto at = rows_.find(key);
        if (at == rows_.end()) return 0;
        leave_order(at->second, key);
        const size_t out = at->second.row.remove(rest...);
        enter_order(at);
        return out;
    }
    template <class... Rest>
    bool contains(const Key& key, const Rest&... rest) const {
        const auto at = rows_.find(key);
        return at != rows_.end() && at->second.row.contains(rest...);
    }
    bool empty() const { return rows_.empty(); }
    Time next() const { return std::get<Time>(*order_.begin()); }  // requires: not empty
    auto take(Time now) {                                          // requires: not empty
        const auto at = rows_.find(std::get<Key>(*order_.begin()));
        leave_order(at->second, at->first);
        at->second.served_at = now;
        at->second.served = ++served_;
        auto out = at->second.row.take(now);
        enter_order(at);
        return out;
    }

  private:
    struct Place {
        Row row;
        Time served_at{};
        uint64_t served = 0;  // of rows that are due since the same time, the lowest is first
        Time due = never;     // where it is in order_; never: it is not there
    };

    void leave_order(Place& place, const Key& key) {
        if (place.due != never) order_.erase({place.due, place.served, key});
        place.due = never;
    }
    void enter_order(typename std::map<Key, Place>::iterator at) {
        Place& place = at->second;
        if (place.row.empty()) return static_cast<void>(rows_.erase(at));
        place.due = std::max(place.row.next(), place.served_at);
        order_.insert({place.due, place.served, at->first});
    }

    std::map<Key, Place> rows_;  // none is empty
    std::set<std::tuple<Time, uint64_t, Key>> order_;
    uint64_t served_ = 0;
};

template <class Id>
class DueTurns {
  public:
    void add(const TurnOf& whose, Time at, const Id& id) {
        rows_.add(whose.way, whose.user, at, id);
        ++size_;
    }
    // Also what is not there any more.
    void remove(const TurnOf& whose, Time at, const Id& id) {
        size_ -= rows_.remove(whose.way, whose.user, at, id);
    }
    bool contains(const TurnOf& whose, Time at, const Id& id) const {
        return rows_.contains(whose.way, whose.user, at, id);
    }
    // Nothing: nothing is due.
    std::optional<Id> take(Time now) {
        if (rows_.empty() || rows_.next() > now) return {};
        --size_;
        return rows_.take(now);
    }
    Time next() const { return rows_.empty() ? never : rows_.next(); }
    size_t size() const { return size_; }

  private:
    DueRows<NodeId, DueRows<std::pair<NodeId, uint64_t>, DueItems<Id>>> rows_;
    size_t size_ = 0;
};

}  // namespace nexar::rendezvous
