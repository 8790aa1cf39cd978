// Groups that are created from a list of ranks of a parent (docs/protocol/children.md, "Groups from a list"):
// what the nodes of these ranks know of one before it is opened (pure), and the calls of this node that wait
// for one.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/group_facts.hpp"
#include "engine/timers.hpp"

namespace nexar::engine {

// The same on all nodes that were given the same list. Outlives the parent.
struct Creation {
    GroupId parent, root;  // root: the group that was opened
    std::string parent_name, name;
    std::vector<uint32_t> ranks;                   // of the parent, in the new group's order
    std::vector<uint32_t> root_ranks;              // the same as ranks of the root
    std::vector<wire::GroupMemberRecord> members;  // of the parent, one for each rank
    uint64_t tag = 0;
    Timeouts timeouts;  // the parent's
    rendezvous::Credentials credentials;
    // -1: not listed
    int64_t index_of(uint32_t parent_rank) const;
};
using CreationRef = std::shared_ptr<const Creation>;

// The list that `rank` of the parent has given. An error names what is wrong with it.
Result<void> check_list(const GroupFacts& parent, uint32_t rank, const std::vector<uint32_t>& ranks);
// Requires: check_list() has accepted the list.
Creation creation_of(const GroupFacts& parent, const rendezvous::ProofPort& port,
                     const std::vector<uint32_t>& ranks, uint64_t tag);
// The open that a create is: name, size, rank, time-outs.
OpenRequest open_of(const OpenRequest& asked, const Creation& creation);
// [Y11] The members that were committed are not the listed ranks. Requires: as many members as ranks.
std::optional<Error> contradiction(const Creation& creation, const wire::GroupPrepare& prepare);

// The ranks that call, one list each.
struct CallWithList {
    uint32_t rank;
    const std::vector<uint32_t>& ranks;
};
Error lists_differ(const GroupFacts& parent, uint64_t tag, const CallWithList& a, const CallWithList& b);

// The calls of this node without an outcome.
class Creates {
  public:
    struct Call {
        SessionId session;
        uint64_t ticket = 0;
        uint32_t rank = 0;        // of the parent
        bool ended_here = false;  // with an error of the engine's, not the rendezvous's
    };
    struct Entry final : Alarm {  // the calls with one list and tag
        Entry(Creates& owner, Timers& timers, uint64_t user, CreationRef creation)
            : Alarm(timers, user), what(std::move(creation)), owner_(owner) {}
        void on_time() override { owner_.late_(*this); }
        const CreationRef what;
        std::vector<Call> calls;
        Duration pause{};  // until the other nodes are asked again

      private:
        Creates& owner_;
    };
    using Entries = std::vector<std::unique_ptr<Entry>>;

    // `late`: called when an entry's alarm is due.
    Creates(Timers& timers, std::function<void(Entry&)> late) : timers_(timers), late_(std::move(late)) {}

    Entry* find(const GroupId& parent, uint64_t tag, const std::vector<uint32_t>& ranks) const;
    Entry& add(const CreationRef& creation, const Call& call, uint64_t user);
    struct Removed {
        CreationRef what;  // null: it was none
        bool ended_here = false;
    };
    Removed remove(SessionId session, uint64_t ticket);
    void remove_session(SessionId session);
    // Valid until the next remove.
    std::vector<Entry*> of(const GroupId& parent) const;
    size_t size() const { return by_call_.size(); }

  private:
    void remove(std::map<std::pair<SessionId, uint64_t>, Entry*>::iterator at);

    Timers& timers_;
    std::function<void(Entry&)> late_;
    std::map<GroupId, Entries> by_parent_;
    std::map<std::pair<SessionId, uint64_t>, Entry*> by_call_;  // by session and ticket
};

}  // namespace nexar::engine
