// GroupLifecycle: the agreement of a group's nodes on the cut at which the group ends
// (docs/protocol/group_lifecycle.md; single-decree Paxos). Each node has one for each group, in both roles:
// it answers the ballots of other nodes, and coordinates ballots of its own. Dry: its inputs are failures,
// messages and the time; its outputs are LifecycleHost and poll_send(). Nodes are numbered in the group, in
// the order of their lowest ranks.
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

// A failure as the group sees it.
struct Failure {
    Error error;
    std::optional<uint32_t> excluded;  // the failed node; empty: a process has failed, and its node runs
};

// The group on this node, as the agreement needs it.
class LifecycleHost {
  public:
    // This node suspects the other one, or knows that its incarnation has ended.
    virtual bool suspects(uint32_t node) const = 0;
    // The number of collectives that every rank whose count is known here has handed over, as of freeze().
    virtual uint64_t handed_over() const = 0;
    // The lowest collective that has not ended here.
    virtual uint64_t ended_below() const = 0;
    // Another value after a collective has made progress here.
    virtual uint64_t progress() const { return 0; }
    virtual void freeze() = 0;                   // from now on no collective begins,
    virtual void run_below(uint64_t seq) = 0;    // except those below `seq`
    virtual void cut(const wire::Cut& cut) = 0;  // the decided cut; called once

  protected:
    ~LifecycleHost() = default;
};

// Tests only: each field breaks one rule, and a named test notices.
struct LifecycleSabotage {
    bool accept_before_ended = false;  // [G2]
    bool forget_accepted = false;      // [G1]
    bool accept_any_ballot = false;    // [G1] besides the promised one
    bool cut_at_own_count = false;     // [G3] at the coordinator's count instead of the lowest one
};

class GroupLifecycle {
  public:
    enum class State : uint8_t { active, frozen, ended };
    struct Outgoing {
        uint32_t to;
        wire::Message message;
    };
    struct Config {
        GroupId group;
        GroupEpoch epoch;
        uint32_t nodes = 1;
        uint32_t self;
        Duration finish_limit{5'000'000'000};      // [G6] for a collective below a proposed cut
        Duration agreement_limit{30'000'000'000};  // [G6] from frozen to ended
    };
    GroupLifecycle(LifecycleHost& host, Config config, LifecycleSabotage sabotage = {});

    // Input. Requires: `now` never decreases.
    void on_failure(const Failure& failure, Time now);
    void on_reach_changed(Time now);  // LifecycleHost::suspects has changed for a node
    void on_progress(Time now);       // collectives have ended here
    void on_time(Time now);
    // A message of this protocol from another node of the group; other kinds have no effect. An error: the
    // sender broke the protocol [G10].
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
    // A cut of the promised ballot that this node will accept when all below it has ended.
    struct Proposed {
        wire::Ballot ballot;
        wire::Cut cut;
        Time deadline = never;  // then a collective below it is stuck, unless it has made progress [G6]
        uint64_t progress = 0;  // LifecycleHost::progress() when `deadline` was set
    };
    // Of one node, in the round that this node coordinates.
    struct Answer {
        wire::GroupReport report;
        bool accepted = false;
    };
    // The ballot that this node coordinates.
    struct Round {
        wire::Ballot ballot;
        size_t excluded = 0;                 // how many nodes its failed set excludes
        std::map<uint32_t, Answer> answers;  // by node, also this one; only of nodes that have reported
        std::optional<wire::Cut> cut;        // the proposal; empty until all have reported
    };

    Result<void> on(uint32_t from, const wire::GroupFailed& message, Time now);
    Result<void> on(uint32_t from, const wire::GroupFreeze& message, Time now);
    Result<void> on(uint32_t from, const wire::GroupReport& message, Time now);
    Result<void> on(uint32_t from, const wire::GroupCut& message, Time now);
    Result<void> on(uint32_t from, const wire::GroupAccepted& message, Time now);
    Result<void> on(uint32_t from, const wire::GroupEnd& message, Time now);
    Result<void> on(uint32_t from, const wire::GroupDeparted& message, Time now);
    bool merge(const wire::FailedSet& failed);
    Result<void> check(uint32_t from, const wire::Ballot* ballot, const wire::FailedSet* failed) const;
    Result<void> check_seen(const wire::Ballot& ballot) const;
    void freeze(Time now);
    std::optional<uint32_t> coordinator() const;
    void ensure_coordination(Time now);
    void begin_round(Time now);
    void promise(const wire::Ballot& ballot);
    wire::GroupReport report() const;
    void propose_if_reported(Time now);
    wire::Cut choose_cut() const;
    void try_accept(Time now);
    void decide_if_accepted();
    void end(const wire::Cut& cut);
    bool is_awaited(uint32_t node) const;
    void send(uint32_t to, wire::Message message);
    wire::FailedSet failed() const;

    LifecycleHost& host_;  // outlives this
    const Config config_;
    const LifecycleSabotage sabotage_;
    State state_ = State::active;
    Error error_;                                // of the first failure known here; code ok: none yet
    std::set<uint32_t> excluded_;                // the nodes of the failed set; only grows
    std::set<uint32_t> departed_;                // nodes that have left the group; only grows
    wire::Ballot promised_;                      // the highest ballot seen; round 0: none
    std::optional<wire::AcceptedCut> accepted_;  // the last one that this node accepted; empty: none
    std::optional<Proposed> proposed_;           // empty: no proposal of `promised_`, or it was answered
    Time agreement_deadline_ = never;            // frozen: then this node decides alone [G6]
    std::optional<Round> round_;                 // empty: another node coordinates
    bool has_coordinated_ = false;               // other nodes may have promised a ballot of this node
    uint64_t stuck_at_ = UINT64_MAX;             // the lowest collective that is reported as stuck [G6]
    std::optional<uint32_t> informed_node_;      // has this node's failed set; empty: no node, or all others
    size_t informed_excluded_ = 0;               // how many nodes that failed set excluded
    std::optional<wire::Cut> other_sides_cut_;   // decided by nodes that this one excludes [G7]
    std::optional<wire::Cut> decided_;           // set in state ended
    std::deque<Outgoing> sends_;                 // not polled yet
};

}  // namespace nexar::membership
