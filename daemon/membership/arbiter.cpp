// See arbiter.hpp. The life of a complaint:
//   none -> lodged        this node suspects a node of the group, or an op needs an ended process [F8][F10]
//   lodged -> lodged      the arbiter did not answer in time, or knows no such group: the next one [F12]
//   lodged -> own trial   this node is the arbiter, or enough others did not answer [F12]
//   any -> withdrawn      the accused was heard again [F4], or the trial heard it directly [F9]
//   any -> over           a verdict [F11]
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

std::string label(const GroupNode& node) {
    if (node.hostname.empty()) return node.node.short_hex();
    return node.hostname + " (" + node.node.short_hex() + ")";
}

Error node_lost(const GroupNode& node) {
    return {Errc::peer_lost,
            "rank " + std::to_string(node.lowest_rank) + " is lost: its node " + label(node) + " is gone",
            node.lowest_rank, -1, node.node.hex()};
}

Error rank_lost(const GroupNode& node, int64_t rank, const std::string& reason) {
    return {Errc::peer_lost,
            "rank " + std::to_string(rank) + " on node " + label(node) + " is lost: " + reason, rank, -1,
            node.node.hex()};
}

// The smaller rank first: A about B and B about A are the same error [F9].
Error link_lost(const GroupNode& a, const GroupNode& b,
                const std::string& why = "both live, but do not reach each other") {
    const GroupNode& low = a.lowest_rank < b.lowest_rank ? a : b;
    const GroupNode& high = a.lowest_rank < b.lowest_rank ? b : a;
    return {Errc::link_lost,
            "the link between ranks " + std::to_string(low.lowest_rank) + " and " +
                std::to_string(high.lowest_rank) + " is lost: nodes " + label(low) + " and " + label(high) +
                " " + why,
            low.lowest_rank, high.lowest_rank, low.node.hex()};
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
    for (const GroupNode& node : group.nodes)
        if (const auto verdict = take_early(node.node, id); verdict && verdict->epoch == epoch.value)
            return adopt(id, group, *verdict, self_);
    for (const GroupNode& node : group.nodes) {
        if (node.node == self_ || !suspects(node)) continue;
        const bool dead = is_dead(node);
        complain(id, group, node.node, -1,
                 dead ? Suspicion{node.life, "its node was started again", true} : suspicions_[node.node],
                 now);
    }
    read_answers(now);
}

// Only a member may judge, and who is one is known now.
std::optional<wire::Verdict> Arbiter::take_early(const NodeId& from, const GroupId& group) {
    const auto of_node = early_.find(from);
    if (of_node == early_.end()) return std::nullopt;
    auto& verdicts = of_node->second;
    const auto at = std::ranges::find(verdicts, group, &wire::Verdict::group);
    if (at == verdicts.end()) return std::nullopt;
    wire::Verdict verdict = std::move(*at);
    verdicts.erase(at);
    if (verdicts.empty()) early_.erase(of_node);
    return verdict;
}

void Arbiter::on_group_gone(const GroupId& id) {
    const auto at = groups_.find(id);
    if (at == groups_.end()) return;
    for (const Trial& trial : at->second.trials) prober_.cancel(trial.question);
    groups_.erase(at);
}

void Arbiter::on_suspect(const NodeId& node, Incarnation life, const std::string& reason, Time now) {
    Suspicion& suspicion = suspicions_[node];
    if (suspicion.proof && suspicion.life == life) return;
    suspicion = {life, reason, false};
    for (auto& [id, group] : groups_) {
        const GroupNode* member = find_node(group.nodes, node);
        if (member && same_life(member->life, life)) complain(id, group, node, -1, suspicion, now);
    }
}

void Arbiter::on_dead(const NodeId& node, Incarnation life, const std::string& proof, Time now) {
    const Suspicion& suspicion = suspicions_[node] = {life, proof, true};
    uint64_t& dead = dead_[node];
    dead = std::max(dead, life.counter);
    for (auto& [id, group] : groups_) {
        const GroupNode* member = find_node(group.nodes, node);
        if (member && (same_life(member->life, life) || is_dead(*member)))
            complain(id, group, node, -1, suspicion, now);
    }
}

void Arbiter::on_clear(const NodeId& node, Time) {
    const auto at = suspicions_.find(node);
    if (at == suspicions_.end() || at->second.proof) return;
    suspicions_.erase(at);
    for (auto& [id, group] : groups_) dismiss(group, node);
}

// Takes back what this node alone holds against `accused`; what others accuse it of goes on.
void Arbiter::dismiss(Group& group, const NodeId& accused) {
    std::erase_if(group.complaints, [&](const Complaint& c) {
        return c.accusation.accused == accused && c.accusation.rank < 0 && !c.accusation.proof;
    });
    std::erase_if(group.trials, [&](Trial& trial) {
        if (trial.accused != accused) return false;
        std::erase(trial.accusers, self_);
        if (trial.accusers.empty()) prober_.cancel(trial.question);
        return trial.accusers.empty();
    });
}

void Arbiter::on_log_discarded(const NodeId& node, Incarnation life) {
    for (auto& [id, group] : groups_) {
        const GroupNode* other = find_node(group.nodes, node);
        const GroupNode* self = find_node(group.nodes, self_);
        if (group.verdict || !other || !self || !same_life(other->life, life)) continue;
        decide(id, group, link_lost(*self, *other, "discarded the control messages between them"));
    }
}

void Arbiter::on_rank_lost(const GroupId& id, Rank rank, const NodeId& node, const std::string& reason,
                           Time now) {
    const auto at = groups_.find(id);
    if (at == groups_.end() || !find_node(at->second.nodes, node)) return;
    complain(id, at->second, node, rank.value, {{}, reason, true}, now);
}

void Arbiter::complain(const GroupId& id, Group& group, const NodeId& accused, int64_t rank,
                       const Suspicion& why, Time now) {
    if (group.verdict || (accused == self_ && rank < 0)) return;
    auto same = std::find_if(group.complaints.begin(), group.complaints.end(), [&](const Complaint& c) {
        return c.accusation.accused == accused && c.accusation.rank == rank;
    });
    if (same != group.complaints.end()) {
        if (same->accusation.proof || !why.proof) return;  // [F14]
        group.complaints.erase(same);                      // lodged again below, with the proof
    }
    Complaint complaint;
    complaint.accusation = {id, group.epoch.value, self_, accused, why.reason, rank, why.proof};
    group.complaints.push_back(std::move(complaint));
    lodge(id, group, group.complaints.size() - 1, now);
}

void Arbiter::lodge(const GroupId& id, Group& group, size_t index, Time now) {
    Complaint& complaint = group.complaints[index];
    const wire::Accusation& accusation = complaint.accusation;
    for (const GroupNode& node : group.nodes) {
        if (node.node == self_ || complaint.asked.size() >= config_.arbiters_max) break;
        if (suspects(node) || (accusation.rank < 0 && node.node == accusation.accused)) continue;  // [F8]
        if (std::find(complaint.asked.begin(), complaint.asked.end(), node.node) != complaint.asked.end())
            continue;
        complaint.asked.push_back(node.node);
        complaint.deadline = now + config_.verdict_timeout;
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
    else if (const auto* verdict = std::get_if<wire::Verdict>(&message))
        on_verdict(from, *verdict, now);
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
        const Error unknown{Errc::not_found, "this node knows no such group", -1, -1, {}};
        sends_.push_back({from, wire::Verdict{accusation.group, accusation.epoch, self_, unknown}});
        return;
    }
    Group& group = at->second;
    if (accusation.accuser != from || accusation.epoch != group.epoch.value) return;
    if (!find_node(group.nodes, from) || !find_node(group.nodes, accusation.accused)) return;
    if (accusation.rank < 0 && (accusation.accused == from)) return;
    judge(at->first, group, accusation, now);
}

void Arbiter::judge(const GroupId& id, Group& group, const wire::Accusation& accusation, Time now) {
    if (group.verdict) return;  // it is on its way to the accuser
    const GroupNode* accused = find_node(group.nodes, accusation.accused);
    NEXAR_CHECK(accused);
    if (accusation.rank >= 0)
        return decide(id, group, rank_lost(*accused, accusation.rank, accusation.reason));
    if (accusation.proof) return decide(id, group, node_lost(*accused), true);
    if (accusation.accused == self_) {  // they do not hear us, but this arrived: the way back is cut
        const GroupNode* accuser = find_node(group.nodes, accusation.accuser);
        return decide(id, group, link_lost(*accuser, *accused));
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
}

void Arbiter::read_answers(Time now) {
    while (const auto answer = prober_.poll_answer()) {
        for (auto& [id, group] : groups_) {
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
    if (!answer.heard_directly && !answer.heard_by_other) return decide(id, group, node_lost(accused), true);
    // If we hear it ourselves, the cut is between the accused and somebody else who accused it.
    const auto accuser = std::find_if(trial.accusers.begin(), trial.accusers.end(), [&](const NodeId& node) {
        return !answer.heard_directly || node != self_;
    });
    if (accuser == trial.accusers.end()) return dismiss(group, trial.accused);
    decide(id, group, link_lost(*find_node(group.nodes, *accuser), accused));
}

void Arbiter::decide(const GroupId& id, Group& group, Error error, bool whole_node) {
    adopt(id, group, wire::Verdict{id, group.epoch.value, self_, std::move(error), whole_node}, self_);
}

void Arbiter::on_verdict(const NodeId& from, const wire::Verdict& verdict, Time now) {
    const auto at = groups_.find(verdict.group);
    const bool final_word = verdict.error.code != Errc::not_found;
    if (at == groups_.end()) {
        if (!final_word) return;
        auto& verdicts = early_[from];
        if (std::ranges::find(verdicts, verdict.group, &wire::Verdict::group) != verdicts.end()) return;
        verdicts.push_back(verdict);
        if (verdicts.size() > config_.early_verdicts_max) verdicts.pop_front();
        return;
    }
    Group& group = at->second;
    if (group.verdict || verdict.epoch != group.epoch.value || !find_node(group.nodes, from)) return;
    if (final_word) return adopt(at->first, group, verdict, from);
    for (size_t i = 0; i < group.complaints.size() && !group.verdict; ++i) {
        const Complaint& complaint = group.complaints[i];
        if (complaint.deadline != never && complaint.asked.back() == from) lodge(at->first, group, i, now);
    }
}

void Arbiter::adopt(const GroupId& id, Group& group, const wire::Verdict& verdict, const NodeId& from) {
    group.verdict = verdict;
    group.complaints.clear();
    for (const Trial& trial : group.trials) prober_.cancel(trial.question);
    group.trials.clear();
    decided_.push_back({id, verdict.error, verdict.whole_node});
    for (const GroupNode& node : group.nodes)
        if (node.node != self_ && node.node != from) sends_.push_back({node.node, verdict});
}

void Arbiter::on_time(Time now) {
    prober_.on_time(now);
    read_answers(now);
    for (auto& [id, group] : groups_)
        for (size_t i = 0; i < group.complaints.size(); ++i)
            if (now >= group.complaints[i].deadline) lodge(id, group, i, now);  // [F12]
}

std::optional<Outgoing> Arbiter::poll_send() {
    if (auto out = prober_.poll_send()) return out;
    if (sends_.empty()) return std::nullopt;
    Outgoing out = std::move(sends_.front());
    sends_.pop_front();
    return out;
}

std::optional<Arbiter::Decided> Arbiter::poll_decided() {
    if (decided_.empty()) return std::nullopt;
    Decided out = std::move(decided_.front());
    decided_.pop_front();
    return out;
}

Time Arbiter::wake_at() const {
    Time next = prober_.wake_at();
    for (const auto& [id, group] : groups_)
        for (const Complaint& complaint : group.complaints) next = std::min(next, complaint.deadline);
    return next;
}

const Error* Arbiter::verdict_of(const GroupId& id) const {
    const auto at = groups_.find(id);
    return at == groups_.end() || !at->second.verdict ? nullptr : &at->second.verdict->error;
}

}  // namespace nexar::membership
