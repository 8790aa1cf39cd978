// See membership.hpp.
#include "wiring.hpp"

namespace nexar::membership {

Membership::Membership(const MembershipConfig& config, Random random, Time now)
    : config_(config),
      table_(config.table, random, now),
      detector_(config.detector, now),
      arbiter_(config.arbiter, config.table.self.node, config.table.incarnation) {}

void Membership::on_connected(ConnectionId connection, const NodeId& certified, bool outgoing,
                              const std::string& remote, Time now) {
    table_.on_connected(connection, certified, outgoing, remote, now);
    drain(now);
}
void Membership::on_dial_failed(const std::string& address, const NodeId& expected, const std::string& why,
                                Time now) {
    table_.on_dial_failed(address, expected, why, now);
    drain(now);
}
void Membership::on_closed(ConnectionId connection, const std::string& why, Time now) {
    table_.on_closed(connection, why, now);
    drain(now);
}
void Membership::on_heard(ConnectionId connection, Time now) {
    const auto peer = table_.peer_of(connection);
    if (!peer) return;
    detector_.on_heard(*peer, now);
    drain_detector(now);
}
void Membership::on_sent(ConnectionId connection, Time now) {
    if (const auto peer = table_.peer_of(connection)) detector_.on_sent(*peer, now);
}
void Membership::on_rtt(ConnectionId connection, Duration rtt) {
    if (const auto peer = table_.peer_of(connection)) detector_.on_rtt(*peer, rtt);
}

std::optional<NodeId> Membership::on_message(ConnectionId connection, const wire::Message& message,
                                             Time now) {
    if (const auto peer = table_.peer_of(connection)) detector_.on_heard(*peer, now);
    bool ours = table_.on_message(connection, message, now);
    drain(now);
    if (ours || std::holds_alternative<wire::Heartbeat>(message)) return std::nullopt;
    const auto peer = table_.peer_of(connection);
    if (!peer) return std::nullopt;
    const NodeId from = lives_.at(*peer).first;
    ours = arbiter_.on_message(from, message, now);
    drain(now);
    if (ours) return std::nullopt;
    return from;
}

void Membership::on_time(Time now) {
    table_.on_time(now);
    drain_table(now);
    detector_.on_time(now);
    drain_detector(now);
    arbiter_.on_time(now);
    drain(now);
}
void Membership::say_goodbye(const std::string& reason, Time now) {
    table_.say_goodbye(reason);
    drain(now);
}

void Membership::on_group(const GroupId& group, GroupEpoch epoch, std::vector<GroupNode> nodes, Time now) {
    for (GroupNode& node : nodes)
        if (const PeerInfo* info = table_.info_of(node.node); info && node.life == Incarnation{})
            node.life = info->incarnation;
    arbiter_.on_group(group, epoch, std::move(nodes), now);
    drain(now);
}
void Membership::on_group_gone(const GroupId& group) {
    arbiter_.on_group_gone(group);
}
void Membership::on_rank_lost(const GroupId& group, Rank rank, const NodeId& node, const std::string& reason,
                              Time now) {
    arbiter_.on_rank_lost(group, rank, node, reason, now);
    drain(now);
}

bool Membership::send(const NodeId& to, wire::Message message, Time now) {
    const auto connection = table_.connection_of(to);
    if (!connection) return false;
    on_sent(*connection, now);
    actions_.push_back(SendOn{*connection, std::move(message)});
    return true;
}

void Membership::drain(Time now) {
    drain_table(now);
    drain_detector(now);
    drain_arbiter(now);
}

void Membership::drain_table(Time now) {
    while (const auto action = table_.poll_action()) take(*action, now);
}

void Membership::take(const TableAction& action, Time now) {
    if (const auto* failed = std::get_if<RedialFailed>(&action)) {
        detector_.on_redial_failed(failed->peer, now);
    } else if (const auto* up = std::get_if<PeerUp>(&action)) {
        lives_[up->info.peer] = {up->info.record.node, up->info.incarnation};
        actions_.push_back(*up);
        detector_.on_up(up->info.peer, now);
        arbiter_.on_reachable(up->info.record.node, now);
    } else if (const auto* down = std::get_if<PeerDown>(&action)) {
        actions_.push_back(*down);
        if (down->proof) {
            detector_.on_gone(down->peer);
            lives_.erase(down->peer);
            arbiter_.on_dead(down->node, down->incarnation, down->why, now);
        } else {
            detector_.on_closed(down->peer, down->why, now);
        }
    } else if (const auto* dial = std::get_if<Dial>(&action)) {
        actions_.push_back(*dial);
    } else if (const auto* close = std::get_if<CloseConnection>(&action)) {
        actions_.push_back(*close);
    } else if (const auto* send_on = std::get_if<SendOn>(&action)) {
        actions_.push_back(*send_on);
    } else if (const auto* note = std::get_if<Note>(&action)) {
        actions_.push_back(*note);
    }
}

void Membership::drain_detector(Time now) {
    while (const auto peer = detector_.poll_heartbeat()) {
        const auto life = lives_.find(*peer);
        if (life == lives_.end()) continue;
        if (const auto connection = table_.connection_of(life->second.first))
            actions_.push_back(SendOn{*connection, wire::Heartbeat{++heartbeats_}});
    }
    while (const auto change = detector_.poll_change()) {
        const auto life = lives_.find(change->peer);
        if (life == lives_.end()) continue;
        const auto& [node, incarnation] = life->second;
        const bool suspected = change->state == FailureDetector::State::suspected;
        actions_.push_back(Note{suspected ? Level::warn : Level::info,
                                suspected ? "peer_suspected" : "peer_cleared",
                                {{"peer", name_of(node)}, {"reason", change->reason}}});
        if (suspected) {
            arbiter_.on_suspect(node, incarnation, change->reason, now);
        } else {
            arbiter_.on_clear(node, now);
            arbiter_.on_reachable(node, now);
        }
    }
}

void Membership::drain_arbiter(Time now) {
    while (const auto out = arbiter_.poll_send()) send(out->to, out->message, now);
    while (const auto decided = arbiter_.poll_decided()) {
        actions_.push_back(Note{Level::warn,
                                "group_ended",
                                {{"group", decided->group.text()},
                                 {"code", std::string(nexar::name_of(decided->error.code))},
                                 {"text", decided->error.text}}});
        actions_.push_back(GroupDecided{decided->group, decided->error});
    }
}

std::optional<Action> Membership::poll_action() {
    if (actions_.empty()) return std::nullopt;
    Action out = std::move(actions_.front());
    actions_.pop_front();
    return out;
}

Time Membership::wake_at() const {
    return std::min({table_.wake_at(), detector_.wake_at(), arbiter_.wake_at()});
}

std::string Membership::name_of(const NodeId& node) const {
    std::string hostname = node == config_.table.self.node ? config_.table.self.hostname : std::string();
    if (const PeerInfo* info = table_.info_of(node)) hostname = info->record.hostname;
    if (hostname.empty()) return node.short_hex();
    return hostname + " (" + node.short_hex() + ")";
}

}  // namespace nexar::membership
