#include "membership/group_lifecycle.hpp"

#include <algorithm>
#include <bit>
#include <string>

#include "core/check.hpp"

namespace nexar::membership {

using wire::Ballot;
using wire::Cut;
using wire::FailedSet;

namespace {
constexpr uint64_t rounds_max = uint64_t{1} << 62;  // more than any honest node reaches
}

GroupLifecycle::GroupLifecycle(LifecycleHost& host, Facts facts, LifecycleSabotage sabotage)
    : host_(host), facts_(facts), sabotage_(sabotage) {
    NEXAR_CHECK(facts_.self < facts_.nodes);
}

Result<void> GroupLifecycle::on_message(uint32_t from, const wire::Message& message, Time now) {
    NEXAR_CHECK(from < facts_.nodes && from != facts_.self);
    return std::visit(
        [&]<class M>(const M& m) -> Result<void> {
            if constexpr (requires { on(from, m, now); })
                return on(from, m, now);
            else
                return {};
        },
        message);
}

// ---- Failures ----

void GroupLifecycle::fail(const Failure& failure, Time now) {
    if (state_ == State::ended) return;
    FailedSet failed{failure.error, {}};
    if (failure.excluded) failed.excluded.push_back(*failure.excluded);
    learn(failed);
    freeze(now);
    pursue(now);
}

void GroupLifecycle::on_reach_changed(Time now) {
    pursue(now);
}

Result<void> GroupLifecycle::on(uint32_t from, const wire::GroupFailed& message, Time now) {
    NEXAR_TRY_VOID(check(from, nullptr, &message.failed));
    NEXAR_TRY_VOID(check_seen(message.seen));
    if (state_ == State::ended) {
        send(from, wire::GroupEnd{facts_.group, facts_.epoch.value, *decided_});
        return {};
    }
    learn(message.failed);
    freeze(now);
    if (message.seen > promised_) promise(message.seen);
    pursue(now);
    return {};
}

// True: it was not known that a failure excludes one of these nodes.
bool GroupLifecycle::learn(const FailedSet& failed) {
    if (error_.code == Errc::ok) error_ = failed.error;
    const size_t before = excluded_.size();
    excluded_.insert(failed.excluded.begin(), failed.excluded.end());
    return excluded_.size() > before;
}

FailedSet GroupLifecycle::failed() const {
    return {error_, {excluded_.begin(), excluded_.end()}};
}

void GroupLifecycle::freeze(Time now) {
    if (state_ != State::active) return;
    state_ = State::frozen;
    agrees_by_ = now + facts_.agreement_limit;
    host_.freeze();
}

// [G5]
std::optional<uint32_t> GroupLifecycle::coordinator() const {
    for (uint32_t node = 0; node < facts_.nodes; ++node) {
        const bool self = node == facts_.self;
        if (awaited(node) && (self || !host_.suspects(node))) return node;
    }
    return {};
}

// Sees to it that somebody coordinates: the one whose ballot this node has promised, while it is not
// excluded; otherwise whose turn it is.
void GroupLifecycle::pursue(Time now) {
    if (state_ != State::frozen) return;
    if (other_side_ && excludes(facts_.self)) return end(Cut(*other_side_));  // [G7]
    std::optional<uint32_t> leader;
    const uint32_t current(promised_.coordinator);
    const bool self_leads = round_.has_value();
    if (promised_.round > 0 && (current != facts_.self || self_leads) && awaited(current))
        leader = current;
    else
        leader = coordinator();
    bool alone = true;
    for (uint32_t node = 0; node < facts_.nodes; ++node) alone = alone && !awaited(node);
    if (leader == facts_.self || (!leader && alone)) {
        if (!self_leads || round_->excluded != excluded_.size()) begin_round(now);
        return;
    }
    if (self_leads) {  // it has learned that it is excluded
        round_.reset();
        proposed_.reset();
    }
    if (informed_ == leader && informed_of_ == excluded_.size()) return;
    informed_ = leader;
    informed_of_ = excluded_.size();
    // Excluded, and it reaches none that is not: one that it takes for excluded may know the end.
    if (!leader) agrees_by_ = std::min(agrees_by_, now + facts_.finish_limit);
    for (uint32_t node = 0; node < facts_.nodes; ++node)
        if (node != facts_.self && (!leader || *leader == node))
            send(node, wire::GroupFailed{facts_.group, facts_.epoch.value, promised_, failed()});
}

// ---- What a node answers ----

void GroupLifecycle::promise(const Ballot& ballot) {
    promised_ = ballot;
    proposed_.reset();
    round_.reset();
}

wire::GroupReport GroupLifecycle::report() const {
    wire::GroupReport out;
    out.group = facts_.group;
    out.epoch = facts_.epoch.value;
    out.ballot = promised_;
    out.failed = failed();
    out.handed_over = std::min(host_.handed_over(), stuck_at_);
    out.ended_below = host_.ended_below();
    if (accepted_ && !sabotage_.forget_accepted) out.accepted = accepted_;
    return out;
}

Result<void> GroupLifecycle::on(uint32_t from, const wire::GroupFreeze& message, Time now) {
    NEXAR_TRY_VOID(check(from, &message.ballot, &message.failed));
    if (state_ == State::ended) {
        send(from, wire::GroupEnd{facts_.group, facts_.epoch.value, *decided_});
        return {};
    }
    if (excludes(from)) return {};  // [G7]
    learn(message.failed);
    freeze(now);
    if (message.ballot > promised_) {
        promise(message.ballot);
        informed_ = from;
        informed_of_ = excluded_.size();
        send(from, report());
    }
    pursue(now);
    return {};
}

Result<void> GroupLifecycle::on(uint32_t from, const wire::GroupCut& message, Time now) {
    NEXAR_TRY_VOID(check(from, &message.ballot, &message.cut.failed));
    if (state_ == State::ended) {
        send(from, wire::GroupEnd{facts_.group, facts_.epoch.value, *decided_});
        return {};
    }
    const bool current = message.ballot == promised_ && !excludes(from);
    if (!current && !sabotage_.accept_any_ballot) return {};
    proposed_ = Proposed{message.ballot, message.cut, now + facts_.finish_limit, host_.progress()};
    host_.run_below(message.cut.seq);
    try_accept(now);
    return {};
}

void GroupLifecycle::on_progress(Time now) {
    try_accept(now);
}

void GroupLifecycle::on_time(Time now) {
    try_accept(now);
    if (state_ != State::frozen || now < agrees_by_) return;
    agrees_by_ = never;
    for (uint32_t node = 0; node < facts_.nodes; ++node)
        if (node != facts_.self) excluded_.insert(node);
    pursue(now);
}

Time GroupLifecycle::wake_at() const {
    if (state_ != State::frozen) return never;
    return proposed_ ? std::min(agrees_by_, proposed_->gives_up) : agrees_by_;
}

// [G2]
void GroupLifecycle::try_accept(Time now) {
    if (!proposed_) return;
    const uint64_t ended = host_.ended_below();
    wire::GroupAccepted answer{facts_.group, facts_.epoch.value, proposed_->ballot, UINT64_MAX};
    if (ended >= proposed_->cut.seq || sabotage_.accept_before_ended) {
        accepted_ = wire::AcceptedCut{proposed_->ballot, proposed_->cut};
    } else if (now >= proposed_->gives_up && host_.progress() != proposed_->progress &&
               now + 2 * facts_.finish_limit <= agrees_by_) {  // and time is left for a round without it
        proposed_->progress = host_.progress();
        proposed_->gives_up = now + facts_.finish_limit;
        return;
    } else if (now >= proposed_->gives_up) {
        stuck_at_ = std::min(stuck_at_, ended);
        answer.stuck_at = ended;
    } else {
        return;
    }
    const uint32_t coordinator = proposed_->ballot.coordinator;
    proposed_.reset();
    if (coordinator != facts_.self) return send(coordinator, answer);
    const Result<void> own = on(facts_.self, answer, now);
    NEXAR_CHECK(own);
}

// ---- What the coordinator does ----

// Whose answer a round needs.
bool GroupLifecycle::awaited(uint32_t node) const {
    return !excluded_.contains(node) && !departed_.contains(node);
}

void GroupLifecycle::begin_round(Time now) {
    promise({promised_.round + 1, facts_.self});
    has_led_ = true;
    round_ = Round{promised_, excluded_.size(), {}, {}};
    round_->answers[facts_.self].report = report();
    const wire::GroupFreeze freeze{facts_.group, facts_.epoch.value, promised_, failed()};
    for (uint32_t node = 0; node < facts_.nodes; ++node)
        if (node != facts_.self && awaited(node)) send(node, freeze);
    consider_reports(now);
}

Result<void> GroupLifecycle::on(uint32_t from, const wire::GroupReport& message, Time now) {
    NEXAR_TRY_VOID(check(from, nullptr, &message.failed));
    if (message.accepted) {
        NEXAR_TRY_VOID(check(from, nullptr, &message.accepted->cut.failed));
        NEXAR_TRY_VOID(check_seen(message.accepted->ballot));
    }
    if (!round_ || message.ballot != round_->ballot || excludes(from)) return {};
    if (learn(message.failed)) {
        begin_round(now);
        return {};
    }
    round_->answers[from].report = message;
    consider_reports(now);
    return {};
}

void GroupLifecycle::consider_reports(Time now) {
    if (round_->cut) return;
    for (uint32_t node = 0; node < facts_.nodes; ++node)
        if ((awaited(node) || node == facts_.self) && !round_->answers.contains(node)) return;
    const Cut cut = choose();
    round_->cut = cut;
    const wire::GroupCut proposal{facts_.group, facts_.epoch.value, promised_, cut};
    for (const auto& [node, answer] : round_->answers)
        if (node != facts_.self && awaited(node)) send(node, proposal);
    proposed_ = Proposed{promised_, cut, now + facts_.finish_limit, host_.progress()};
    host_.run_below(cut.seq);
    try_accept(now);
}

// [G1] [G3]
Cut GroupLifecycle::choose() const {
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
    // One that had been decided would have been reached by all of them.
    if (all_accepted && highest->cut.seq <= stuck_at_)
        return {highest->cut.seq, {highest->cut.failed.error, failed().excluded}};
    if (sabotage_.cut_at_own_count) return {host_.handed_over(), failed()};
    // Where all ranks have left, nothing is under way: the count of one that left says where.
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
    consider_accepted();
    return {};
}

void GroupLifecycle::consider_accepted() {
    for (const auto& [node, answer] : round_->answers)
        if (!answer.accepted && awaited(node)) return;
    if (const Answer& own = round_->answers.at(facts_.self); !own.accepted) return;
    end(Cut(*round_->cut));
}

// ---- The end ----

Result<void> GroupLifecycle::on(uint32_t from, const wire::GroupEnd& message, Time now) {
    NEXAR_TRY_VOID(check(from, nullptr, &message.cut.failed));
    if (state_ == State::ended) return {};
    if (excludes(from)) {
        other_side_ = message.cut;
    } else {
        learn(message.cut.failed);
        freeze(now);
        end(message.cut);
    }
    pursue(now);
    return {};
}

void GroupLifecycle::end(const Cut& cut) {
    NEXAR_CHECK(state_ == State::frozen);
    state_ = State::ended;
    decided_ = cut;
    // To those that may wait for a ballot of this node, to the excluded ones, and on to nodes at distances of
    // powers of two, in case its sender reached only some [G7].
    for (uint32_t node = 0; node < facts_.nodes; ++node) {
        if (node == facts_.self) continue;
        const uint32_t distance = (node + facts_.nodes - facts_.self) % facts_.nodes;
        if (has_led_ || excluded_.contains(node) || std::has_single_bit(distance))
            send(node, wire::GroupEnd{facts_.group, facts_.epoch.value, cut});
    }
    proposed_.reset();
    round_.reset();
    host_.cut(cut);
}

Result<void> GroupLifecycle::on(uint32_t from, const wire::GroupDeparted&, Time now) {
    if (state_ == State::ended || !departed_.insert(from).second) return {};
    pursue(now);
    if (!round_) return {};
    if (!round_->cut)
        consider_reports(now);
    else
        consider_accepted();
    return {};
}

// ---- The rest ----

Result<void> GroupLifecycle::check(uint32_t from, const Ballot* ballot, const FailedSet* failed) const {
    if (ballot != nullptr &&
        (ballot->coordinator != from || ballot->round == 0 || ballot->round > rounds_max))
        return nexar::fail(Errc::protocol_error, "node " + std::to_string(from) +
                                                     " speaks for a ballot of node " +
                                                     std::to_string(ballot->coordinator) + ", round " +
                                                     std::to_string(ballot->round));
    if (failed == nullptr) return {};
    for (const uint32_t node : failed->excluded)
        if (node >= facts_.nodes)
            return nexar::fail(Errc::protocol_error, "a failed set with node " + std::to_string(node) +
                                                         ", the group has " + std::to_string(facts_.nodes));
    return {};
}

Result<void> GroupLifecycle::check_seen(const Ballot& ballot) const {
    if (ballot.round <= rounds_max && ballot.coordinator < facts_.nodes) return {};
    return nexar::fail(Errc::protocol_error, "a ballot of node " + std::to_string(ballot.coordinator) +
                                                 ", round " + std::to_string(ballot.round));
}

void GroupLifecycle::send(uint32_t to, wire::Message message) {
    sends_.push_back({to, std::move(message)});
}

std::optional<GroupLifecycle::Outgoing> GroupLifecycle::poll_send() {
    if (sends_.empty()) return std::nullopt;
    Outgoing out = std::move(sends_.front());
    sends_.pop_front();
    return out;
}

void GroupLifecycle::check_invariants() const {
    NEXAR_CHECK((state_ == State::ended) == decided_.has_value());
    NEXAR_CHECK(state_ != State::active || (excluded_.empty() && promised_.round == 0));
    NEXAR_CHECK(state_ == State::active || error_.code != Errc::ok);
    if (accepted_) NEXAR_CHECK(accepted_->ballot <= promised_);
    if (round_) {
        NEXAR_CHECK(state_ == State::frozen && round_->ballot == promised_);
        NEXAR_CHECK(promised_.coordinator == facts_.self && round_->excluded == excluded_.size());
    }
    if (proposed_) NEXAR_CHECK(state_ == State::frozen && proposed_->ballot == promised_);
}

}  // namespace nexar::membership
