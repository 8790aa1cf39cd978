// CollectiveRun: one collective of one group on this node, from the first word about it until none of its
// transfers and jobs is left. Transitions:
//   waiting -> ready      the last local rank has posted it, and all descriptors match
//   ready   -> running    the group lets it start
//   running -> settled    its task has ended well: success is reported
//   settled -> over       its last transfer (a send out of scratch) has ended
//   any     -> stopping   stop(): aborted, mismatched, or the group failed; transfers are withdrawn
//   stopping -> over      the transfers and jobs have ended, the error is reported, no local rank is to come
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/control_room.hpp"
#include "engine/snapshot.hpp"
#include "engine/staging.hpp"
#include "engine/timers.hpp"
#include "engine/two_level.hpp"

namespace nexar::engine {

class Group;

class CollectiveRun final : public Runnable, public Alarm {
  public:
    enum class State : uint8_t { waiting, ready, running, settled, stopping, over };

    CollectiveRun(Group& group, Timers& timers, uint64_t seq);
    ~CollectiveRun();

    const uint64_t seq;
    State state() const { return state_; }

    void post(size_t local, const OpRequest& request);
    void start();
    void stop(const Error& error);
    // As stop(), but how it ends here is not known yet: stop() follows.
    void halt(const Error& why);
    bool is_decided() const;  // how it ends here will not change
    // True: found here, and the op is to end on all ranks with the error that is returned.
    std::optional<Error> cancel(SessionId session, uint64_t ticket);
    // The same for a rank that frees the group: it gets `own`, the others what is returned.
    std::optional<Error> close(uint32_t rank, const Error& own, const std::string& reason);
    void local_left() { end_if_idle(); }
    // False: of another operation.
    bool moved(SessionId session, uint64_t ticket, uint32_t filled, uint32_t taken) {
        return staging_ && staging_->moved(session, ticket, filled, taken);
    }
    // A local rank has left. False: it has not moved all its input, so it has not handed this op over.
    bool leave(uint32_t rank);
    bool waits_for_bytes_of(uint32_t rank) const;
    bool has_filled(uint32_t rank) const;  // nothing of that rank's input is still to be moved

    void on_announce(collectives::NodeIndex from, const wire::OpAnnounce& announce);
    void on_arrival_reply(collectives::NodeIndex from, const wire::ArrivalReply& reply);
    void announce();
    bool has_posts() const;
    bool is_stopped() const { return op_.stopped.has_value(); }
    void give(ControlRoom room) { room_ = std::move(room); }
    ControlRoom& room() { return room_; }
    OpSnapshot snapshot(Time now) const;

  private:
    struct Post {
        bool present = false, reported = false, cancelled = false;
        std::optional<Error> closed;  // instead of what ends the op
        SessionId session;
        uint64_t ticket = 0;
        Buffer in, out;
        Time deadline = never;
    };
    // What another node has said about this op.
    struct Word {
        bool asked = false;  // and the answer has not come
        std::optional<wire::OpAnnounce> announce;
        std::optional<wire::ArrivalReply> arrival;
    };

    void run() override;      // the task has ended, or the last transfer
    void on_time() override;  // announce, late, deadline, end of grace
    Task<> body();
    Task<> lane_task(uint32_t lane);
    void segment_over(uint32_t segment);
    void stage(const OpRequest& request, uint32_t rank);
    Side side(size_t local, const Buffer& buffer, bool out) const;
    void sweep_lanes();
    void stop_work(const Error& error);
    void end_if_idle();
    void report(size_t local, Outcome outcome);
    void report_success();
    void on_lingering();
    Duration patience() const;
    void report_error();
    bool nobody_to_come() const;
    void arm();
    void on_deadline();
    wire::OpAnnounce announcement() const;
    wire::ArrivalQuery arrival_query() const;
    void ask_who_has_arrived();
    bool has_room_to_ask();
    bool all_answered() const;
    void tell_late();
    void expire();
    std::string missing_text() const;
    std::string unmoved_text() const;
    std::vector<uint32_t> unmoved_here() const;
    std::vector<uint32_t> unmoved() const;
    bool arrived(uint32_t rank) const;
    bool counted_missing(uint32_t rank) const;

    Group& group_;
    State state_ = State::waiting;
    bool halted_ = false;      // stopping, and nothing is reported before stop()
    std::vector<Post> posts_;  // by index of the local rank
    std::optional<OpDescriptor> descriptor_;
    ControlRoom room_;         // for its control messages; nothing while no local rank has posted
    uint32_t first_rank_ = 0;  // whose descriptor that is
    Time first_posted_ = never;
    Time deadline_ = never;      // the earliest of this node's ranks
    Duration timeout_{};         // that rank's; 0: there is none
    uint32_t timeout_rank_ = 0;  // meaningful beside a deadline_
    std::vector<Word> words_;    // by NodeIndex; empty while there are none
    bool announced_ = false;
    enum class Late : uint8_t { no, asked, told } late_ = Late::no;
    Time ask_again_ = never;
    bool asking_ = false;  // the deadline has passed
    uint64_t nonce_ = 0;   // of its queries; 0: none yet
    Time asking_ends_ = never;
    Time expired_at_ = never;
    size_t lingering_ = 0;  // transfers that were under way at the last look, after the end

    OpOnNode op_;
    TwoLevelOp two_level_;
    std::unique_ptr<Staging> staging_;  // nothing: no local rank is staged
    uint32_t segments_done_ = 0;
    std::vector<std::unique_ptr<MeshLane>> lanes_;
    Task<> task_;
};

}  // namespace nexar::engine
