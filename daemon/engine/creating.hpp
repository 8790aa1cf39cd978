// Groups that are created from a list of ranks of a parent (docs/protocol/children.md, "Groups from a list"):
// what the nodes of these ranks know of one before it is opened. Pure; creates.hpp has the calls that wait.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/group_facts.hpp"

namespace nexar::engine {

// Which ranks a list has. `size`: of the parent; higher ranks are left out.
class Listed {
  public:
    Listed() = default;
    Listed(std::span<const uint32_t> ranks, uint32_t size) : has_((size + 63) / 64) {
        for (const uint32_t rank : ranks)
            if (rank < size) add(rank);
    }
    void add(uint32_t rank) { has_[rank / 64] |= uint64_t{1} << rank % 64; }
    void remove(uint32_t rank) { has_[rank / 64] &= ~(uint64_t{1} << rank % 64); }
    bool has(uint32_t rank) const {
        return rank / 64 < has_.size() && (has_[rank / 64] >> rank % 64 & 1) != 0;
    }
    // The lowest rank from `from` on that both have; none: nothing.
    std::optional<uint32_t> first_common(const Listed& other, uint32_t from = 0) const;
    size_t common(const Listed& other) const;  // how many ranks both have
    // What first_common() looks at.
    size_t words() const { return has_.size(); }

  private:
    std::vector<uint64_t> has_;  // a bit for each rank
};

// The same on all nodes that were given the same list. Outlives the parent, and shares its lists [Y22].
struct Creation {
    GroupId parent, root;  // root: the group that was opened
    std::string parent_name, name;
    SharedList<uint32_t> ranks;                          // of the parent, in the new group's order
    Listed listed;                                       // the same ranks
    SharedList<wire::GroupMemberRecord> parent_members;  // by rank of the parent
    SharedList<uint32_t> parent_root_ranks;              // the same; empty: the parent is the root
    uint64_t tag = 0;
    Timeouts timeouts;  // the parent's
    rendezvous::Credentials credentials;

    int64_t index_of(uint32_t parent_rank) const;  // -1: not listed; looks through the list
    static size_t bytes_of_list(size_t ranks, uint32_t parent_size);  // that it takes [Y22]
    // By rank of the new group.
    const wire::GroupMemberRecord& member(size_t i) const { return parent_members[ranks[i]]; }
    std::vector<uint32_t> root_ranks() const;
};
using CreationRef = std::shared_ptr<const Creation>;

// The list that `rank` of the parent has given. An error names what is wrong with it.
Result<void> check_list(const GroupFacts& parent, uint32_t rank, std::span<const uint32_t> ranks);
// Requires: check_list() has accepted the list.
Creation creation_of(const GroupFacts& parent, const rendezvous::ProofPort& port,
                     const SharedList<uint32_t>& ranks, uint64_t tag);
// The open that a create is: name, size, rank, time-outs.
OpenRequest open_of(const OpenRequest& asked, const Creation& creation);
// [Y11] The members that were committed are not the listed ranks. Requires: as many members as ranks.
std::optional<Error> contradiction(const Creation& creation, const wire::GroupPrepare& prepare);

// The ranks that call, one list each.
struct CallWithList {
    uint32_t rank;
    std::span<const uint32_t> ranks;
};
Error lists_differ(const GroupFacts& parent, uint64_t tag, const CallWithList& a, const CallWithList& b);
std::string text_of_list(std::span<const uint32_t> ranks);  // "0, 1", of a long one the first ranks
// [Y20] An error of the rendezvous, which names ranks of the group that is not there, in the parent's
// numbers. `elsewhere`: what the missing rank waited in; empty: not known.
Error of_parent(const Creation& creation, Error error, const std::string& elsewhere);

}  // namespace nexar::engine
