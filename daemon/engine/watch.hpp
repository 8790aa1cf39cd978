// Watch: connects the failure detector and the arbiter to the engine's peers. Its outputs are heartbeats,
// suspicion reports, and the failed nodes and links of each group.
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
    void on_received(link::PeerIndex peer, Duration rtt = {});  // zero: not measured
    void on_sent(link::PeerIndex peer);
    bool on_message(link::PeerIndex from, const wire::Message& message);  // false: another kind of message
    void on_group(const GroupId& group, GroupEpoch epoch, std::vector<membership::GroupNode> nodes);
    void on_group_gone(const GroupId& group);
    void on_excluded(const GroupId& group, const NodeId& node);
    void on_departed(link::PeerIndex from, const GroupId& group);
    void on_log_discarded(link::PeerIndex peer);
    void on_link_lost(link::PeerIndex peer, const GroupId& group, const std::string& why);
    void suspect(link::PeerIndex peer, const std::string& reason);
    void on_time();

    // Sends the messages that are due. Findings are polled with poll_found().
    void drain();
    // A connected peer is suspected, or received from again; the rendezvous does not use it meanwhile.
    struct Reach {
        NodeId node;
        Incarnation incarnation;
        bool reachable = false;
    };
    std::optional<Reach> poll_reach();
    std::optional<membership::Arbiter::Found> poll_found() { return arbiter_.poll_found(); }
    std::optional<membership::Arbiter::Unknown> poll_unknown() { return arbiter_.poll_unknown(); }
    Time wake_at() const;
    bool reachable(link::PeerIndex peer) const;
    void check_invariants() const;

  private:
    Context& context_;
    membership::FailureDetector detector_;
    membership::Arbiter arbiter_;
    std::deque<Reach> reach_;  // not polled yet
};

}  // namespace nexar::engine
