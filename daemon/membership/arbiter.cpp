// See arbiter.hpp. The states of a report:
//   none -> sent          this node suspects a node of the group [F8]
//   sent -> sent          the arbiter did not act in time, or has left the group: the next one [F12]
//   sent -> own inquiry   this node is the arbiter, or `arbiters_max` others did not act [F12]
//   any -> withdrawn      the suspect was received from again [F4], or answered this node's own probe [F9]
//   any -> over           the group excludes the suspect [F11]
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

bool matches(Incarnation a, Incarnation b) {
    return a == b || a == Incarnation{} || b == Incarnation{};
}

}  // namespace

Arbiter::Arbiter(const ArbiterConfig& config, const NodeId& self, Incarnation incarnation)
    : config_(config), self_(self), prober_(config.probe, self, incarnation) {}

bool Arbiter::suspects(const GroupNode& node) const {
    const auto at = suspicions_.find(node.node);
    return is_dead(node) || (at != suspicions_.end() && matches(at->second.incarnation, node.incarnation));
}

bool Arbiter::is_dead(const GroupNode& node) const {
    const auto at = dead_.find(node.node);
    return at != dead_.end() && node.incarnation != Incarnation{} && node.incarnation.counter <= at->second;
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
        add_report(
            id, group, node.node,
            dead ? Suspicion{node.incarnation, "its node was started again", true} : suspicions_[node.node],
            now);
    }
    read_answers(now);
}

void Arbiter::on_group_gone(const GroupId& id) {
    const auto at = groups_.find(id);
    if (at == groups_.end()) return;
    for (const Inquiry& inquiry : at->second.inquiries) prober_.cancel(inquiry.question);
    for (const GroupNode& node : at->second.nodes) {
        const auto of_node = by_node_.find(node.node);
        of_node->second.erase(id);
        if (of_node->second.empty()) by_node_.erase(of_node);
    }
    busy_.erase(id);
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

void Arbiter::on_suspect(const NodeId& node, Incarnation incarnation, const std::string& reason, Time now) {
    Suspicion& suspicion = suspicions_[node];
    if (suspicion.proof && suspicion.incarnation == incarnation) return;
    suspicion = {incarnation, reason, false};
    for_groups_with(node, [&](const GroupId& id, Group& group, const GroupNode& member) {
        if (matches(member.incarnation, incarnation)) add_report(id, group, node, suspicion, now);
    });
}

void Arbiter::on_dead(const NodeId& node, Incarnation incarnation, const std::string& proof, Time now) {
    const Suspicion& suspicion = suspicions_[node] = {incarnation, proof, true};
    uint64_t& dead = dead_[node];
    dead = std::max(dead, incarnation.counter);
    for_groups_with(node, [&](const GroupId& id, Group& group, const GroupNode& member) {
        if (matches(member.incarnation, incarnation) || is_dead(member))
            add_report(id, group, node, suspicion, now);
    });
}

void Arbiter::on_clear(const NodeId& node) {
    const auto at = suspicions_.find(node);
    if (at == suspicions_.end() || at->second.proof) return;
    suspicions_.erase(at);
    for_groups_with(node, [&](const GroupId&, Group& group, const GroupNode&) { retract(group, node); });
}

// Withdraws this node's own reports about `suspect`; the other nodes' reports stay.
void Arbiter::retract(Group& group, const NodeId& suspect) {
    std::erase_if(group.reports,
                  [&](const Report& c) { return c.message.suspect == suspect && !c.message.proof; });
    std::erase_if(group.inquiries, [&](Inquiry& inquiry) {
        if (inquiry.suspect != suspect) return false;
        std::erase(inquiry.reporters, self_);
        if (inquiry.reporters.empty()) prober_.cancel(inquiry.question);
        return inquiry.reporters.empty();
    });
}

void Arbiter::on_log_discarded(const NodeId& node, Incarnation incarnation) {
    for_groups_with(node, [&](const GroupId& id, Group& group, const GroupNode& other) {
        const GroupNode* self = find_node(group.nodes, self_);
        if (self && matches(other.incarnation, incarnation))
            find_link(id, group, *self, other, "discarded the control messages between them");
    });
}

void Arbiter::on_link_lost(const NodeId& node, Incarnation incarnation, const GroupId& id,
                           const std::string& why) {
    const auto at = groups_.find(id);
    if (at == groups_.end()) return;
    const GroupNode* self = find_node(at->second.nodes, self_);
    const GroupNode* other = find_node(at->second.nodes, node);
    if (self && other && matches(other->incarnation, incarnation))
        find_link(id, at->second, *self, *other, why);
}

void Arbiter::on_excluded(const GroupId& id, const NodeId& node) {
    const auto at = groups_.find(id);
    if (at == groups_.end() || !at->second.excluded.insert(node).second) return;
    Group& group = at->second;
    std::erase_if(group.reports, [&](const Report& c) { return c.message.suspect == node; });
    std::erase_if(group.inquiries, [&](const Inquiry& inquiry) {
        if (inquiry.suspect == node) prober_.cancel(inquiry.question);
        return inquiry.suspect == node;
    });
}

void Arbiter::on_departed(const NodeId& from, const GroupId& id, Time now) {
    const auto at = groups_.find(id);
    if (at == groups_.end()) return;
    for (size_t i = 0; i < at->second.reports.size(); ++i) {
        const Report& report = at->second.reports[i];
        if (report.deadline != never && report.asked.back() == from) send_report(id, at->second, i, now);
    }
}

void Arbiter::add_report(const GroupId& id, Group& group, const NodeId& suspect, const Suspicion& why,
                         Time now) {
    if (suspect == self_ || group.excluded.contains(suspect)) return;
    auto same = std::find_if(group.reports.begin(), group.reports.end(),
                             [&](const Report& c) { return c.message.suspect == suspect; });
    if (same != group.reports.end()) {
        if (same->message.proof || !why.proof) return;  // [F14]
        group.reports.erase(same);                      // sent again below, with the proof
    }
    Report report;
    report.message = {id, group.epoch.value, self_, suspect, why.reason, why.proof};
    group.reports.push_back(std::move(report));
    busy_.insert(id);
    send_report(id, group, group.reports.size() - 1, now);
}

void Arbiter::send_report(const GroupId& id, Group& group, size_t index, Time now) {
    Report& report = group.reports[index];
    const wire::SuspicionReport& message = report.message;
    for (const GroupNode& node : group.nodes) {
        if (node.node == self_ || report.asked.size() >= config_.arbiters_max) break;
        if (suspects(node) || node.node == message.suspect) continue;  // [F8]
        if (std::find(report.asked.begin(), report.asked.end(), node.node) != report.asked.end()) continue;
        report.asked.push_back(node.node);
        report.deadline = now + config_.arbiter_timeout;
        sends_.push_back({node.node, message});
        return;
    }
    report.deadline = never;  // the inquiry has its own deadline
    const wire::SuspicionReport own = message;
    inquire(id, group, own, now);
}

bool Arbiter::on_message(const NodeId& from, const wire::Message& message, Time now) {
    if (const auto* report = std::get_if<wire::SuspicionReport>(&message))
        on_report(from, *report, now);
    else if (const auto* request = std::get_if<wire::ProbeRequest>(&message))
        prober_.on_request(from, *request, now);
    else if (const auto* reply = std::get_if<wire::ProbeReply>(&message))
        prober_.on_reply(from, *reply);
    else
        return false;
    read_answers(now);
    return true;
}

void Arbiter::on_report(const NodeId& from, const wire::SuspicionReport& message, Time now) {
    const auto at = groups_.find(message.group);
    if (at == groups_.end()) {
        unknown_.push_back({from, message.group, message.epoch});
        return;
    }
    Group& group = at->second;
    if (message.reporter != from || message.epoch != group.epoch.value) return;
    if (!find_node(group.nodes, from) || !find_node(group.nodes, message.suspect)) return;
    if (message.suspect == from) return;
    inquire(at->first, group, message, now);
}

void Arbiter::inquire(const GroupId& id, Group& group, const wire::SuspicionReport& message, Time now) {
    if (group.excluded.contains(message.suspect)) return;  // the group already ends because of it
    const GroupNode* suspect = find_node(group.nodes, message.suspect);
    NEXAR_CHECK(suspect);
    if (message.proof) return find(id, group, node_lost(*suspect), suspect->node);
    if (message.suspect == self_) {  // the reporter does not receive from this node: a one-way cut
        const GroupNode* reporter = find_node(group.nodes, message.reporter);
        return find_link(id, group, *reporter, *suspect);
    }
    for (Inquiry& inquiry : group.inquiries) {
        if (inquiry.suspect != message.suspect) continue;
        if (std::find(inquiry.reporters.begin(), inquiry.reporters.end(), message.reporter) ==
            inquiry.reporters.end())
            inquiry.reporters.push_back(message.reporter);
        return;
    }
    group.inquiries.push_back({message.suspect, {message.reporter}});
    ask_suspect(group, group.inquiries.back(), now);
    busy_.insert(id);
}

// By all ways but those of the reporters, whose answer would be about their own.
void Arbiter::ask_suspect(const Group& group, Inquiry& inquiry, Time now) {
    const auto& reporters = inquiry.reporters;
    const auto reports = [&](const NodeId& node) {
        return std::ranges::find(reporters, node) != reporters.end();
    };
    std::vector<NodeId> helpers;
    for (const GroupNode& node : group.nodes)
        if (node.node != self_ && node.node != inquiry.suspect && !reports(node.node))
            helpers.push_back(node.node);
    const Incarnation incarnation = find_node(group.nodes, inquiry.suspect)->incarnation;
    inquiry.asks = reports(self_) ? Prober::Asks::itself : Prober::Asks::anyone;
    inquiry.question = prober_.ask(inquiry.suspect, incarnation, std::move(helpers), inquiry.asks, now);
}

void Arbiter::ask_reporter(const Group& group, Inquiry& inquiry, Time now) {
    const Incarnation incarnation = find_node(group.nodes, inquiry.suspect)->incarnation;
    inquiry.asks = Prober::Asks::helper;
    inquiry.question =
        prober_.ask(inquiry.suspect, incarnation, {inquiry.reporters.front()}, inquiry.asks, now);
}

void Arbiter::read_answers(Time now) {
    while (const auto answer = prober_.poll_answer()) {
        for (const GroupId& id : busy_) {
            Group& group = groups_.at(id);
            const auto inquiry =
                std::find_if(group.inquiries.begin(), group.inquiries.end(),
                             [&](const Inquiry& t) { return t.question == answer->question; });
            if (inquiry == group.inquiries.end()) continue;
            conclude(id, group, static_cast<size_t>(inquiry - group.inquiries.begin()), *answer, now);
            break;
        }
    }
}

// That a reporter received nothing for a while says little once the suspect answers others: it may have been
// stopped for as long. So the cut is found only where a round trip fails that begins now: this node's own, or
// that of another reporter, which is also cut off if it does not say. One that may have failed itself is not.
void Arbiter::conclude(const GroupId& id, Group& group, size_t index, const Prober::Answer& answer,
                       Time now) {
    Inquiry inquiry = std::move(group.inquiries[index]);
    group.inquiries.erase(group.inquiries.begin() + static_cast<ptrdiff_t>(index));
    const GroupNode& suspect = *find_node(group.nodes, inquiry.suspect);
    const bool asked_reporter = inquiry.asks == Prober::Asks::helper;
    const bool reached = answer.reached_directly || answer.reached_by_helper;
    if (!reached && !asked_reporter) return find(id, group, node_lost(suspect), suspect.node);

    auto& reporters = inquiry.reporters;
    const NodeId asked = asked_reporter ? reporters.front() : self_;
    const bool reports = std::ranges::find(reporters, asked) != reporters.end();
    const bool fails =
        asked_reporter ? !reached : inquiry.asks == Prober::Asks::itself && !answer.reached_directly;
    if (fails && reports && counts(group, asked))
        return find_link(id, group, *find_node(group.nodes, asked), suspect);
    if (asked_reporter || answer.reached_directly) std::erase(reporters, asked);
    if (answer.reached_directly && reports) retract(group, suspect.node);
    std::erase_if(reporters, [&](const NodeId& node) { return !counts(group, node); });
    if (reporters.empty()) return;
    const bool is_own = std::ranges::find(reporters, self_) != reporters.end();  // since it asked
    is_own ? ask_suspect(group, inquiry, now) : ask_reporter(group, inquiry, now);
    group.inquiries.push_back(std::move(inquiry));
}

// Whether what it reports does: not of a node that the group excludes, or that this one suspects.
bool Arbiter::counts(const Group& group, const NodeId& reporter) const {
    return !group.excluded.contains(reporter) &&
           (reporter == self_ || !suspects(*find_node(group.nodes, reporter)));
}

void Arbiter::find(const GroupId& id, Group& group, Error error, const NodeId& excluded) {
    if (group.excluded.contains(excluded)) return;
    found_.push_back({id, std::move(error), excluded});
    on_excluded(id, excluded);
}

// A lost link excludes the node of the higher lowest rank, whichever node finds it [F9].
void Arbiter::find_link(const GroupId& id, Group& group, const GroupNode& a, const GroupNode& b,
                        const std::string& why) {
    if (group.excluded.contains(a.node) || group.excluded.contains(b.node)) return;
    find(id, group, link_lost(a, b, why), (a.lowest_rank < b.lowest_rank ? b : a).node);
}

void Arbiter::on_time(Time now) {
    prober_.on_time(now);
    read_answers(now);
    for (const GroupId& id : busy_) {
        Group& group = groups_.at(id);
        for (size_t i = 0; i < group.reports.size(); ++i)
            if (now >= group.reports[i].deadline) send_report(id, group, i, now);  // [F12]
    }
    std::erase_if(busy_, [this](const GroupId& id) {
        const Group& group = groups_.at(id);
        return group.reports.empty() && group.inquiries.empty();
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
    for (const GroupId& id : busy_)
        for (const Report& report : groups_.at(id).reports) next = std::min(next, report.deadline);
    return next;
}

void Arbiter::check_invariants() const {
    prober_.check_invariants();
    size_t memberships = 0;
    std::set<uint64_t> questions;
    for (const auto& [id, group] : groups_) {
        NEXAR_CHECK(!group.nodes.empty());
        memberships += group.nodes.size();
        for (const GroupNode& node : group.nodes) NEXAR_CHECK(by_node_.at(node.node).contains(id));
        NEXAR_CHECK((group.reports.empty() && group.inquiries.empty()) || busy_.contains(id));
        std::set<NodeId> reported, inquired;
        for (const Report& report : group.reports) {
            const NodeId& suspect = report.message.suspect;
            NEXAR_CHECK(suspect != self_ && find_node(group.nodes, suspect));
            NEXAR_CHECK(reported.insert(suspect).second);  // [F14]
            NEXAR_CHECK(!group.excluded.contains(suspect));
            NEXAR_CHECK(report.asked.size() <= config_.arbiters_max);
            NEXAR_CHECK(report.deadline == never || !report.asked.empty());
        }
        for (const Inquiry& inquiry : group.inquiries) {
            NEXAR_CHECK(inquiry.suspect != self_ && find_node(group.nodes, inquiry.suspect));
            NEXAR_CHECK(inquired.insert(inquiry.suspect).second);  // [F14]
            NEXAR_CHECK(!group.excluded.contains(inquiry.suspect));
            NEXAR_CHECK(!inquiry.reporters.empty());
            NEXAR_CHECK(questions.insert(inquiry.question).second);
        }
        // A report has an arbiter or an inquiry [F12], unless the group already ends.
        for (const Report& report : group.reports)
            NEXAR_CHECK(report.deadline != never || inquired.contains(report.message.suspect) ||
                        !group.excluded.empty());
    }
    size_t indexed = 0;
    for (const auto& [node, groups] : by_node_) {
        NEXAR_CHECK(!groups.empty());
        indexed += groups.size();
    }
    NEXAR_CHECK(indexed == memberships);
    for (const GroupId& id : busy_) NEXAR_CHECK(groups_.contains(id));
}

}  // namespace nexar::membership
