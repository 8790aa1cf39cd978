// See rendezvous.hpp. Two nodes that do not reach each other may both be leaders, each of some of the nodes
// that could make a group. Who reaches both lists its own opens with both [R36].
#include <algorithm>
#include <utility>

#include "rendezvous/rendezvous.hpp"

namespace nexar::rendezvous {

namespace {

// A second leader is one of so many lowest connected nodes: who wants to be asked needs a low NodeId, as who
// wants to lead.
constexpr size_t lowest_max = 4;

}  // namespace

// A node that leads says so when it has an open to lead and a lower node is missing, which may lead others.
void Rendezvous::announce() {
    if (announced_ || leader_ != config_.self || peers_.empty()) return;
    const bool was_connected = !lost_.empty() && lost_.begin()->first < config_.self;
    if (!was_connected && !(config_.knows_lower && config_.knows_lower())) return;
    announced_ = true;
    for (const auto& [node, incarnation] : peers_) send(node, wire::GroupLeader{config_.self});
}

// What waits here may have come before any other node did; and the lower one may become known in a moment.
void Rendezvous::announce_later(Time now) {
    if (!announced_ && leader_ == config_.self && config_.knows_lower && second_at_ == never)
        second_at_ = now + config_.second_wait;
}

void Rendezvous::stop_announcing() {
    if (!std::exchange(announced_, false)) return;
    for (const auto& [node, incarnation] : peers_) send(node, wire::GroupLeader{});
}

void Rendezvous::on_leader(const NodeId& from, const wire::GroupLeader& message, Time now) {
    if (!peers_.contains(from)) return;
    others_leading_.erase(from);
    leading_.erase(from);
    if (message.leader == from)
        leading_.insert(from);
    else if (!message.leader.is_zero())
        others_leading_[from] = message.leader;
    update_second(now);
}

NodeId Rendezvous::find_second() const {
    size_t looked_at = 0;
    for (const auto& [node, incarnation] : peers_) {
        if (node > config_.self || looked_at++ == lowest_max) break;
        if (node != leader_ && leading_.contains(node)) return node;
    }
    return {};
}

// What follows is done a while later: a leader that was lost here may be lost for others in a moment, and
// nobody makes this node send more than a few messages in that time.
void Rendezvous::update_second(Time now) {
    if (second_at_ != never || (find_second() == second_ && reported_ == leaders_reported())) return;
    second_at_ = now + config_.second_wait;
}

std::pair<NodeId, NodeId> Rendezvous::leaders_reported() const {
    return second_.is_zero() ? std::pair<NodeId, NodeId>() : std::pair(leader_, second_);
}

// The two get to know of each other, for the error texts of what waits there. False: there is none, and there
// was none.
bool Rendezvous::choose_second() {
    second_ = find_second();
    const auto before = std::exchange(reported_, leaders_reported());
    if (before == reported_) return !second_.is_zero();
    for (const NodeId& node : {before.first, before.second})
        if (peers_.contains(node) && node != reported_.first && node != reported_.second)
            send(node, wire::GroupLeader{});
    if (second_.is_zero()) return true;
    send(leader_, wire::GroupLeader{second_});
    send(second_, wire::GroupLeader{leader_});
    return true;
}

// A turn's part of this node's opens [R26]. One that is new gets its time with its own leader first, so that
// two leaders seldom have a group complete at once.
void Rendezvous::list_with_second(Time now) {
    if (!by_mark_.empty() || directory_.has_waiting()) announce();
    if (seconded_ == wire::RequestId{} && !choose_second()) return static_cast<void>(second_at_ = never);
    const bool ends = second_.is_zero();
    size_t room = ends ? SIZE_MAX : room_of(second_).opens / config_.open_log_bytes_max;
    auto at = own_.upper_bound(seconded_);
    for (size_t n = 0; n < config_.relists_at_once_max && at != own_.end() && room > 0; ++n, ++at) {
        ++visited_;
        seconded_ = at->first;
        Own& own = at->second;
        if (own.local || own.reserved || own.second == second_) continue;
        leave_second(own, false);
        if (ends || now < own.since + config_.second_wait) continue;
        own.second = second_;
        send(second_, own.open, own.payer);
        --room;
    }
    const bool is_through = at == own_.end() || find_second() != second_;
    if (is_through) seconded_ = {};
    const bool is_over = is_through && ends && find_second().is_zero();
    const Duration pause = is_through ? config_.second_wait / 4 : room > 0 ? Duration{} : config_.retry_delay;
    second_at_ = is_over ? never : now + pause;
}

// Also where it is not connected: the open may be on its way there, and arrive when it is again.
void Rendezvous::leave_second(Own& own, bool expired) {
    const NodeId second = std::exchange(own.second, NodeId{});
    if (second.is_zero() || second == own.listed) return;
    if (!peers_.contains(second) && room_of(second).opens < config_.open_log_bytes_max) return;
    send(second, wire::GroupWithdraw{own.open.id, own.open.key, !expired, expired}, own.payer);
}

// Leaders that do not reach each other, as this node knows; zero: none.
std::pair<NodeId, NodeId> Rendezvous::apart() const {
    if (!second_.is_zero()) return {leader_, second_};
    if (leader_ != config_.self) return {};
    for (const auto& [from, leader] : others_leading_)
        if (leader != config_.self && !peers_.contains(leader))
            return {std::min(leader, config_.self), std::max(leader, config_.self)};
    return {};
}

}  // namespace nexar::rendezvous
