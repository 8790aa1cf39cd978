// Turns: rows that have work, served in turns by what the work costs (deficit round robin). A row is anything
// that has empty(), cost() of its next piece, and take(); also another Turns. Dry.
#pragma once

#include <algorithm>
#include <cstdint>
#include <list>
#include <unordered_map>

namespace nexar::workers {

// What a row may cost in one turn. No less than a piece, so that each turn serves one.
constexpr uint64_t turn_cost = 768 * 1024;

template <class Row>
class Turns {
  public:
    bool empty() const { return ring_.empty(); }
    // A row without work is made anew, behind all others. Requires: the caller gives it work now.
    Row& at(uint64_t id) {
        const auto [it, added] = by_id_.try_emplace(id);
        if (added) it->second = ring_.insert(ring_.end(), Turn{id, 0, false, {}});
        return it->second->row;
    }
    // Of the piece that take() returns. Requires: not empty.
    uint64_t cost() {
        while (true) {
            Turn& turn = ring_.front();
            if (!turn.begun) turn.credit += turn_cost;
            turn.begun = true;
            const uint64_t next = turn.row.cost();
            if (next <= turn.credit) return next;
            turn.begun = false;
            ring_.splice(ring_.end(), ring_, ring_.begin());
        }
    }
    auto take() {
        const uint64_t spent = cost();
        Turn& turn = ring_.front();
        auto piece = turn.row.take();
        turn.credit -= std::min(turn.credit, spent);
        if (turn.row.empty()) {  // credit is not saved up
            by_id_.erase(turn.id);
            ring_.pop_front();
        }
        return piece;
    }
    size_t size() const { return ring_.size(); }

  private:
    struct Turn {
        uint64_t id;
        uint64_t credit;  // that is left of this turn; grows over turns while a piece costs more than one
        bool begun;       // its turn: it has got its credit
        Row row;
    };
    std::list<Turn> ring_;  // by turn: the first one is served
    std::unordered_map<uint64_t, typename std::list<Turn>::iterator> by_id_;
};

}  // namespace nexar::workers
