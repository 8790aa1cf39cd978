// GroupLifecycle: how the nodes of one group agree on where it ends (docs/protocol/group_lifecycle.md). One
// for each group and node, in every role: it answers ballots, and coordinates one when that is its turn.
// Dry: it is given failures, messages and the time, and acts through LifecycleHost and poll_send(). Nodes are
// numbered in the group, in the order of their lowest ranks.
#pragma once

#include <compare>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "core/result.hpp"
#include "core/time.hpp"
#include "wire/messages.hpp"

namespace nexar::membership {

// What a failure is for the group: an error, and the node that it excludes. The failure of a process excludes
// none.
struct Failure {
    Error error;
    std::optional<uint32_t> excluded;
};

// What the agreement asks of the group on this node.
class LifecycleHost {
  public:
    // This node does not receive anything from it, or knows that it is gone.
    virtual bool suspects(uint32_t node) const = 0;
    // The number of collectives that all ranks whose count is known here have handed over, as of freeze().
    virtual uint64_t handed_over() const = 0;
    // The lowest collective that is not over here.
    virtual uint64_t ended_below() const = 0;
    // Changes whenever a collective moves on here.
    virtual uint64_t progress() const { return 0; }
    virtual void freeze() = 0;                   // begin no collective from now on
    virtual void run_below(uint64_t seq) = 0;    // but these
    virtual void cut(const wire::Cut& cut) = 0;  // the end; called once

  protected:
    ~LifecycleHost() = default;
};

// Tests only: each breaks one rule that a named test must notice.
struct LifecycleSabotage {
    bool accept_before_ended = false;  // [G2]
    bool forget_accepted = false;      // [G1]
    bool accept_any_ballot = false;    // [G1] not only the one that was promised
    bool cut_at_own_count = false;     // [G3] the coordinator's, instead of the lowest
};

class GroupLifecycle {
  public:
    enum class State : uint8_t { active, frozen, ended };
    struct Outgoing {
        uint32_t to;
        wire::Message message;
    };
    struct Facts {
        GroupId group;
        GroupEpoch epoch;
        uint32_t nodes = 1;
        uint32_t self;
        Duration finish_limit{5'000'000'000};      // [G6] for a collective below a proposed cut
        Duration agreement_limit{30'000'000'000};  // [G6] from frozen to ended
    };
    GroupLifecycle(LifecycleHost& host, Facts facts, LifecycleSabotage sabotage = {});

    // Input.
    void fail(const Failure& failure, Time now);
    void on_reach_changed(Time now);  // LifecycleHost::suspects answers differently for some node
    void on_progress(Time now);       // collectives have ended here
    void on_time(Time now);
    // A message of this protocol from a node of the group; others do nothing. An error: the sender broke the
    // protocol [G10].
    Result<void> on_message(uint32_t from, const wire::Message& message, Time now);

    // Output.
    std::optional<Outgoing> poll_send();
    Time wake_at() const;

    State state() const { return state_; }
    const std::optional<wire::Cut>& decided() const { return decided_; }
    const std::set<uint32_t>& excluded() const { return excluded_; }
    bool excludes(uint32_t node) const { return excluded_.contains(node); }
    void check_invariants() const;

  private:
    // A cut of the promised ballot that this node is to accept.
    struct Proposed {
        wire::Ballot ballot;
        wire::Cut cut;
        Time gives_up = never;  // [G6]
        uint64_t progress = 0;  // LifecycleHost::progress() at the last look
    };
    struct Answer {
        wire::GroupReport report;
        bool accepted = false;
    };
    // This node coordinates `ballot`.
    struct Round {
        wire::Ballot ballot;
        size_t excluded = 0;                 // how many nodes its failed set excludes
        std::map<uint32_t, Answer> answers;  // by node
        std::optional<wire::Cut> cut;        // proposed
    };

    Result<void> on(uint32_t from, const wire::GroupFailed& message, Time now);
    Result<void> on(uint32_t from, const wire::GroupFreeze& message, Time now);
    Result<void> on(uint32_t from, const wire::GroupReport& message, Time now);
    Result<void> on(uint32_t from, const wire::GroupCut& message, Time now);
    Result<void> on(uint32_t from, const wire::GroupAccepted& message, Time now);
    Result<void> on(uint32_t from, const wire::GroupEnd& message, Time now);
    Result<void> on(uint32_t from, const wire::GroupDeparted& message, Time now);
    bool learn(const wire::FailedSet& failed);
    Result<void> check(uint32_t from, const wire::Ballot* ballot, const wire::FailedSet* failed) const;
    Result<void> check_seen(const wire::Ballot& ballot) const;
    void freeze(Time now);
    std::optional<uint32_t> coordinator() const;
    void pursue(Time now);
    void begin_round(Time now);
    void promise(const wire::Ballot& ballot);
    wire::GroupReport report() const;
    void consider_reports(Time now);
    wire::Cut choose() const;
    void try_accept(Time now);
    void consider_accepted();
    void end(const wire::Cut& cut);
    bool awaited(uint32_t node) const;
    void send(uint32_t to, wire::Message message);
    wire::FailedSet failed() const;

    LifecycleHost& host_;
    const Facts facts_;
    const LifecycleSabotage sabotage_;
    State state_ = State::active;
    Error error_;                  // the first failure that this node knew; code ok: none yet
    std::set<uint32_t> excluded_;  // nodes; only grows
    std::set<uint32_t> departed_;  // nodes that have left the group; only grows
    wire::Ballot promised_;        // the highest ballot seen
    std::optional<wire::AcceptedCut> accepted_;
    std::optional<Proposed> proposed_;
    Time agrees_by_ = never;  // frozen: when this node goes on alone
    std::optional<Round> round_;
    bool has_led_ = false;                 // others may have promised a ballot of this node
    uint64_t stuck_at_ = UINT64_MAX;       // the lowest collective that is known not to end [G6]
    std::optional<uint32_t> informed_;     // who has this node's failed set; nothing: all others, or nobody
    size_t informed_of_ = 0;               // how many excluded nodes that set had
    std::optional<wire::Cut> other_side_;  // decided by nodes that this one excludes
    std::optional<wire::Cut> decided_;     // state ended
    std::deque<Outgoing> sends_;
};

}  // namespace nexar::membership
