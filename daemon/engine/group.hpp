// Group: one communicator on this node. It numbers the collectives of its local ranks, has one CollectiveRun
// for each collective that has not ended, and ends at one cut with the other nodes when a process, a node or
// a link of it fails (docs/protocol/group_lifecycle.md).
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/plan.hpp"
#include "engine/children.hpp"
#include "engine/collective_run.hpp"
#include "engine/context.hpp"
#include "engine/group_facts.hpp"
#include "engine/messages.hpp"
#include "engine/timers.hpp"
#include "membership/group_lifecycle.hpp"

namespace nexar::engine {

// The ways in which a rank leaves: it freed the group; its session was closed in order; its process ended;
// its process runs and has given this daemon up; it aborted the group.
enum class Leaving : uint8_t { freed, closed, crashed, given_up, aborted };

// A rank of this node.
struct LocalRank {
    uint32_t rank = 0;
    SessionId session;
    uint64_t posted = 0;      // collectives so far, so the next one's number
    bool left = false;        // by any of Leaving
    link::Account account{};  // that pays for its control messages
    ChargeRef charge;         // for the group, as long as it is here [N2]
    TenantRef tenant{};       // its user; null in tests
    bool listed = false;      // in GroupIndex
    uint64_t user() const { return tenant ? tenant->number : 0; }
};

// The engine, as its groups need it.
class GroupHost {
  public:
    // A transfer with this peer has failed.
    virtual void peer_unreachable(link::PeerIndex peer, const std::string& reason) = 0;
    virtual bool reachable(link::PeerIndex peer) const = 0;
    virtual bool has_session(SessionId session) const = 0;  // it has not ended
    // No effect for sessions that have ended.
    virtual void complete(SessionId session, uint64_t ticket, const Outcome& outcome) = 0;
    virtual void stage_done(SessionId session, uint64_t ticket, uint32_t done) = 0;
    // The group's failed set excludes this node.
    virtual void node_excluded(const GroupId& group, const NodeId& node) = 0;
    virtual void group_cut(const GroupId& group, uint64_t seq, const Error& error) = 0;
    virtual void group_finished(const GroupId& group) = 0;
    virtual void rank_left(const GroupId& group, uint32_t rank) = 0;  // on any node, in any way
    // Group::end_some() has something to end.
    virtual void group_ending(const GroupId& group) = 0;
    // Children that a collective of `parent` may make: messages of its nodes about them are kept until
    // children_done().
    virtual void children_coming(const Family& family, const GroupId& parent) = 0;
    virtual void children_done(const Family& family) = 0;
    virtual Result<GroupInfo> make_child(GroupFacts facts, std::vector<LocalRank> local) = 0;
    virtual void give_up_child(const GroupId& group, const Error& error) = 0;  // no rank here has got it
    virtual size_t groups_max() const = 0;
    virtual size_t groups_now() const = 0;

  protected:
    ~GroupHost() = default;
};

class Group final : public Runnable, public Alarm, private membership::LifecycleHost {
  public:
    Group(Context& context, GroupHost& host, Timers& timers, GroupFacts facts, std::vector<LocalRank> local);
    ~Group();

    const GroupFacts facts;

    // From sessions.
    LocalRank* find_local(SessionId session, uint32_t rank);  // null: the session has no such rank
    Result<void> submit(LocalRank& local, const OpRequest& request);
    // `seq`: the operation's number, if it is a collective.
    void cancel(SessionId session, uint64_t ticket, uint64_t seq);
    void on_stage_progress(SessionId session, uint64_t ticket, uint64_t seq, uint32_t filled,
                           uint32_t taken);  // of a staged operation
    void leave(LocalRank& local, Leaving how, const std::string& reason);
    void complete(SessionId session, uint64_t ticket, Outcome outcome);

    // From other nodes; `from` is a node of the group.
    void on_rank_gone(collectives::NodeIndex from, const wire::RankGone& gone);
    void on_abort(const wire::OpAbort& abort);
    void on_announce(collectives::NodeIndex from, const wire::OpAnnounce& announce);
    void on_arrival_query(link::PeerIndex from, const wire::ArrivalQuery& query);
    void on_arrival_reply(collectives::NodeIndex from, const wire::ArrivalReply& reply);
    void on_mismatch(const link::MeshEvent& event);
    // A message of the agreement on the group's end, from a node of the group. An error: it broke the
    // protocol.
    Result<void> on_agreement(collectives::NodeIndex from, const wire::Message& message);

    // Failures.
    void node_failed(const NodeId& node, const Error& error);
    void rank_failed(uint32_t rank, const std::string& reason);
    void reach_changed(const NodeId& node);  // GroupHost::reachable has changed for it
    // Its control log was discarded, or its bulk connection is cut off: messages with it are lost.
    void link_lost(const NodeId& node);
    void abandon(const Error& error);  // this daemon stops
    void give_up(const Error& error);  // a child that no rank here has got: all nodes end it
    // [G11] Ends what the cut has left, at most `left` messages and local ranks of collectives (one
    // collective more), and subtracts their number. True: that was all.
    bool end_some(size_t& left);

    Messages& messages() { return messages_; }
    const Messages& messages() const { return messages_; }
    const std::optional<Error>& failed() const { return failed_; }
    WorkOrigin work_origin(link::Account account, SessionId session) const;
    // As GroupFacts::explained, with all ranks that are known to be lost.
    Error explained(Error error) const;
    bool is_agreeing() const;  // frozen, and not ended
    bool finished() const;     // all local ranks have left, and nothing is in flight
    const std::optional<wire::Cut>& decided_cut() const { return lifecycle_.decided(); }
    void check_invariants() const;  // for tests; walks all runs and messages
    size_t runs_in_flight() const { return runs_.size(); }
    size_t in_flight() const { return runs_.size() + messages_.in_flight(); }

    // From its runs and messages.
    GroupHost& host() { return host_; }
    Context& context() { return context_; }
    std::vector<LocalRank>& locals() { return local_; }
    const std::vector<LocalRank>& locals() const { return local_; }
    Tenant* tenant() const;  // of its first rank here that has one: lines of the log are that tenant's
    uint64_t user() const { return user_of(local_); }  // that tenant's number; its deadlines are that one's
    void abort(uint64_t seq, const Error& error);      // on all ranks
    // Sends to all other nodes. `room`: of the operation that causes the message; null: the daemon's reserve
    // pays.
    void to_others(const wire::Message& message, ControlRoom* room = nullptr) const;
    void to_node(collectives::NodeIndex node, const wire::Message& message) const;
    void run_changed() { context_.executor.push_once(this); }
    void run_ended(uint64_t seq);  // once; it is removed later, as it may be what runs now
    void transfer_lost(const Error& error);
    std::optional<collectives::NodeIndex> node_of(link::PeerIndex peer) const;
    uint64_t arrival_nonce(uint64_t seq);  // of this collective's queries
    bool has_departed(uint32_t rank) const { return departed_.contains(rank); }
    bool is_failed(uint32_t rank) const;  // crashed, or its node is excluded
    bool is_lost(uint32_t rank) const;    // crashed, or its node is excluded or does not answer
    // The error of an operation that needs this rank, if it has left without a crash. `waited`: the operation
    // began before that was known.
    std::optional<Error> departure_error(uint32_t rank, bool waited) const;

    template <class F>
    void for_runs(F f) const {  // in order, while f returns true
        for (const auto& [seq, run] : runs_)
            if (!f(*run)) return;
    }
    const std::map<uint32_t, wire::RankGone>& departed() const { return departed_; }

  private:
    static uint64_t user_of(const std::vector<LocalRank>& local);
    Result<void> submit_message(const LocalRank& local, const OpRequest& request);
    Result<Count> charge(const LocalRank& local, uint64_t rows) const;
    Result<void> check_makes_groups(const OpRequest& request) const;
    OpRequest with_place(const LocalRank& local, const OpRequest& request) const;
    void abort_mismatched_tables(uint64_t seq, const std::string& other);
    void stop_begun_runs();  // with failed_; end_some() stops the others
    void stop_run(CollectiveRun& run);
    struct EndedAhead {  // an aborted collective that no rank here has called yet
        Errc code;
        int64_t rank;  // that aborted it; -1: not known
    };
    void remember_end(const wire::OpAbort& abort);
    Error ended_ahead_error(uint64_t seq, const EndedAhead& ended) const;
    void run() override;  // starts and removes runs
    void remove_ended();
    void count_runs(ptrdiff_t more);
    void compare_with_ended(collectives::NodeIndex from, const wire::OpAnnounce& announce);
    void on_time() override;  // of the agreement
    uint64_t leave_collectives(uint32_t rank, uint64_t posted);
    uint64_t abort_pending(const LocalRank& local, Leaving how, const std::string& reason);
    void close_pending(const LocalRank& local, const std::string& reason);
    CollectiveRun* run_for(uint64_t seq);  // makes one; null: it has ended, or is too far ahead
    uint64_t lowest_open_seq() const;
    void check_departed();
    uint64_t departed_handed_over() const;
    uint64_t handed_over_here() const;
    void end_messages_with(collectives::NodeIndex node);
    std::optional<collectives::NodeIndex> index_of(const NodeId& node) const;
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
    std::vector<LocalRank> local_;    // in rank order
    std::vector<TenantRef> tenants_;  // of local_, each once
    std::map<uint64_t, std::unique_ptr<CollectiveRun>, std::less<>,
             Recycled<std::pair<const uint64_t, std::unique_ptr<CollectiveRun>>>>
        runs_;                // by sequence number
    Vector<uint64_t> ended_;  // of runs_, to be removed: the others need not be looked at
    Messages messages_;
    std::map<uint32_t, wire::RankGone> departed_;  // by rank: those that have left or crashed, on any node
    membership::GroupLifecycle lifecycle_;
    std::optional<uint64_t> frozen_at_;           // handed_over_here() at freeze(); empty: not frozen
    uint64_t run_below_ = 0;                      // frozen: collectives below it may begin
    size_t excluded_announced_ = 0;               // how many excluded nodes the host knows
    uint64_t first_nonce_ = 0;                    // of queries, that of collective 0; 0: none has asked
    uint64_t stopped_below_ = 0;                  // failed: collectives below it are stopped
    std::optional<Error> failed_;                 // the error of the cut, or of abandon(); empty: none
    std::map<uint64_t, EndedAhead> ended_ahead_;  // by sequence number, beyond seq_window
    std::deque<EndedCall, Recycled<EndedCall>> unseen_calls_;  // of the latest runs that have gone; ascending
};

}  // namespace nexar::engine
