// Watch: the failure detector and the arbiter, driven. It turns what happens to peers and processes into
// heartbeats, accusations and, at the end, one verdict per group.
#pragma once

#include <deque>
#include <optional>

#include "engine/context.hpp"
#include "membership/arbiter.hpp"
#include "membership/failure_detector.hpp"

namespace nexar::engine {

class Watch {
  public:
    Watch(Context& context, Time now);

    void on_peer_up(link::PeerIndex peer);
    void on_peer_down(link::PeerIndex peer, const std::string& reason, bool proof);
    void on_redial_failed(link::PeerIndex peer);
    void on_heard(link::PeerIndex peer, Duration rtt = {});  // zero: not measured
    void on_sent(link::PeerIndex peer);
    bool on_message(link::PeerIndex from, const wire::Message& message);  // false: not for the watch
    void on_group(const GroupId& group, GroupEpoch epoch, std::vector<membership::GroupNode> nodes);
    void on_group_gone(const GroupId& group);
    void on_rank_lost(const GroupId& group, Rank rank, const NodeId& node, const std::string& reason);
    void on_log_discarded(link::PeerIndex peer);
    void suspect(link::PeerIndex peer, const std::string& reason);
    void on_time();

    // Sends what is due; the verdicts that were reached come out of poll_decided().
    void drain();
    // A connected peer fell silent, or was heard again: the rendezvous must not count on it meanwhile.
    struct Reach {
        NodeId node;
        Incarnation life;
        bool reachable = false;
    };
    std::optional<Reach> poll_reach();
    std::optional<membership::Arbiter::Decided> poll_decided() { return arbiter_.poll_decided(); }
    Time wake_at() const;
    bool reachable(link::PeerIndex peer) const;

  private:
    Context& context_;
    membership::FailureDetector detector_;
    membership::Arbiter arbiter_;
    std::deque<Reach> reach_;
    uint64_t heartbeats_ = 0;
};

}  // namespace nexar::engine
