// See rendezvous.hpp. The member's side of prepare and commit. The states of a reservation:
//   none -> waiting for links    a prepare whose opens are all free [R5]
//   waiting -> prepared          connected to every member node: answered OK
//   prepared -> querying         the leader is lost, or silent for too long [R8] (queries.cpp)
//   any -> committed             by a commit of the leader or of another member
//   any -> aborted               by a refusal of the leader or of another member, or no member answered
#include <algorithm>
#include <bit>
#include <iterator>
#include <utility>

#include "rendezvous/rendezvous.hpp"
#include "rendezvous/texts.hpp"

namespace nexar::rendezvous {

void Rendezvous::on_prepare(const NodeId& from, const wire::GroupPrepare& prepare, Time now) {
    if (reservations_.contains(prepare.group)) return;  // again [R10]
    if (!may_make(from, prepare.group)) {
        const std::string text = "group " + prepare.group.text() + " is not of this leader's making";
        return send(from, wire::GroupPrepared{prepare.group, {Errc::pending, text, -1, -1, {}}});
    }
    if (const auto known = decisions_.find(prepare.group); known != decisions_.end()) {
        if (known->second.outcome == Outcome::committed) return;
        const Error error{Errc::pending, "called off here already", -1, -1, {}};
        return send(from, wire::GroupPrepared{prepare.group, error});
    }
    if (has_promised(from, prepare)) {
        const Error error{Errc::pending, "called off here already", -1, -1, {}};
        return send(from, wire::GroupPrepared{prepare.group, error});
    }
    if (const std::string fault = fault_of(from, prepare, now); !fault.empty()) {
        promise(from, prepare.group);
        const std::string text = "node " + name_of(config_.self) + ": " + fault;
        return send(from, wire::GroupPrepared{prepare.group, {Errc::pending, text, -1, -1, {}}});
    }
    Reservation& reservation = reservations_[prepare.group];
    reservation.prepare = prepare;
    reservation.leader = from;
    for (const wire::GroupMemberRecord& member : prepare.members) {
        if (member.node != config_.self) {
            reservation.nodes[member.node] = member.incarnation;
            continue;
        }
        Own& own = own_.at(member.request);
        if (reservation.whose.way.is_zero()) reservation.whose = turn_of(own);
        leave_question(own);
        own.reserved = prepare.group;
        own.status_until = never;
        reschedule(own);
        if (!own.local && !reservation.proof) reservation.proof.emplace(config_.proof, own.proof, prepare);
    }
    reservation.link_deadline = now + config_.link_wait;
    reservation.decision_deadline = now + config_.decision_timeout;
    reschedule(prepare.group, reservation);
    answer_prepare(prepare.group, reservation, now);
}

// Otherwise a leader could use up the ids of another one's coming attempts [R5].
bool Rendezvous::may_make(const NodeId& leader, const GroupId& group) const {
    if (group.creator != leader.prefix()) return false;
    if (leader == config_.self) return group.incarnation == config_.incarnation.nonce;
    for (const auto* nodes : {&peers_, &lost_})
        if (const auto at = nodes->find(leader); at != nodes->end())
            return at->second == Incarnation{} || group.incarnation == at->second.nonce;
    return false;
}

// The reason why this node cannot take part; empty: it can. Opens that are listed in vain are removed from
// the leader's list [R2].
std::string Rendezvous::fault_of(const NodeId& from, const wire::GroupPrepare& prepare, Time now) {
    std::string fault = "no open of this node in it";
    if (prepare.plan.version > plan_version_of(common_features(prepare.members)))  // [V5]
        return "the group counts on plan function " + std::to_string(prepare.plan.version) +
               ", which a node of it lacks";
    if (const auto why = fault_of_members(prepare)) return *why;
    bool any = false;
    for (const wire::GroupMemberRecord& member : prepare.members) {
        if (member.node != config_.self) continue;
        if (!std::exchange(any, true)) fault.clear();
        const auto own = own_.find(member.request);
        if (own != own_.end() && own->second.reserved) {
            // The leader makes a new attempt, so it has aborted the earlier one.
            const GroupId earlier = *own->second.reserved;
            if (reservations_.at(earlier).leader == from)
                abort_attempt(earlier, {Errc::pending, "replaced by a later attempt", -1, -1, {}}, now);
        }
        // An open that is not listed with `from` is treated as unknown, so that its properties are not
        // disclosed.
        auto still = own_.find(member.request);
        const bool leads =
            still != own_.end() && (from == still->second.listed || from == still->second.second);
        if (!leads) still = own_.end();
        if (still != own_.end() && !still->second.reserved && still->second.open.key == prepare.key) {
            if (const auto why = contradiction(still->second.open, prepare, member); !why.empty()) return why;
            continue;
        }
        fault = "pid " + std::to_string(member.pid) +
                (still == own_.end() ? " has gone" : " is in another attempt");
        send(from, wire::GroupWithdraw{member.request, prepare.key, false, false});
        if (still != own_.end() && from == still->second.second) still->second.second = {};
    }
    if (fault.empty() && !has_own_nonces(prepare)) return "the nonces of its opens are not those in it";
    return fault;
}

// What is wrong with the list of members. What it states of the other nodes they check themselves, and
// their tags prove that they have the same list [R19].
std::optional<std::string> Rendezvous::fault_of_members(const wire::GroupPrepare& prepare) const {
    std::set<wire::RequestId> seen;
    std::map<NodeId, Incarnation> incarnations;
    for (const wire::GroupMemberRecord& member : prepare.members) {
        if (incarnations.try_emplace(member.node, member.incarnation).first->second != member.incarnation)
            return "two incarnations of node " + name_of(member.node) + " in it";
        if (member.request.origin != member.node)
            return "an open of another node stands for node " + name_of(member.node);
        if (!seen.insert(member.request).second) return "the same open twice";
        if (member.node != config_.self) continue;
        if (member.incarnation != Incarnation{} && member.incarnation != config_.incarnation)
            return "another incarnation of it";
        if (const uint64_t missing = member.features & ~config_.features; missing != 0)
            return "it lacks feature " + std::to_string(std::countr_zero(missing)) +
                   ", which the group ascribes to it";
    }
    return std::nullopt;
}

// Requires: all members of this node are opens of it.
bool Rendezvous::has_own_nonces(const wire::GroupPrepare& prepare) const {
    wire::Nonce sum{};
    for (const wire::GroupMemberRecord& member : prepare.members)
        if (member.node == config_.self) add_nonce(sum, own_.at(member.request).open.nonce);
    return std::ranges::all_of(prepare.members, [&](const auto& member) {
        return member.node != config_.self || member.nonce == sum;
    });
}

// The leader cannot choose the members, an explicit rank, the size, the name, or a time-out that was asked
// for.
std::string Rendezvous::contradiction(const wire::GroupOpen& open, const wire::GroupPrepare& prepare,
                                      const wire::GroupMemberRecord& member) {
    const std::string pid = "pid " + std::to_string(open.pid);
    if (prepare.members.size() != open.size)
        return pid + " asked for a group of " + std::to_string(open.size) + ", not of " +
               std::to_string(prepare.members.size());
    if (open.rank >= 0 && member.rank != open.rank)
        return pid + " asked for rank " + std::to_string(open.rank) + ", not " + std::to_string(member.rank);
    if (prepare.name != open.name) return pid + " asked for a group of another name";
    const wire::TimeoutsRecord &asked = open.timeouts, &given = prepare.timeouts;
    if ((asked.collective_ms >= 0 && given.collective_ms != asked.collective_ms) ||
        (asked.barrier_ms >= 0 && given.barrier_ms != asked.barrier_ms) ||
        (asked.rpc_ms >= 0 && given.rpc_ms != asked.rpc_ms))
        return pid + " asked for other time-outs";
    return {};
}

// Final only if no connection can be expected: another incarnation of the node may connect soon [R7].
Error Rendezvous::link_fault(const Reservation& reservation, const NodeId& node, Reach reach) const {
    if (reach == Reach::over)
        return {Errc::pending, "node " + name_of(node) + " was started again", -1, -1, {}};
    if (reach == Reach::not_yet)
        return {Errc::pending,
                "node " + name_of(config_.self) + " is not connected to the present incarnation of node " +
                    name_of(node),
                -1,
                -1,
                {}};
    int64_t ours = -1, theirs = -1;  // lowest ranks of both nodes
    for (const wire::GroupMemberRecord& member : reservation.prepare.members) {
        if (member.node == config_.self && ours < 0) ours = member.rank;
        if (member.node == node && theirs < 0) theirs = member.rank;
    }
    const bool we_first = ours < theirs;
    const NodeId& low = we_first ? config_.self : node;
    const NodeId& high = we_first ? node : config_.self;
    return {Errc::link_lost, unreachable_text(name_of(low), name_of(high), reservation.prepare.name),
            std::min(ours, theirs), std::max(ours, theirs), low.hex()};
}

void Rendezvous::answer_prepare(const GroupId& group, Reservation& reservation, Time now) {
    Error error;
    for (const auto& [node, incarnation] : reservation.nodes) {
        const Reach reach = reach_of(node, incarnation);
        if (reach == Reach::here) continue;
        if (reach != Reach::over && now < reservation.link_deadline) return;  // it may connect soon
        error = link_fault(reservation, node, reach);
        break;
    }
    reservation.link_deadline = never;
    reschedule(group, reservation);
    wire::Tag tag{};
    if (reservation.proof && error.code == Errc::ok)
        tag = reservation.proof->tag_of(config_.self, config_.incarnation);
    send(reservation.leader, wire::GroupPrepared{group, std::move(error), tag});
}

void Rendezvous::on_commit(const NodeId& from, const wire::GroupCommit& message, Time now) {
    const GroupId& group = message.group;
    if (const auto at = reservations_.find(group); at != reservations_.end()) {
        const Reservation& reservation = at->second;
        if (from != reservation.leader && !reservation.nodes.contains(from)) return;
        const auto liar = first_unproven(reservation, message.tags);
        if (!liar) return commit(group, message.tags, now);
        // Another member's word ends nothing: the leader's commit, or that of a third node, may be right.
        if (from == reservation.leader) end_unproven(group, *liar, now);
        return;
    }
    const auto known = decisions_.find(group);
    if (known != decisions_.end() && known->second.outcome == Outcome::committed) return;
    if (has_forgotten(group)) return;
    // Aborted here, or unknown: the node that has committed must know [R9].
    const Error error{Errc::peer_lost, "node " + name_of(config_.self) + " had called off the group", -1, -1,
                      config_.self.hex()};
    send(from, wire::GroupRefused{{}, group, error});
}

// [R19] Tags that are too many or too few prove nothing of the node that sent them.
std::optional<NodeId> Rendezvous::first_unproven(const Reservation& reservation,
                                                 const std::vector<wire::Tag>& tags) const {
    if (!reservation.proof) return std::nullopt;  // local: all its members are here
    std::map<NodeId, Incarnation> nodes = reservation.nodes;
    nodes[config_.self] = config_.incarnation;
    if (tags.size() != nodes.size()) return reservation.leader;
    size_t at = 0;
    for (const auto& [node, incarnation] : nodes)
        if (!reservation.proof->holds(tags[at++], node, incarnation)) return node;
    return std::nullopt;
}

// [R20]: the opens wait on, and are listed again after a while. A node that has committed gets to know it.
void Rendezvous::end_unproven(const GroupId& group, const NodeId& node, Time now) {
    const Reservation& reservation = reservations_.at(group);
    const NodeId leader = reservation.leader;
    Error error{Errc::pending, unproven_text(name_of(node)), -1, -1, node.hex()};
    if (leader != node && leader != config_.self)
        error.text += ", as node " + name_of(leader) + ", which formed the group, passed it on";
    std::set<NodeId> others{leader};
    for (const auto& [other, incarnation] : reservation.nodes) others.insert(other);
    for (const NodeId& other : others)
        if (other != config_.self) send(other, wire::GroupRefused{{}, group, error});
    actions_.push_back(Unproven{group, node, leader});
    for (const wire::GroupMemberRecord& member : reservation.prepare.members)
        if (member.node == config_.self) own_.at(member.request).list_at = now + config_.unproven_delay;
    abort_attempt(group, error, now);
}

void Rendezvous::commit(const GroupId& group, const std::vector<wire::Tag>& tags, Time now) {
    const Reservation reservation = take(group);
    Opened opened{reservation.prepare, {}, {}, {}};
    for (const wire::GroupMemberRecord& member : reservation.prepare.members) {
        if (member.node != config_.self) continue;
        const Owned at = own_.find(member.request);
        Own& own = at->second;
        if (own.withdrawn) {
            opened.gone.push_back(Rank{member.rank});
        } else {
            opened.ranks.emplace_back(member.request, Rank{member.rank});
            if (!own.local) opened.proof = own.proof;
        }
        if (leader_of(own) != reservation.leader)
            send(leader_of(own), wire::GroupWithdraw{member.request, own.open.key, true, false}, own.payer);
        if (own.second != reservation.leader) leave_second(own, false);
        forget(at);
    }
    for (const NodeId& node : reservation.asking) send(node, wire::GroupCommit{group, tags});
    std::vector<NodeId> nodes{config_.self};
    for (const auto& [node, incarnation] : reservation.nodes) nodes.push_back(node);
    std::ranges::sort(nodes);
    decided(group, {Outcome::committed, std::move(nodes), tags, reservation.leader, now, true});
    actions_.push_back(std::move(opened));
}

void Rendezvous::abort_attempt(const GroupId& group, const Error& error, Time now) {
    const Reservation reservation = take(group);
    decided(group, {Outcome::aborted, {}, {}, {}, now});
    for (const NodeId& node : reservation.asking) send(node, wire::GroupRefused{{}, group, error});
    for (const wire::GroupMemberRecord& member : reservation.prepare.members) {
        if (member.node != config_.self) continue;
        const Owned at = own_.find(member.request);
        Own& own = at->second;
        own.reserved.reset();
        own.free_since = now;
        reschedule(own);
        if (own.withdrawn) {
            forget(at);
        } else if (own.ending) {
            send(own.listed, wire::GroupWithdraw{member.request, own.open.key, false, false}, own.payer);
            fail_open(member.request, *own.ending);
        } else if (error.code != Errc::pending) {
            if (own.listed != reservation.leader)
                send(own.listed, wire::GroupWithdraw{member.request, own.open.key, false, false}, own.payer);
            fail_open(member.request, error);
        } else {
            own.trouble = error.text;
            if (own.list_at <= now || own.list_at == never) move(own, now);
        }
    }
}

// [R27] LINK_LOST is the end of an attempt whose other members have got it too, so it counts from each node
// that led the open. What else a leader may refuse an open for, the next one judges anew.
bool Rendezvous::decides(const NodeId& node, const Own& own, const Error& error) const {
    if (node == own.listed && (own.local || own.sent_in == leader_changes_)) return true;
    return error.code == Errc::link_lost &&
           (node == own.listed || node == own.second || own.former_leaders.has(node));
}

void Rendezvous::on_open_refused(const NodeId& from, const wire::GroupRefused& refused) {
    const wire::RequestId id = refused.id;
    if (const auto at = own_.find(id); at != own_.end()) {
        const Own& own = at->second;
        if (own.reserved || !decides(from, own, refused.error)) return;
        if (from != own.listed)
            send(own.listed, wire::GroupWithdraw{id, own.open.key, false, false}, own.payer);
        fail_open(id, refused.error);
    } else if (const Listed* listed = relayed_.find(id)) {
        const bool leads = from == listed->leader && listed->sent_in == leader_changes_;
        const bool led = from == listed->leader || listed->former_leaders.has(from);
        if (!leads && !(led && refused.error.code == Errc::link_lost)) return;
        const NodeId via = listed->via;
        const wire::GroupWithdraw withdraw{id, listed->open.key, false, false};
        if (from != leader_ && leader_ != config_.self) send(leader_, withdraw);
        relayed_.erase(id);
        send(via, refused);
    }
}

void Rendezvous::on_refused(const NodeId& from, const wire::GroupRefused& refused, Time now) {
    if (refused.id.number != 0) return on_open_refused(from, refused);  // otherwise of a whole attempt
    const auto at = reservations_.find(refused.group);
    if (at != reservations_.end()) {
        if (is_of(from, refused.group, at->second)) abort_attempt(refused.group, refused.error, now);
        return;
    }
    const NodeId& by = refused.id.origin.is_zero() ? from : refused.id.origin;
    if (has_committed(refused.group)) disown(from, refused.group, by, refused.error);
}

// [R9]: reported once, and passed on to the other members, which may have committed too.
void Rendezvous::disown(const NodeId& from, const GroupId& group, const NodeId& by, const Error& error) {
    Decision& decision = decisions_.at(group);
    const auto concerns = [&](const NodeId& node) {
        return std::ranges::find(decision.nodes, node) != decision.nodes.end();
    };
    if (!concerns(by) || (from != decision.leader && !concerns(from))) return;
    decision.outcome = Outcome::aborted;
    for (const NodeId& node : decision.nodes)
        if (node != config_.self && node != by) send(node, wire::GroupRefused{{by, 0}, group, error});
    const bool member =
        std::find(decision.nodes.begin(), decision.nodes.end(), config_.self) != decision.nodes.end();
    if (member) actions_.push_back(Disowned{group, by, error.text});
}

bool Rendezvous::has_committed(const GroupId& group) const {
    const auto at = decisions_.find(group);
    return at != decisions_.end() && at->second.outcome == Outcome::committed;
}

// A leader need not keep what it decided about its own attempts: the decision is in the control log with each
// node that had prepared. That node gets it before any answer, or treats this one as lost [R32]. And what an
// earlier incarnation decided this one has never known [R35].
bool Rendezvous::has_forgotten(const GroupId& group) const {
    if (!may_make(config_.self, group)) return group.creator == config_.self.prefix();
    return group.counter >= config_.first_group && group.counter < next_group_ && !decisions_.contains(group);
}

void Rendezvous::decided(const GroupId& group, Decision decision) {
    const bool has_group = decision.has_group;
    const auto [at, added] = decisions_.try_emplace(group, std::move(decision));
    if (has_group) {
        if (!added) forget_order(group);  // this node leads it as well
        at->second.has_group = true;
        ++groups_;
    } else if (added) {
        forget_later(group);
    }
}

void Rendezvous::group_ended(const GroupId& group) {
    const auto at = decisions_.find(group);
    if (at == decisions_.end() || !std::exchange(at->second.has_group, false)) return;
    --groups_;
    forget_later(group);
}

// Beyond the limit the leader with the most outcomes loses its oldest one, so none displaces all others'
// [R10].
void Rendezvous::forget_later(const GroupId& group) {
    decision_order_[group.creator].push_back(group);
    if (decisions_.size() - groups_ <= config_.decisions_max) return;
    const auto most =
        std::ranges::max_element(decision_order_, {}, [](const auto& order) { return order.second.size(); });
    const GroupId oldest = most->second.front();
    forget_order(oldest);
    decisions_.erase(oldest);
}

void Rendezvous::forget_order(const GroupId& group) {
    const auto order = decision_order_.find(group.creator);
    std::deque<GroupId>& groups = order->second;
    // The first one, or one of the last.
    if (groups.front() == group)
        groups.pop_front();
    else
        groups.erase(std::prev(std::find(groups.rbegin(), groups.rend(), group).base()));
    if (groups.empty()) decision_order_.erase(order);
}

}  // namespace nexar::rendezvous
