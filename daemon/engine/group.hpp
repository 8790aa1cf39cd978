// Group: one communicator on this node. It numbers the collectives of its local ranks, keeps one
// CollectiveRun per collective that is not over, and ends with the other nodes at one cut when something of
// it fails (docs/protocol/group_lifecycle.md).
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/plan.hpp"
#include "engine/collective_run.hpp"
#include "engine/context.hpp"
#include "engine/group_facts.hpp"
#include "engine/messages.hpp"
#include "engine/timers.hpp"
#include "membership/group_lifecycle.hpp"

namespace nexar::engine {

// What a group needs of the engine around it.
class GroupHost {
  public:
    // The link has given up on this peer.
    virtual void peer_unreachable(link::PeerIndex peer, const std::string& reason) = 0;
    virtual bool reachable(link::PeerIndex peer) const = 0;
    // Nothing happens for sessions that have ended.
    virtual void complete(SessionId session, uint64_t ticket, const Outcome& outcome) = 0;
    virtual void stage_done(SessionId session, uint64_t ticket, uint32_t done) = 0;
    // The group knows that this node has failed.
    virtual void node_excluded(const GroupId& group, const NodeId& node) = 0;
    virtual void group_cut(const GroupId& group, uint64_t seq, const Error& error) = 0;
    virtual void group_finished(const GroupId& group) = 0;

  protected:
    ~GroupHost() = default;
};

// How a rank leaves: it freed the group, its session was closed in good order, its process died, or goes on
// without this daemon.
enum class Leaving : uint8_t { freed, closed, crashed, given_up };

// A rank of this node.
struct LocalRank {
    uint32_t rank = 0;
    SessionId session;
    uint64_t posted = 0;      // collectives so far: the next one's number
    bool left = false;        // its process ended, or it freed the group
    link::Account account{};  // that pays for its control messages
};

class Group final : public Runnable, public Alarm, private membership::LifecycleHost {
  public:
    Group(Context& context, GroupHost& host, Timers& timers, GroupFacts facts, std::vector<LocalRank> local);
    ~Group();

    const GroupFacts facts;

    // From sessions.
    LocalRank* find_local(SessionId session, uint32_t rank);  // null: that session has no such rank
    Result<void> submit(LocalRank& local, const OpRequest& request);
    bool cancel(SessionId session, uint64_t ticket);
    bool on_stage_progress(SessionId session, uint64_t ticket, uint32_t filled,
                           uint32_t taken);  // of a staged operation
    void leave(LocalRank& local, Leaving how, const std::string& reason);
    void complete(SessionId session, uint64_t ticket, Outcome outcome);

    // From other nodes; `from` is a node of the group.
    void on_rank_gone(const wire::RankGone& gone);
    void on_abort(const wire::OpAbort& abort);
    void on_announce(collectives::NodeIndex from, const wire::OpAnnounce& announce);
    void on_arrival_query(link::PeerIndex from, const wire::ArrivalQuery& query);
    void on_arrival_reply(collectives::NodeIndex from, const wire::ArrivalReply& reply);
    void on_mismatch(const link::MeshEvent& event);
    // A message of the agreement on the group's end, from a node of the group. An error: it broke the
    // protocol.
    Result<void> on_agreement(collectives::NodeIndex from, const wire::Message& message);

    // Something of the group has failed.
    void node_failed(const NodeId& node, const Error& error);
    void rank_failed(uint32_t rank, const std::string& reason);
    void reach_changed(const NodeId& node);  // GroupHost::reachable answers differently for it
    void log_discarded(const NodeId& node);  // the control log with it: what both sent each other is lost
    void abandon(const Error& error);        // this daemon stops

    Messages& messages() { return messages_; }
    const std::optional<Error>& failed() const { return failed_; }
    // As GroupFacts::explained, with all ranks that are known to be lost by now.
    Error explained(Error error) const;
    bool agreeing() const;  // frozen, and not ended yet
    bool finished() const;  // all local ranks have left and nothing is under way
    const std::optional<wire::Cut>& decided_cut() const { return lifecycle_.decided(); }
    void check_invariants() const;  // for tests; walks all runs and messages
    size_t runs_in_flight() const { return runs_.size(); }

    // From its runs and messages.
    GroupHost& host() { return host_; }
    Context& context() { return context_; }
    std::vector<LocalRank>& locals() { return local_; }
    const std::vector<LocalRank>& locals() const { return local_; }
    void abort(uint64_t seq, const Error& error);  // on all ranks
    // To all other nodes. `room`: of the operation that causes it; without it the daemon's reserve pays.
    void to_others(const wire::Message& message, ControlRoom* room = nullptr) const;
    void to_node(collectives::NodeIndex node, const wire::Message& message) const;
    void run_changed() { context_.executor.push(this); }
    void transfer_lost(const Error& error);
    std::optional<collectives::NodeIndex> node_of(link::PeerIndex peer) const;
    bool is_gone(uint32_t rank) const { return gone_.contains(rank); }
    bool is_out(uint32_t rank) const;   // crashed, or its node is excluded
    bool is_lost(uint32_t rank) const;  // crashed, or its node is excluded or does not answer
    // What an operation that needs this rank ends with, if it has left; `waited`: begun before that was
    // known.
    std::optional<Error> gone_error(uint32_t rank, bool waited) const;

    template <class F>
    void for_runs(F f) const {
        for (const auto& [seq, run] : runs_) f(*run);
    }
    const std::map<uint32_t, wire::RankGone>& gone() const { return gone_; }

  private:
    void tables_differ(uint64_t seq, const std::string& other);
    void stop_runs();    // all with failed_
    struct EndedAhead {  // a collective that no rank here has called
        Errc code;
        int64_t rank;  // that gave it up; -1: not known
    };
    void remember_end(const wire::OpAbort& abort);
    Error ended_long_ago(uint64_t seq, const EndedAhead& ended) const;
    void run() override;      // starts and removes runs
    void on_time() override;  // of the agreement
    uint64_t leave_runs(uint32_t rank, uint64_t posted);
    uint64_t take_back(const LocalRank& local, const std::string& reason);
    void close_pending(const LocalRank& local, const std::string& reason);
    CollectiveRun* run_for(uint64_t seq);  // makes one; null: over already, or too far ahead
    uint64_t lowest_open() const;
    void check_watermark();
    uint64_t watermark() const;
    uint64_t counted() const;
    void end_messages_with(collectives::NodeIndex node);
    std::optional<collectives::NodeIndex> number_of(const NodeId& node) const;
    void drain_agreement();

    // membership::LifecycleHost
    bool suspects(uint32_t node) const override;
    uint64_t handed_over() const override;
    uint64_t ended_below() const override;
    uint64_t progress() const override;
    void freeze() override;
    void run_below(uint64_t seq) override;
    void cut(const wire::Cut& cut) override;

    Context& context_;
    GroupHost& host_;
    Timers& timers_;
    std::vector<LocalRank> local_;
    std::map<uint64_t, std::unique_ptr<CollectiveRun>> runs_;  // by sequence number
    Messages messages_;
    std::map<uint32_t, wire::RankGone> gone_;  // by rank
    membership::GroupLifecycle lifecycle_;
    std::optional<uint64_t> frozen_at_;           // frozen: what the ranks here had handed over then
    uint64_t run_below_ = 0;                      // frozen: collectives below it may begin
    size_t excluded_announced_ = 0;               // how many excluded nodes the host knows
    std::optional<Error> failed_;                 // the cut's, or why this node left
    std::map<uint64_t, EndedAhead> ended_ahead_;  // beyond the window, by sequence number
};

}  // namespace nexar::engine
