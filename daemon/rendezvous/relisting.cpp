// See rendezvous.hpp. Peers that come and go, and what follows from it for many opens: another leader gets
// them, and a lost node's are forgotten. Each turn does a part of it, so that the loop and the control logs
// are free for others meanwhile [R26].
#include <algorithm>
#include <cstdint>

#include "rendezvous/rendezvous.hpp"

namespace nexar::rendezvous {

void Rendezvous::on_peer_up(const NodeId& node, Incarnation incarnation, Time now) {
    if (const auto other = peers_.find(node); other != peers_.end() && other->second != incarnation)
        on_peer_down(node, other->second, now);
    peers_[node] = incarnation;
    lost_.erase(node);
    update_leader(now);
    if (announced_) send(node, wire::GroupLeader{config_.self});
    announce_later(now);
    directory_.on_connected(node);
    for (auto& [group, reservation] : reservations_) resume(node, group, reservation, now);
    go_on(now);
    settle(now);
}

void Rendezvous::on_peer_down(const NodeId& node, Incarnation incarnation, Time now) {
    const auto peer = peers_.find(node);
    if (peer == peers_.end() || peer->second != incarnation) return;
    peers_.erase(peer);
    lost_[node] = incarnation;
    lost_relays_[node] = {relayed_.of(node), 0};
    directory_.lose(node, incarnation);
    leading_.erase(node);
    others_leading_.erase(node);
    update_leader(now);
    for (auto& [group, reservation] : reservations_)
        if (reservation.leader == node && reservation.query_until == never)
            query_members(group, reservation, now);
    go_on(now);
    settle(now);
}

void Rendezvous::update_leader(Time now) {
    const NodeId next = peers_.empty() ? config_.self : std::min(config_.self, peers_.begin()->first);
    if (next == leader_) return update_second(now);
    leader_ = next;
    if (leader_ != config_.self) stop_announcing();
    update_second(now);
    ++leader_changes_;
    relisting_.clear();
    for (auto at = by_mark_.begin(); at != by_mark_.end();) {
        relisting_[at->first] = {};
        at = at->first == UINT64_MAX ? by_mark_.end() : by_mark_.lower_bound({at->first + 1, {}});
    }
    passing_on_.reset();
    if (leader_ != config_.self && !relayed_.empty()) passing_on_ = wire::RequestId{};
}

bool Rendezvous::is_relisting() const {
    const bool to_move = leader_ == config_.self ? !relayed_.empty() : directory_.has_waiting();
    return !lost_relays_.empty() || directory_.has_lost_listings() || !relisting_.empty() || passing_on_ ||
           to_move;
}

// How many opens the control log with the leader takes now.
size_t Rendezvous::at_once(size_t room) const {
    return std::min(config_.relists_at_once_max, room / config_.open_log_bytes_max);
}

// A turn's part. The opens of lost nodes are forgotten before others move: what moves is not in their lists.
void Rendezvous::go_on(Time now) {
    const LogRoom room = room_of(leader_);
    const size_t own = at_once(room.opens), others = at_once(room.refusals);
    const bool lost = !lost_relays_.empty() || directory_.has_lost_listings();
    if (!lost_relays_.empty()) forget_lost_relays(lost_relays_.begin()->first, lost_relays_.begin()->second);
    directory_.forget_lost_listings(config_.relists_at_once_max, now);
    list_again(own, now);
    pass_on_again(others);
    const bool may_move = lost_relays_.empty() && !directory_.has_lost_listings();
    if (may_move && leader_ == config_.self) take_over(now);
    if (may_move && leader_ != config_.self) hand_over(others, now);
    const bool passes_on = passing_on_ || (leader_ != config_.self && directory_.has_waiting());
    const bool full = (relisting_.empty() || own == 0) && (!passes_on || others == 0);
    relist_at_ = never;
    if (is_relisting()) relist_at_ = !lost && full ? now + config_.retry_delay : now;
}

// In turns: who has very many opens does not keep another user's one waiting.
void Rendezvous::list_again(size_t most, Time now) {
    for (size_t n = 0; n < most && !relisting_.empty(); ++n) {
        auto turn = relisting_.upper_bound(relisted_mark_);
        if (turn == relisting_.end()) turn = relisting_.begin();
        relisted_mark_ = turn->first;
        const auto at = by_mark_.upper_bound({turn->first, turn->second});
        if (at == by_mark_.end() || at->first != turn->first) {
            relisting_.erase(turn);
            continue;
        }
        turn->second = at->second;
        ++visited_;
        Own& own = own_.at(at->second);
        if (own.sent_in != leader_changes_ && !own.reserved) move(own, now);
    }
}

// Who led it gets to know it, where there is room; otherwise when it prepares it [R2].
void Rendezvous::move(Own& own, Time now) {
    const bool elsewhere = own.listed != leader_ && own.listed != config_.self;
    if (elsewhere && room_of(own.listed).opens >= config_.open_log_bytes_max)
        send(own.listed, wire::GroupWithdraw{own.open.id, own.open.key, true, false}, own.payer);
    list(own, now);
}

// It may still be on its way there, and arrive when its node has long withdrawn it elsewhere.
void Rendezvous::leave_former(const Listed& listed) {
    const NodeId& former = listed.leader;
    if (former.is_zero() || former == leader_ || room_of(former).opens < config_.open_log_bytes_max) return;
    send(former, wire::GroupWithdraw{listed.open.id, listed.open.key, true, false});
}

void Rendezvous::pass_on_again(size_t most) {
    for (size_t n = 0; n < most && passing_on_; ++n) {
        const Listed* next = relayed_.after(*passing_on_);
        if (next == nullptr) return passing_on_.reset();
        passing_on_ = next->open.id;
        ++visited_;
        if (next->sent_in == leader_changes_) continue;
        leave_former(*next);
        relayed_.set_sent(next->open.id, leader_, leader_changes_);
        send(leader_, next->open);
    }
}

void Rendezvous::move(const Listed& listed, Time now) {
    if (listed.open.id.origin == config_.self) return;  // list_again() has it
    pass_on(listed.open, listed.via, now);
    for (const NodeId& relay : listed.relays) pass_on(listed.open, relay, now);
}

// This node leads no more.
void Rendezvous::hand_over(size_t most, Time now) {
    for (const Listed& listed : directory_.take_waiting(most)) {
        ++visited_;
        move(listed, now);
    }
}

// This node leads now.
void Rendezvous::take_over(Time now) {
    for (size_t n = 0; n < config_.relists_at_once_max && !relayed_.empty(); ++n) {
        ++visited_;
        const Listed listed = relayed_.take_first();
        leave_former(listed);
        move(listed, now);
    }
}

// A node that passed them on, or listed them here to be passed on, lists them again when it is back.
void Rendezvous::forget_lost_relays(const NodeId& node, LostRelays& lost) {
    const NodeId way = node;
    for (size_t n = 0; n < config_.relists_at_once_max; ++n) {
        if (lost.next < lost.opens.size()) {
            const wire::RequestId request = lost.opens[lost.next++];
            const Listed* listed = relayed_.find(request);
            if (listed == nullptr || !listed->came_through(way)) continue;
            const Listed before = *listed;
            if (relayed_.drop_via(request, way)) {
                leave_former(before);
                if (leader_ != config_.self)
                    send(leader_, wire::GroupWithdraw{request, before.open.key, false, false});
            }
            send(way, wire::GroupUnlisted{request});
        } else if (const auto refusal = refusals_.take(way)) {
            send(way, wire::GroupUnlisted{refusal->id});
        } else {
            lost_relays_.erase(way);
            return;
        }
    }
}

}  // namespace nexar::rendezvous
