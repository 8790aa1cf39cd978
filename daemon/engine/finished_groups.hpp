// FinishedGroups: groups that have gone from this daemon, with what may still be asked about them
// (docs/protocol/group_lifecycle.md [G9] [G12]). Bounded in groups and in members; the oldest go first.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "core/ids.hpp"
#include "wire/messages.hpp"

namespace nexar::engine {

class FinishedGroups {
  public:
    FinishedGroups(size_t groups_max, size_t members_max)
        : groups_max_(groups_max), members_max_(members_max) {}

    // `members`: the other nodes that were in it.
    void add(const GroupId& group, std::optional<wire::Cut> cut, std::vector<PeerIndex> members);
    bool contains(const GroupId& group) const { return groups_.contains(group); }
    // For a node that was in it. None: it was not, no failure ended it, or it is not remembered.
    std::optional<wire::Cut> cut_for(PeerIndex node, const GroupId& group) const;
    void check_invariants() const;

  private:
    struct Finished {
        std::optional<wire::Cut> cut;
        std::vector<PeerIndex> members;  // ascending
    };
    void forget_oldest();

    size_t groups_max_, members_max_;
    std::map<GroupId, Finished> groups_;
    std::deque<GroupId> order_;  // of groups_, the oldest first
    size_t members_ = 0;         // of all
};

}  // namespace nexar::engine
