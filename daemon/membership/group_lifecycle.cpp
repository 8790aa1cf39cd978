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

GroupLifecycle::GroupLifecycle(LifecycleHost& host, Config config, LifecycleSabotage sabotage)
    : host_(host), config_(config), sabotage_(sabotage) {
    NEXAR_CHECK(config_.self < config_.nodes);
}

Result<void> GroupLifecycle::on_message(uint32_t from, const wire::Message& message, Time now) {
    NEXAR_CHECK(from < config_.nodes && from != config_.self);
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

void GroupLifecycle::on_failure(const Failure& failure, Time now) {
    if (state_ == State::ended) return;
    FailedSet failed{failure.error, {}};
    if (failure.excluded) failed.excluded.push_back(*failure.excluded);
    merge(failed);
    freeze(now);
    ensure_coordination(now);
}

void GroupLifecycle::on_reach_changed(Time now) {
    ensure_coordination(now);
}

Result<void> GroupLifecycle::on(uint32_t from, const wire::GroupFailed& message, Time now) {
    NEXAR_TRY_VOID(check(from, nullptr, &message.failed));
    NEXAR_TRY_VOID(check_seen(message.seen));
    if (state_ == State::ended) {
        send(from, wire::GroupEnd{config_.group, config_.epoch.value, *decided_});
        return {};
    }
    merge(message.failed);
    freeze(now);
    if (message.seen > promised_) promise(message.seen);
    ensure_coordination(now);
    return {};
}

// True: the failed set has grown.
bool GroupLifecycle::merge(const FailedSet& failed) {
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
    agreement_deadline_ = now + config_.agreement_limit;
    host_.freeze();
}

// [G5]
std::optional<uint32_t> GroupLifecycle::coordinator() const {
    for (uint32_t node = 0; node < config_.nodes; ++node) {
        const bool self = node == config_.self;
        if (is_awaited(node) && (self || !host_.suspects(node))) return node;
    }
    return {};
}

// Ensures: a node coordinates the agreement, and has this node's failed set. It is the one whose ballot this
// node has promised, while that one is not excluded, and otherwise the next one by [G5].
void GroupLifecycle::ensure_coordination(Time now) {
    if (state_ != State::frozen) return;
    if (other_sides_cut_ && excludes(config_.self)) return end(Cut(*other_sides_cut_));  // [G7]
    std::optional<uint32_t> chosen;
    const uint32_t current(promised_.coordinator);
    const bool self_coordinates = round_.has_value();
    if (promised_.round > 0 && (current != config_.self || self_coordinates) && is_awaited(current))
        chosen = current;
    else
        chosen = coordinator();
    bool alone = true;
    for (uint32_t node = 0; node < config_.nodes; ++node) alone = alone && !is_awaited(node);
    if (chosen == config_.self || (!chosen && alone)) {
        if (!self_coordinates || round_->excluded != excluded_.size()) begin_round(now);
        return;
    }
    if (self_coordinates) {  // this node has received that it is excluded
        round_.reset();
        proposed_.reset();
    }
    if (informed_node_ == chosen && informed_excluded_ == excluded_.size()) return;
    informed_node_ = chosen;
    informed_excluded_ = excluded_.size();
    // This node is excluded and reaches no node that is not. One that its failed set excludes may know the
    // end.
    if (!chosen) agreement_deadline_ = std::min(agreement_deadline_, now + config_.finish_limit);
    for (uint32_t node = 0; node < config_.nodes; ++node)
        if (node != config_.self && (!chosen || *chosen == node))
            send(node, wire::GroupFailed{config_.group, config_.epoch.value, promised_, failed()});
}

// ---- The answering role ----

void GroupLifecycle::promise(const Ballot& ballot) {
    promised_ = ballot;
    proposed_.reset();
    round_.reset();
}

wire::GroupReport GroupLifecycle::report() const {
    wire::GroupReport out;
    out.group = config_.group;
    out.epoch = config_.epoch.value;
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
        send(from, wire::GroupEnd{config_.group, config_.epoch.value, *decided_});
        return {};
    }
    if (excludes(from)) return {};  // [G7]
    merge(message.failed);
    freeze(now);
    if (message.ballot > promised_) {
        promise(message.ballot);
        informed_node_ = from;
        informed_excluded_ = excluded_.size();
        send(from, report());
    }
    ensure_coordination(now);
    return {};
}

Result<void> GroupLifecycle::on(uint32_t from, const wire::GroupCut& message, Time now) {
    NEXAR_TRY_VOID(check(from, &message.ballot, &message.cut.failed));
    if (state_ == State::ended) {
        send(from, wire::GroupEnd{config_.group, config_.epoch.value, *decided_});
        return {};
    }
    const bool current = message.ballot == promised_ && !excludes(from);
    if (!current && !sabotage_.accept_any_ballot) return {};
    proposed_ = Proposed{message.ballot, message.cut, now + config_.finish_limit, host_.progress()};
    host_.run_below(message.cut.seq);
    try_accept(now);
    return {};
}

void GroupLifecycle::on_progress(Time now) {
    try_accept(now);
}

void GroupLifecycle::on_time(Time now) {
    try_accept(now);
    if (state_ != State::frozen || now < agreement_deadline_) return;
    agreement_deadline_ = never;
    for (uint32_t node = 0; node < config_.nodes; ++node)
        if (node != config_.self) excluded_.insert(node);
    ensure_coordination(now);
}

Time GroupLifecycle::wake_at() const {
    if (state_ != State::frozen) return never;
    return proposed_ ? std::min(agreement_deadline_, proposed_->deadline) : agreement_deadline_;
}

// [G2]
void GroupLifecycle::try_accept(Time now) {
    if (!proposed_) return;
    const uint64_t ended = host_.ended_below();
    wire::GroupAccepted answer{config_.group, config_.epoch.value, proposed_->ballot, UINT64_MAX};
    if (ended >= proposed_->cut.seq || sabotage_.accept_before_ended) {
        accepted_ = wire::AcceptedCut{proposed_->ballot, proposed_->cut};
    } else if (now >= proposed_->deadline && host_.progress() != proposed_->progress &&
               now + 2 * config_.finish_limit <= agreement_deadline_) {  // time is left for one more round
        proposed_->progress = host_.progress();
        proposed_->deadline = now + config_.finish_limit;
        return;
    } else if (now >= proposed_->deadline) {
        stuck_at_ = std::min(stuck_at_, ended);
        answer.stuck_at = ended;
    } else {
        return;
    }
    const uint32_t coordinator = proposed_->ballot.coordinator;
    proposed_.reset();
    if (coordinator != config_.self) return send(coordinator, answer);
    const Result<void> own = on(config_.self, answer, now);
    NEXAR_CHECK(own);
}

// ---- The end ----

Result<void> GroupLifecycle::on(uint32_t from, const wire::GroupEnd& message, Time now) {
    NEXAR_TRY_VOID(check(from, nullptr, &message.cut.failed));
    if (state_ == State::ended) return {};
    if (excludes(from)) {
        other_sides_cut_ = message.cut;
    } else {
        merge(message.cut.failed);
        freeze(now);
        end(message.cut);
    }
    ensure_coordination(now);
    return {};
}

void GroupLifecycle::end(const Cut& cut) {
    NEXAR_CHECK(state_ == State::frozen);
    state_ = State::ended;
    decided_ = cut;
    // To nodes that may wait for a ballot of this node, to the excluded ones, and to those at distances of
    // powers of two, since the sender of an END may have failed after some of its messages [G7].
    for (uint32_t node = 0; node < config_.nodes; ++node) {
        if (node == config_.self) continue;
        const uint32_t distance = (node + config_.nodes - config_.self) % config_.nodes;
        if (has_coordinated_ || excluded_.contains(node) || std::has_single_bit(distance))
            send(node, wire::GroupEnd{config_.group, config_.epoch.value, cut});
    }
    proposed_.reset();
    round_.reset();
    host_.cut(cut);
}

Result<void> GroupLifecycle::on(uint32_t from, const wire::GroupDeparted&, Time now) {
    if (state_ == State::ended || !departed_.insert(from).second) return {};
    ensure_coordination(now);
    if (!round_) return {};
    if (!round_->cut)
        propose_if_reported(now);
    else
        decide_if_accepted();
    return {};
}

// ---- Checks and output ----

Result<void> GroupLifecycle::check(uint32_t from, const Ballot* ballot, const FailedSet* failed) const {
    if (ballot != nullptr &&
        (ballot->coordinator != from || ballot->round == 0 || ballot->round > rounds_max))
        return fail(Errc::protocol_error, "node " + std::to_string(from) + " sends a ballot of node " +
                                              std::to_string(ballot->coordinator) + ", round " +
                                              std::to_string(ballot->round));
    if (failed == nullptr) return {};
    for (const uint32_t node : failed->excluded)
        if (node >= config_.nodes)
            return fail(Errc::protocol_error, "a failed set with node " + std::to_string(node) +
                                                  ", the group has " + std::to_string(config_.nodes));
    return {};
}

Result<void> GroupLifecycle::check_seen(const Ballot& ballot) const {
    if (ballot.round <= rounds_max && ballot.coordinator < config_.nodes) return {};
    return fail(Errc::protocol_error, "a ballot of node " + std::to_string(ballot.coordinator) + ", round " +
                                          std::to_string(ballot.round));
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
        NEXAR_CHECK(promised_.coordinator == config_.self && round_->excluded == excluded_.size());
    }
    if (proposed_) NEXAR_CHECK(state_ == State::frozen && proposed_->ballot == promised_);
}

}  // namespace nexar::membership
