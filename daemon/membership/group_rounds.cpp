// GroupLifecycle, the coordinating role: the rounds of a ballot of this node's own, from the reports to the
// accepted cut.
#include <algorithm>

#include "membership/group_lifecycle.hpp"

namespace nexar::membership {

using wire::Cut;

// A round needs an answer of this node.
bool GroupLifecycle::is_awaited(uint32_t node) const {
    return !excluded_.contains(node) && !departed_.contains(node);
}

void GroupLifecycle::begin_round(Time now) {
    promise({promised_.round + 1, config_.self});
    has_coordinated_ = true;
    round_ = Round{promised_, excluded_.size(), {}, {}};
    round_->answers[config_.self].report = report();
    const wire::GroupFreeze freeze{config_.group, config_.epoch.value, promised_, failed()};
    for (uint32_t node = 0; node < config_.nodes; ++node)
        if (node != config_.self && is_awaited(node)) send(node, freeze);
    propose_if_reported(now);
}

Result<void> GroupLifecycle::on(uint32_t from, const wire::GroupReport& message, Time now) {
    NEXAR_TRY_VOID(check(from, nullptr, &message.failed));
    if (message.accepted) {
        NEXAR_TRY_VOID(check(from, nullptr, &message.accepted->cut.failed));
        NEXAR_TRY_VOID(check_seen(message.accepted->ballot));
    }
    if (!round_ || message.ballot != round_->ballot || excludes(from)) return {};
    if (merge(message.failed)) {
        begin_round(now);
        return {};
    }
    round_->answers[from].report = message;
    propose_if_reported(now);
    return {};
}

void GroupLifecycle::propose_if_reported(Time now) {
    if (round_->cut) return;
    for (uint32_t node = 0; node < config_.nodes; ++node)
        if ((is_awaited(node) || node == config_.self) && !round_->answers.contains(node)) return;
    const Cut cut = choose_cut();
    round_->cut = cut;
    const wire::GroupCut proposal{config_.group, config_.epoch.value, promised_, cut};
    for (const auto& [node, answer] : round_->answers)
        if (node != config_.self && is_awaited(node)) send(node, proposal);
    proposed_ = Proposed{promised_, cut, now + config_.finish_limit, host_.progress()};
    host_.run_below(cut.seq);
    try_accept(now);
}

// [G1] [G3]
Cut GroupLifecycle::choose_cut() const {
    const wire::AcceptedCut* highest = nullptr;
    bool all_accepted = true;
    uint64_t handed_over = stuck_at_, ended = UINT64_MAX;
    for (const auto& [node, answer] : round_->answers) {
        const wire::GroupReport& report = answer.report;
        handed_over = std::min(handed_over, report.handed_over);
        ended = std::min(ended, report.ended_below);
        if (!report.accepted)
            all_accepted = false;
        else if (highest == nullptr || report.accepted->ballot > highest->ballot)
            highest = &*report.accepted;
    }
    // A decided cut was accepted by every node that now reports.
    if (all_accepted && highest->cut.seq <= stuck_at_)
        return {highest->cut.seq, {highest->cut.failed.error, failed().excluded}};
    if (sabotage_.cut_at_own_count) return {host_.handed_over(), failed()};
    // Where all ranks have left, none is in flight: the count of one that has left is the cut.
    const uint64_t over = std::min(ended, stuck_at_);
    const bool by_count = excluded_.empty() || over == UINT64_MAX;
    return {by_count ? handed_over : over, failed()};
}

Result<void> GroupLifecycle::on(uint32_t from, const wire::GroupAccepted& message, Time now) {
    if (!round_ || message.ballot != round_->ballot || !round_->cut) return {};
    const auto at = round_->answers.find(from);
    if (at == round_->answers.end()) return {};
    if (message.stuck_at < round_->cut->seq) {
        stuck_at_ = std::min(stuck_at_, message.stuck_at);
        begin_round(now);
        return {};
    }
    at->second.accepted = true;
    decide_if_accepted();
    return {};
}

void GroupLifecycle::decide_if_accepted() {
    for (const auto& [node, answer] : round_->answers)
        if (!answer.accepted && is_awaited(node)) return;
    if (const Answer& own = round_->answers.at(config_.self); !own.accepted) return;
    end(Cut(*round_->cut));
}

}  // namespace nexar::membership
