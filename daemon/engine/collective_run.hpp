// CollectiveRun: one collective of one group on this node, from the first post or message about it until all
// of its transfers and jobs have ended. Its parts are the gathering of the ranks that call it, the inquiry
// for those that are late, and the execution. Transitions:
//   waiting -> ready      the last local rank has posted it, and all descriptors match
//   ready   -> running    the group starts it
//   running -> settled    its task has succeeded, and success is reported
//   settled -> ended      its last transfer (a send out of scratch memory) has ended
//   any     -> stopping   stop(): aborted, mismatched, or the group failed; transfers are withdrawn
//   stopping -> ended     the transfers and jobs have ended, the error is reported, and no local rank can
//   post it
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/arrival_inquiry.hpp"
#include "engine/control_room.hpp"
#include "engine/execution.hpp"
#include "engine/gathering.hpp"
#include "engine/making.hpp"
#include "engine/snapshot.hpp"
#include "engine/timers.hpp"

namespace nexar::engine {

class Group;

class CollectiveRun final : public Execution::Owner, public Alarm, public RecycledObject {
  public:
    enum class State : uint8_t { waiting, ready, running, settled, stopping, ended };

    CollectiveRun(Group& group, Timers& timers, uint64_t seq);
    ~CollectiveRun();

    const uint64_t seq;
    State state() const { return state_; }

    void post(size_t local, const OpRequest& request);
    void start();
    void stop(const Error& error);
    // As stop(), but the error to report is not known yet: stop() follows.
    void stop_unreported(const Error& why);
    bool is_decided() const;  // its outcome here is final
    // Returns the error with which the collective ends on all other ranks; empty: of another operation.
    std::optional<Error> cancel(SessionId session, uint64_t ticket) {
        return gathering_.cancel(session, ticket);
    }
    // The same for a rank that frees the group, which gets `own`.
    std::optional<Error> close(uint32_t rank, const Error& own, const std::string& reason) {
        return gathering_.close(rank, own, reason);
    }
    void on_local_left() { end_if_idle(); }
    // False: of another operation.
    bool on_stage_progress(SessionId session, uint64_t ticket, uint32_t filled, uint32_t taken) {
        return execution_.on_progress(session, ticket, filled, taken);
    }
    // A local rank has left. False: its staged input is incomplete, so it has not handed this op over.
    bool leave(uint32_t rank) { return execution_.leave(rank); }
    bool waits_for_bytes_of(uint32_t rank) const { return execution_.waits_for_bytes_of(rank); }
    uint32_t segments_ended() const { return execution_.segments_ended(); }
    bool has_filled(uint32_t rank) const { return execution_.has_filled(rank); }

    void on_announce(collectives::NodeIndex from, const wire::OpAnnounce& announce);
    void on_arrival_reply(collectives::NodeIndex from, const wire::ArrivalReply& reply);
    void announce();
    // Empty: it did not end well, or every other node has seen its descriptor in a header.
    std::optional<EndedCall> unseen_call() const;
    void set_oldest();
    bool has_posts() const { return gathering_.any_posted(); }
    bool is_stopped() const { return execution_.stopped().has_value(); }
    void set_count(Count count) { count_ = std::move(count); }
    void set_room(ControlRoom room) { room_ = std::move(room); }
    ControlRoom& room() { return room_; }
    OpSnapshot snapshot(Time now) const;
    void check_invariants() const;

  private:
    void run() override;      // the task, a lane or the last transfer has ended
    void on_time() override;  // of the inquiry, or of lingering transfers
    void segments_done(const Staging::Member& member, uint32_t done) override;
    Task<> rows_gathered(std::vector<ChildRow> rows) override;

    void stop_work(const Error& error);
    void abort_without_scratch(Error error);
    void end_if_idle();
    void report(Post& post, Outcome outcome);
    void end_making();
    void report_success();
    void report_error();
    void on_lingering();
    Duration linger_timeout() const;
    bool all_posted_or_left() const;

    void perform(const ArrivalInquiry::Due& due);
    void arm();
    void ask_for_arrivals();
    void log_late();
    void expire();
    bool has_arrived(uint32_t rank) const;
    bool is_missing(uint32_t rank) const;
    std::vector<uint32_t> missing() const;
    std::vector<uint32_t> stalled_here() const;
    std::vector<uint32_t> stalled() const;
    std::string phase() const;

    Group& group_;
    State state_ = State::waiting;
    Counted running_;             // in Context::running
    bool is_unreported_ = false;  // stopping by stop_unreported(): no report before stop()
    Gathering gathering_;
    ArrivalInquiry inquiry_;
    Execution execution_;
    std::unique_ptr<Making> making_;  // of what makes groups: from its start to its report
    Count count_;              // its requests, until it has gone [N2]; empty until a local rank has posted
    ControlRoom room_;         // for its control messages; empty until a local rank has posted
    Time expired_at_ = never;  // when its deadline ended it
    size_t lingering_ = 0;     // settled: transfers in flight at the last on_lingering()
};

}  // namespace nexar::engine
