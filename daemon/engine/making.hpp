// Making: the children that one collective of a group makes on this node (docs/protocol/children.md). They
// exist from the moment when all rows have come, and no rank has one before every node has made its own. If
// the collective ends otherwise, so do they, on all nodes.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/children.hpp"
#include "engine/gathering.hpp"

namespace nexar::engine {

class Group;

class Making {
  public:
    // From now on messages about the children are kept [Y5].
    Making(Group& parent, uint64_t seq);
    Making(const Making&) = delete;
    Making& operator=(const Making&) = delete;

    // The children that follow from the rows. An error ends the collective, as one of make_some() does.
    Result<void> begin(OpKind kind, std::span<const ChildRow> rows);
    // The next ones that have a rank here, few enough for a turn of the loop [Y16]. True: those were all.
    // At least one child. Those without a rank here cost a look at each of their ranks.
    static constexpr size_t children_at_once_max = 16, ranks_at_once_max = 512, ranks_seen_max = 4096;
    Result<bool> make_some(const Vector<Post>& posts);
    // begin() has failed by what all nodes find in the rows, not by something of this node.
    bool failed_everywhere() const { return failed_everywhere_; }
    const std::optional<Error>& failure() const { return failure_; }

    // Of this rank; null: it has none.
    std::shared_ptr<const GroupInfo> child_of(uint32_t parent_rank) const;
    void give_up(const Error& error);  // no rank here gets a child
    void end();                        // the collective has ended here; once

  private:
    struct Made {
        Child child;
        GroupInfo info;  // of any of its ranks
    };
    struct Place {  // of a rank here
        size_t made;
        uint32_t rank;
    };
    Result<size_t> make_one(Child child, const Vector<Post>& posts);  // how many of its ranks are here
    static Error translated(const Error& error, const Child& child);

    Group& parent_;
    const uint64_t seq_;
    const Family family_;
    std::vector<Child> children_;  // the first `next_` have been made, and moved
    size_t next_ = 0;
    std::vector<Made> made_;
    std::unordered_map<uint32_t, Place> places_;  // by rank of the parent
    std::optional<Error> failure_;                // of begin() or make_some()
    bool failed_everywhere_ = false;
};

}  // namespace nexar::engine
