// See arbiter.hpp. The life of a complaint:
//   none -> lodged        this node suspects a node of the group [F8]
//   lodged -> lodged      the arbiter did not act in time, or has left the group: the next one [F12]
//   lodged -> own trial   this node is the arbiter, or enough others did not act [F12]
//   any -> withdrawn      the accused was heard again [F4], or the trial heard it directly [F9]
//   any -> over           the group knows of the failure [F11]
#include "membership/arbiter.hpp"

#include <algorithm>

#include "core/check.hpp"

namespace nexar::membership {
namespace {

const GroupNode* find_node(const std::vector<GroupNode>& nodes, const NodeId& id) {
    const auto at =
        std::find_if(nodes.begin(), nodes.end(), [&](const GroupNode& n) { return n.node == id; });
    return at == nodes.end() ? nullptr : &*at;
}

bool same_life(Incarnation a, Incarnation b) {
    return a == b || a == Incarnation{} || b == Incarnation{};
}

}  // namespace

Arbiter::Arbiter(const ArbiterConfig& config, const NodeId& self, Incarnation life)
    : config_(config), self_(self), prober_(config.probe, self, life) {}

bool Arbiter::suspects(const GroupNode& node) const {
    const auto at = suspicions_.find(node.node);
    return is_dead(node) || (at != suspicions_.end() && same_life(at->second.life, node.life));
}

bool Arbiter::is_dead(const GroupNode& node) const {
    const auto at = dead_.find(node.node);
    return at != dead_.end() && node.life != Incarnation{} && node.life.counter <= at->second;
}

void Arbiter::on_group(const GroupId& id, GroupEpoch epoch, std::vector<GroupNode> nodes, Time now) {
    Group& group = groups_[id];
    if (!group.nodes.empty()) return;  // known already
    std::sort(nodes.begin(), nodes.end(),
              [](const GroupNode& a, const GroupNode& b) { return a.lowest_rank < b.lowest_rank; });
    group.epoch = epoch;
    group.nodes = std::move(nodes);
    for (const GroupNode& node : group.nodes) by_node_[node.node].insert(id);
    for (const GroupNode& node : group.nodes) {
        if (node.node == self_ || !suspects(node)) continue;
        const bool dead = is_dead(node);
        complain(id, group, node.node,
                 dead ? Suspicion{node.life, "its node was started again", true} : suspicions_[node.node],
                 now);
    }
    read_answers(now);
}

void Arbiter::on_group_gone(const GroupId& id) {
    const auto at = groups_.find(id);
    if (at == groups_.end()) return;
    for (const Trial& trial : at->second.trials) prober_.cancel(trial.question);
    for (const GroupNode& node : at->second.nodes) {
        const auto of_node = by_node_.find(node.node);
        of_node->second.erase(id);
        if (of_node->second.empty()) by_node_.erase(of_node);
    }
    troubled_.erase(id);
    groups_.erase(at);
}

template <class F>
void Arbiter::for_groups_with(const NodeId& node, F f) {
    const auto at = by_node_.find(node);
    if (at == by_node_.end()) return;
    for (const GroupId& id : at->second) {
        Group& group = groups_.at(id);
        f(id, group, *find_node(group.nodes, node));
    }
}

void Arbiter::on_suspect(const NodeId& node, Incarnation life, const std::string& reason, Time now) {
    Suspicion& suspicion = suspicions_[node];
    if (suspicion.proof && suspicion.life == life) return;
    suspicion = {life, reason, false};
    for_groups_with(node, [&](const GroupId& id, Group& group, const GroupNode& member) {
        if (same_life(member.life, life)) complain(id, group, node, suspicion, now);
    });
}

void Arbiter::on_dead(const NodeId& node, Incarnation life, const std::string& proof, Time now) {
    const Suspicion& suspicion = suspicions_[node] = {life, proof, true};
    uint64_t& dead = dead_[node];
    dead = std::max(dead, life.counter);
    for_groups_with(node, [&](const GroupId& id, Group& group, const GroupNode& member) {
        if (same_life(member.life, life) || is_dead(member)) complain(id, group, node, suspicion, now);
    });
}

void Arbiter::on_clear(const NodeId& node, Time) {
    const auto at = suspicions_.find(node);
    if (at == suspicions_.end() || at->second.proof) return;
    suspicions_.erase(at);
    for_groups_with(node, [&](const GroupId&, Group& group, const GroupNode&) { dismiss(group, node); });
}

// Takes back what this node alone holds against `accused`; what others accuse it of goes on.
void Arbiter::dismiss(Group& group, const NodeId& accused) {
    std::erase_if(group.complaints,
                  [&](const Complaint& c) { return c.accusation.accused == accused && !c.accusation.proof; });
    std::erase_if(group.trials, [&](Trial& trial) {
        if (trial.accused != accused) return false;
        std::erase(trial.accusers, self_);
        if (trial.accusers.empty()) prober_.cancel(trial.question);
        return trial.accusers.empty();
    });
}

void Arbiter::on_log_discarded(const NodeId& node, Incarnation life) {
    for_groups_with(node, [&](const GroupId& id, Group& group, const GroupNode& other) {
        const GroupNode* self = find_node(group.nodes, self_);
        if (self && same_life(other.life, life))
            find_link(id, group, *self, other, "discarded the control messages between them");
    });
}

void Arbiter::on_excluded(const GroupId& id, const NodeId& node) {
    const auto at = groups_.find(id);
    if (at == groups_.end() || !at->second.excluded.insert(node).second) return;
    Group& group = at->second;
    std::erase_if(group.complaints, [&](const Complaint& c) { return c.accusation.accused == node; });
    std::erase_if(group.trials, [&](const Trial& trial) {
        if (trial.accused == node) prober_.cancel(trial.question);
        return trial.accused == node;
    });
}

void Arbiter::on_departed(const NodeId& from, const GroupId& id, Time now) {
    const auto at = groups_.find(id);
    if (at == groups_.end()) return;
    for (size_t i = 0; i < at->second.complaints.size(); ++i) {
        const Complaint& complaint = at->second.complaints[i];
        if (complaint.deadline != never && complaint.asked.back() == from) lodge(id, at->second, i, now);
    }
}

void Arbiter::complain(const GroupId& id, Group& group, const NodeId& accused, const Suspicion& why,
                       Time now) {
    if (accused == self_ || group.excluded.contains(accused)) return;
    auto same = std::find_if(group.complaints.begin(), group.complaints.end(),
                             [&](const Complaint& c) { return c.accusation.accused == accused; });
    if (same != group.complaints.end()) {
        if (same->accusation.proof || !why.proof) return;  // [F14]
        group.complaints.erase(same);                      // lodged again below, with the proof
    }
    Complaint complaint;
    complaint.accusation = {id, group.epoch.value, self_, accused, why.reason, why.proof};
    group.complaints.push_back(std::move(complaint));
    troubled_.insert(id);
    lodge(id, group, group.complaints.size() - 1, now);
}

void Arbiter::lodge(const GroupId& id, Group& group, size_t index, Time now) {
    Complaint& complaint = group.complaints[index];
    const wire::Accusation& accusation = complaint.accusation;
    for (const GroupNode& node : group.nodes) {
        if (node.node == self_ || complaint.asked.size() >= config_.arbiters_max) break;
        if (suspects(node) || node.node == accusation.accused) continue;  // [F8]
        if (std::find(complaint.asked.begin(), complaint.asked.end(), node.node) != complaint.asked.end())
            continue;
        complaint.asked.push_back(node.node);
        complaint.deadline = now + config_.arbiter_timeout;
        sends_.push_back({node.node, accusation});
        return;
    }
    complaint.deadline = never;  // our own trial has a deadline of its own
    const wire::Accusation own = accusation;
    judge(id, group, own, now);
}

bool Arbiter::on_message(const NodeId& from, const wire::Message& message, Time now) {
    if (const auto* accusation = std::get_if<wire::Accusation>(&message))
        on_accusation(from, *accusation, now);
    else if (const auto* request = std::get_if<wire::ProbeRequest>(&message))
        prober_.on_request(from, *request, now);
    else if (const auto* reply = std::get_if<wire::ProbeReply>(&message))
        prober_.on_reply(from, *reply, now);
    else
        return false;
    read_answers(now);
    return true;
}

void Arbiter::on_accusation(const NodeId& from, const wire::Accusation& accusation, Time now) {
    const auto at = groups_.find(accusation.group);
    if (at == groups_.end()) {
        unknown_.push_back({from, accusation.group, accusation.epoch});
        return;
    }
    Group& group = at->second;
    if (accusation.accuser != from || accusation.epoch != group.epoch.value) return;
    if (!find_node(group.nodes, from) || !find_node(group.nodes, accusation.accused)) return;
    if (accusation.accused == from) return;
    judge(at->first, group, accusation, now);
}

void Arbiter::judge(const GroupId& id, Group& group, const wire::Accusation& accusation, Time now) {
    if (group.excluded.contains(accusation.accused)) return;  // the group is being frozen for it
    const GroupNode* accused = find_node(group.nodes, accusation.accused);
    NEXAR_CHECK(accused);
    if (accusation.proof) return find(id, group, node_lost(*accused), accused->node);
    if (accusation.accused == self_) {  // they do not hear us, but this arrived: the way back is cut
        const GroupNode* accuser = find_node(group.nodes, accusation.accuser);
        return find_link(id, group, *accuser, *accused);
    }
    for (Trial& trial : group.trials) {
        if (trial.accused != accusation.accused) continue;
        if (std::find(trial.accusers.begin(), trial.accusers.end(), accusation.accuser) ==
            trial.accusers.end())
            trial.accusers.push_back(accusation.accuser);
        return;
    }
    std::vector<NodeId> helpers;
    for (const GroupNode& node : group.nodes)
        if (node.node != self_ && node.node != accusation.accused && node.node != accusation.accuser)
            helpers.push_back(node.node);
    const bool own = accusation.accuser == self_;
    const uint64_t question = prober_.ask(accusation.accused, accused->life, std::move(helpers), own, now);
    group.trials.push_back({accusation.accused, {accusation.accuser}, question});
    troubled_.insert(id);
}

void Arbiter::read_answers(Time now) {
    while (const auto answer = prober_.poll_answer()) {
        for (const GroupId& id : troubled_) {
            Group& group = groups_.at(id);
            const auto trial = std::find_if(group.trials.begin(), group.trials.end(),
                                            [&](const Trial& t) { return t.question == answer->question; });
            if (trial == group.trials.end()) continue;
            conclude(id, group, static_cast<size_t>(trial - group.trials.begin()), *answer, now);
            break;
        }
    }
}

void Arbiter::conclude(const GroupId& id, Group& group, size_t index, const Prober::Answer& answer, Time) {
    const Trial trial = group.trials[index];
    group.trials.erase(group.trials.begin() + static_cast<ptrdiff_t>(index));
    const GroupNode& accused = *find_node(group.nodes, trial.accused);
    if (!answer.heard_directly && !answer.heard_by_other)
        return find(id, group, node_lost(accused), accused.node);
    // If we hear it ourselves, the cut is between the accused and somebody else who accused it.
    const auto accuser = std::find_if(trial.accusers.begin(), trial.accusers.end(), [&](const NodeId& node) {
        return !answer.heard_directly || node != self_;
    });
    if (accuser == trial.accusers.end()) return dismiss(group, trial.accused);
    find_link(id, group, *find_node(group.nodes, *accuser), accused);
}

void Arbiter::find(const GroupId& id, Group& group, Error error, const NodeId& excluded) {
    if (group.excluded.contains(excluded)) return;
    found_.push_back({id, std::move(error), excluded});
    on_excluded(id, excluded);
}

// Of a lost link, the node of the higher lowest rank goes, whichever node finds it [F9].
void Arbiter::find_link(const GroupId& id, Group& group, const GroupNode& a, const GroupNode& b,
                        const std::string& why) {
    if (group.excluded.contains(a.node) || group.excluded.contains(b.node)) return;
    find(id, group, link_lost(a, b, why), (a.lowest_rank < b.lowest_rank ? b : a).node);
}

void Arbiter::on_time(Time now) {
    prober_.on_time(now);
    read_answers(now);
    for (const GroupId& id : troubled_) {
        Group& group = groups_.at(id);
        for (size_t i = 0; i < group.complaints.size(); ++i)
            if (now >= group.complaints[i].deadline) lodge(id, group, i, now);  // [F12]
    }
    std::erase_if(troubled_, [this](const GroupId& id) {
        const Group& group = groups_.at(id);
        return group.complaints.empty() && group.trials.empty();
    });
}

std::optional<Outgoing> Arbiter::poll_send() {
    if (auto out = prober_.poll_send()) return out;
    if (sends_.empty()) return std::nullopt;
    Outgoing out = std::move(sends_.front());
    sends_.pop_front();
    return out;
}

std::optional<Arbiter::Found> Arbiter::poll_found() {
    if (found_.empty()) return std::nullopt;
    Found out = std::move(found_.front());
    found_.pop_front();
    return out;
}

std::optional<Arbiter::Unknown> Arbiter::poll_unknown() {
    if (unknown_.empty()) return std::nullopt;
    const Unknown out = unknown_.front();
    unknown_.pop_front();
    return out;
}

Time Arbiter::wake_at() const {
    Time next = prober_.wake_at();
    for (const GroupId& id : troubled_)
        for (const Complaint& complaint : groups_.at(id).complaints)
            next = std::min(next, complaint.deadline);
    return next;
}

void Arbiter::check_invariants() const {
    prober_.check_invariants();
    size_t nodes = 0;
    for (const auto& [id, group] : groups_) {
        nodes += group.nodes.size();
        for (const GroupNode& node : group.nodes) NEXAR_CHECK(by_node_.at(node.node).contains(id));
        NEXAR_CHECK((group.complaints.empty() && group.trials.empty()) || troubled_.contains(id));
        for (const Complaint& complaint : group.complaints) {
            NEXAR_CHECK(complaint.accusation.accuser == self_ &&
                        !group.excluded.contains(complaint.accusation.accused));
            NEXAR_CHECK(find_node(group.nodes, complaint.accusation.accused) != nullptr);
        }
        for (const Trial& trial : group.trials) {  // [F14]
            NEXAR_CHECK(!trial.accusers.empty() && !group.excluded.contains(trial.accused));
            NEXAR_CHECK(std::ranges::count(group.trials, trial.accused, &Trial::accused) == 1);
        }
    }
    for (const auto& [node, ids] : by_node_) nodes -= ids.size();
    NEXAR_CHECK(nodes == 0);
    for (const GroupId& id : troubled_) NEXAR_CHECK(groups_.contains(id));
}

}  // namespace nexar::membership
