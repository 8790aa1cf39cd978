#include "engine/watch.hpp"

#include <algorithm>

namespace nexar::engine {

using membership::FailureDetector;

namespace {

membership::DetectorConfig detector_config(const EngineConfig& config) {
    membership::DetectorConfig out;
    out.interval = config.heartbeat_interval;
    out.timeout = config.heartbeat_timeout;
    return out;
}

}  // namespace

Watch::Watch(Context& context, Time now)
    : context_(context),
      detector_(detector_config(context.config), now),
      arbiter_(membership::ArbiterConfig{}, context.config.self, context.config.incarnation) {}

void Watch::on_peer_up(link::PeerIndex peer) {
    detector_.on_up(peer, context_.now);
}

void Watch::on_peer_down(link::PeerIndex peer, const std::string& reason, bool proof) {
    const PeerState& state = context_.peer(peer);
    detector_.on_closed(peer, reason, context_.now);
    if (!proof) return;
    detector_.on_gone(peer);
    reach_.push_back({state.node, state.incarnation, false});
    arbiter_.on_dead(state.node, state.incarnation, reason, context_.now);
}

void Watch::on_redial_failed(link::PeerIndex peer) {
    detector_.on_redial_failed(peer, context_.now);
}
void Watch::on_received(link::PeerIndex peer, Duration rtt) {
    detector_.on_received(peer, context_.now);
    if (rtt != Duration{}) detector_.on_rtt(peer, rtt);
}
void Watch::on_sent(link::PeerIndex peer) {
    detector_.on_sent(peer, context_.now);
}

bool Watch::on_message(link::PeerIndex from, const wire::Message& message) {
    return arbiter_.on_message(context_.peer(from).node, message, context_.now);
}

void Watch::on_group(const GroupId& group, GroupEpoch epoch, std::vector<membership::GroupNode> nodes) {
    arbiter_.on_group(group, epoch, std::move(nodes), context_.now);
}

void Watch::on_group_gone(const GroupId& group) {
    arbiter_.on_group_gone(group);
}

void Watch::on_excluded(const GroupId& group, const NodeId& node) {
    arbiter_.on_excluded(group, node);
}

void Watch::on_departed(link::PeerIndex from, const GroupId& group) {
    arbiter_.on_departed(context_.peer(from).node, group, context_.now);
}

void Watch::suspect(link::PeerIndex peer, const std::string& reason) {
    const PeerState& state = context_.peer(peer);
    arbiter_.on_suspect(state.node, state.incarnation, reason, context_.now);
}

void Watch::on_log_discarded(link::PeerIndex peer) {
    const PeerState& state = context_.peer(peer);
    arbiter_.on_log_discarded(state.node, state.incarnation);
}

void Watch::on_link_lost(link::PeerIndex peer, const GroupId& group, const std::string& why) {
    const PeerState& state = context_.peer(peer);
    context_.ports.log.warn("bulk_cut_off",
                            {field("node", state.node), field("group", group.text()), field("why", why)});
    arbiter_.on_link_lost(state.node, state.incarnation, group, why);
}

void Watch::on_time() {
    detector_.on_time(context_.now);
    arbiter_.on_time(context_.now);
}

void Watch::drain() {
    while (const auto change = detector_.poll_change()) {
        const PeerState& state = context_.peer(change->peer);
        if (change->state == FailureDetector::State::suspected) {
            context_.ports.log.warn("peer_suspected",
                                    {field("node", state.node), field("reason", change->reason)});
            arbiter_.on_suspect(state.node, state.incarnation, change->reason, context_.now);
        } else {
            context_.ports.log.info("peer_received_again", {field("node", state.node)});
            arbiter_.on_clear(state.node);
        }
        reach_.push_back({state.node, state.incarnation, change->state != FailureDetector::State::suspected});
    }
    while (const auto peer = detector_.poll_heartbeat()) {
        context_.send(*peer, wire::Heartbeat{});
        on_sent(*peer);
    }
    while (const auto out = arbiter_.poll_send()) {
        const auto peer = context_.find_peer(out->to);
        if (peer) context_.send(*peer, out->message);
    }
}

std::optional<Watch::Reach> Watch::poll_reach() {
    if (reach_.empty()) return std::nullopt;
    const Reach front = reach_.front();
    reach_.pop_front();
    return front;
}

Time Watch::wake_at() const {
    return std::min(detector_.wake_at(), arbiter_.wake_at());
}

bool Watch::reachable(link::PeerIndex peer) const {
    return detector_.state_of(peer) == FailureDetector::State::alive;
}

void Watch::check_invariants() const {
    detector_.check_invariants();
    arbiter_.check_invariants();
}

}  // namespace nexar::engine
