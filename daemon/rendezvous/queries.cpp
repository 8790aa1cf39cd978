// See rendezvous.hpp. Members of an attempt that have lost its leader ask each other [R8], and who has not
// decided answers when it has [R34].
#include <algorithm>
#include <utility>

#include "rendezvous/rendezvous.hpp"

namespace nexar::rendezvous {

void Rendezvous::promise(const NodeId& to, const GroupId& group) {
    std::deque<GroupId>& groups = promised_[to];
    if (std::ranges::find(groups, group) != groups.end()) return;
    groups.push_back(group);
    if (groups.size() > config_.promises_max) groups.pop_front();
}

bool Rendezvous::has_promised(const NodeId& from, const wire::GroupPrepare& prepare) const {
    const auto to = [&](const NodeId& node) {
        const auto at = promised_.find(node);
        return at != promised_.end() && std::ranges::find(at->second, prepare.group) != at->second.end();
    };
    return to(from) ||
           std::ranges::any_of(prepare.members, [&](const auto& member) { return to(member.node); });
}

// `node` is reachable again. If it is the leader, the query of the others ends: its decision may still come.
void Rendezvous::resume(const NodeId& node, const GroupId& group, Reservation& reservation, Time now) {
    if (reservation.link_deadline != never) answer_prepare(group, reservation, now);
    if (reservation.query_until == never) return;
    if (reservation.leader == node && now < reservation.decision_deadline) reservation.query_until = never;
    reschedule(group, reservation);
}

void Rendezvous::query_members(const GroupId& group, Reservation& reservation, Time now) {
    reservation.query_until = now + config_.query_timeout;
    reschedule(group, reservation);
    std::set<NodeId> asked{reservation.leader};
    for (const auto& [node, incarnation] : reservation.nodes) asked.insert(node);
    for (const NodeId& node : asked)
        if (node != config_.self) send(node, wire::GroupQuery{group});
}

void Rendezvous::on_query(const NodeId& from, const GroupId& group) {
    if (directory_.is_forming(group) || local_.is_forming(group)) return;  // its members get the decision
    if (const auto undecided = reservations_.find(group); undecided != reservations_.end()) {
        if (undecided->second.nodes.contains(from)) undecided->second.asking.insert(from);
        return;
    }
    if (has_committed(group)) {
        const Decision& decision = decisions_.at(group);
        if (std::ranges::binary_search(decision.nodes, from))
            send(from, wire::GroupCommit{group, decision.tags});
        return;
    }
    if (has_forgotten(group)) return;
    const Error error{
        Errc::pending, "node " + name_of(config_.self) + " has called off the group", -1, -1, {}};
    if (!decisions_.contains(group)) promise(from, group);
    send(from, wire::GroupRefused{{}, group, error});
}

// A member that has not asked may get the decision of the leader, and answers then [R34].
bool Rendezvous::may_learn(const Reservation& reservation) const {
    return std::ranges::any_of(reservation.nodes, [&](const auto& member) {
        const auto& [node, incarnation] = member;
        return node != reservation.leader && !reservation.asking.contains(node) &&
               reach_of(node, incarnation) == Reach::here;
    });
}

// What a node says that was started again since, or is in no such attempt, does not count [R35].
bool Rendezvous::is_of(const NodeId& node, const GroupId& group, const Reservation& reservation) const {
    if (node == reservation.leader) return may_make(node, group);
    const auto member = reservation.nodes.find(node);
    if (member == reservation.nodes.end()) return false;
    const Reach reach = reach_of(node, member->second);
    return reach == Reach::here || reach == Reach::nowhere;
}

void Rendezvous::on_reservation_time(const GroupId& group, Time now) {
    const auto at = reservations_.find(group);
    if (at == reservations_.end()) return;
    Reservation& reservation = at->second;
    if (now >= reservation.link_deadline) answer_prepare(group, reservation, now);
    if (reservation.query_until != never) {
        if (now < reservation.query_until) return;
        const Time last = reservation.decision_deadline + config_.query_timeout;
        if (now < last && may_learn(reservation)) {
            reservation.query_until = std::min(now + config_.query_timeout, last);
            return reschedule(group, reservation);
        }
        const Error error{
            Errc::pending, "the node that formed it was lost, and no other knew a decision", -1, -1, {}};
        abort_attempt(group, error, now);
    } else if (now >= reservation.decision_deadline) {
        query_members(group, reservation, now);
    }
}

}  // namespace nexar::rendezvous
