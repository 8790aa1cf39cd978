// Gathering: the ranks that have called one collective, and their descriptors. The ranks of this node post
// it, other nodes announce theirs; all descriptors must be equal. Dry, and independent of the run's other
// parts.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/group_facts.hpp"
#include "engine/ports.hpp"

namespace nexar::engine {

// A rank of this node and its call.
struct Post {
    uint32_t rank = 0;
    bool present = false, reported = false, cancelled = false;
    std::optional<Error> closed;  // this post's own error, instead of the collective's
    SessionId session;
    uint64_t ticket = 0;
    MemoryRef in, out;
    uint64_t scalar = 0;
    OwnCountsRef own_counts;                    // null: the operation has none
    std::shared_ptr<const ChildRequest> child;  // null: it makes no groups
    std::optional<Priority> priority;           // null: the operation's own
    std::shared_ptr<KnownOperation> known;      // null: it is submitted once
    Time deadline = never;
};

// A collective that has ended well here: as whose call, and what it was.
struct EndedCall {
    uint64_t seq = 0;
    uint32_t rank = 0;
    OpDescriptor descriptor;
    uint32_t answers = 0;  // to announcements that differ: at most one for each node
};
// An error: a rank of another node has called something else as the same collective.
std::optional<Error> compare(const GroupFacts& facts, const EndedCall& ended,
                             const wire::OpAnnounce& announce);

class Gathering {
  public:
    // `compare`: false in a test only.
    Gathering(const GroupFacts& facts, uint64_t seq, bool compare = true);

    // An error ends the collective on all ranks: descriptors differ, or one is not known here.
    std::optional<Error> post(size_t local, const OpRequest& request, Time now);
    std::optional<Error> on_announce(collectives::NodeIndex from, const wire::OpAnnounce& announce);
    wire::OpAnnounce announcement() const;  // after the first post

    // The post of this session's operation becomes a cancelled one; the error is for all other ranks.
    std::optional<Error> cancel(SessionId session, uint64_t ticket);
    // The same for a rank that frees the group: it gets `own`.
    std::optional<Error> close(uint32_t rank, const Error& own, const std::string& reason);
    // What this post ends with when the collective ends with `error`, by deadlines that had passed at
    // `expired`.
    static Error error_of(const Post& post, const Error& error, Time expired);

    void unpin();  // what the posts hold: nothing of the collective uses it any more

    bool any_posted() const { return descriptor_.has_value(); }
    bool all_posted() const;
    Vector<Post>& posts() { return posts_; }
    const Vector<Post>& posts() const { return posts_; }
    const std::optional<OpDescriptor>& descriptor() const { return descriptor_; }
    const CountsRef& counts() const { return counts_; }
    EndedCall ended_call() const { return {seq_, first_rank_, *descriptor_, 0}; }  // after the first post
    // Posted here, or announced by its node.
    bool has_posted(uint32_t rank) const;

    Time first_posted() const { return first_posted_; }
    Time deadline() const { return deadline_; }              // the earliest of this node's ranks
    Duration timeout() const { return timeout_; }            // that rank's; 0: there is none
    uint32_t timeout_rank() const { return timeout_rank_; }  // meaningful beside a deadline

  private:
    struct Announced {
        collectives::NodeIndex from;
        wire::OpAnnounce announce;
    };
    Error abort_error(const Post& post, const std::string& what) const;
    void take_deadline(Post& post, const OpRequest& request, Time now);

    const GroupFacts& facts_;
    const uint64_t seq_;
    const bool compare_;
    Vector<Post> posts_;                      // of the ranks of this node, in their order
    std::optional<OpDescriptor> descriptor_;  // of the first post
    CountsRef counts_;                        // the same; null: it has none
    uint32_t first_rank_ = 0;                 // that made the first post
    Vector<Announced> announced_;             // at most one of each node
    Time first_posted_ = never;
    Time deadline_ = never;
    Duration timeout_{};
    uint32_t timeout_rank_ = 0;
};

}  // namespace nexar::engine
