// Making: the children that one collective of a group makes on this node (docs/protocol/children.md). They
// exist from the moment when all rows have come, and no rank has one before every node has made its own. If
// the collective ends otherwise, so do they, on all nodes.
#pragma once

#include <memory>
#include <optional>
#include <span>
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

    // All children that have a rank here, or none. An error ends the collective.
    Result<void> make(OpKind kind, std::span<const ChildRow> rows, const std::vector<Post>& posts);
    // make() has failed by what all nodes find in the rows, not by something of this node.
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
    Result<void> make_one(const Child& child, const std::vector<Post>& posts);
    static Error translated(const Error& error, const Child& child);

    Group& parent_;
    const uint64_t seq_;
    const Family family_;
    std::vector<Made> made_;
    std::optional<Error> failure_;  // of make()
    bool failed_everywhere_ = false;
};

}  // namespace nexar::engine
