// See rendezvous.hpp. What is due of this node's own opens and reservations: a few in a turn of the loop,
// users in turns [N16]; and what an open's error says whose deadline has passed [R11].
#include <algorithm>

#include "rendezvous/rendezvous.hpp"
#include "rendezvous/texts.hpp"

namespace nexar::rendezvous {

namespace {

constexpr Duration status_debt_max{1'000'000'000};

// A report looks at the names of other keys (as long as so many opens) and at each open of its own one. So
// long it has to do for a node, or for this one's own opens of a key: about ten times what it takes.
Duration pay_of(const wire::GroupStatus& status) {
    constexpr size_t base = 100;
    constexpr Duration each{4'000};
    return static_cast<int64_t>(base + status.present.size()) * each;
}

}  // namespace

// ---- What is due ----

// After each change of what `due_at` follows from.
void Rendezvous::reschedule(Own& own) {
    const Time ends = own.status_until == never ? own.deadline : own.status_until;
    const Time due = own.reserved ? never : std::min(own.list_at, ends);
    if (due == own.due_at) return;
    if (own.due_at != never) due_.remove(turn_of(own), own.due_at, own.open.id);
    own.due_at = due;
    if (due != never) due_.add(turn_of(own), due, own.open.id);
}

void Rendezvous::reschedule(const GroupId& group, Reservation& r) {
    const Time due = std::min(r.link_deadline, r.query_until == never ? r.decision_deadline : r.query_until);
    if (due == r.due_at) return;
    if (r.due_at != never) reservations_due_.remove(r.whose, r.due_at, group);
    r.due_at = due;
    if (due != never) reservations_due_.add(r.whose, due, group);
}

// What is left is due in the next turn: wake_at().
void Rendezvous::end_due(Time now) {
    for (size_t n = 0; n < config_.due_at_once_max; ++n) {
        const auto request = due_.take(now);
        if (!request) break;
        ++visited_;
        Own& own = own_.at(*request);
        own.due_at = never;
        on_due(own, now);
    }
    for (size_t n = 0; n < config_.due_at_once_max; ++n) {
        const auto group = reservations_due_.take(now);
        if (!group) break;
        ++visited_;
        reservations_.at(*group).due_at = never;
        on_reservation_time(*group, now);
        if (const auto at = reservations_.find(*group); at != reservations_.end())
            reschedule(*group, at->second);
    }
}

void Rendezvous::on_due(Own& own, Time now) {
    if (now < own.list_at) return on_deadline(own, now);
    move(own, now);
}

// ---- The deadline [R11] ----

void Rendezvous::on_deadline(Own& own, Time now) {
    Muster& muster = muster_of(own);
    const auto has_report = [&] {
        return was_due(muster, own) ||
               (muster.roll && muster.reported_at >= own.free_since && now < muster.fresh_until);
    };
    if (!has_report() && leader_of(own) == config_.self)
        report(muster, own, directory_of(own).status(own.open.id, own.open.key, now), now);
    if (has_report()) return expire(own, &*muster.roll);
    if (own.status_until == never) return ask_status(own, muster, now);
    expire(own, nullptr);
}

// It counts for so long as a node pays for one [R24]: opens that expire one soon after the other, each with a
// walk through all opens of its key, would take all the time that there is.
void Rendezvous::report(Muster& muster, const Own& own, const wire::GroupStatus& status, Time now) {
    muster.roll =
        roll_call(own.open, own.parent_ranks, status, [this](const NodeId& n) { return name_of(n); });
    muster.reported_at = now;
    muster.fresh_until = now + pay_of(status);
}

// The last report is of a time at which the open waited, and its deadline had passed.
bool Rendezvous::was_due(const Muster& muster, const Own& own) {
    return muster.roll && muster.reported_at >= std::max(own.free_since, own.deadline);
}

// A leader's answer is as long as the list of those that came, so opens of one key ask together.
void Rendezvous::ask_status(Own& own, Muster& muster, Time now) {
    own.status_until = now + config_.status_wait;
    reschedule(own);
    const bool is_asked = !muster.waiting.empty() && !muster.is_answered && muster.to == leader_;
    muster.waiting.insert(own.open.id);
    if (!is_asked) ask(muster, own);
}

void Rendezvous::ask(Muster& muster, const Own& by) {
    muster.by = by.open.id;
    muster.to = leader_;
    muster.is_answered = false;
    send(leader_, wire::GroupStatusRequest{by.open.id, by.open.key}, by.payer);
}

// Those that wait for a report end one after the other: each wakes the next one.
void Rendezvous::wake(const Muster& muster, Own& own) {
    if (!was_due(muster, own)) return;
    own.status_until = std::min(own.status_until, muster.reported_at);
    reschedule(own);
}

// Another open asks again, if the question was this one's: the answer to it may not find its way back.
void Rendezvous::leave_question(const Own& own) {
    if (own.status_until == never) return;
    Muster& muster = muster_of(own);
    muster.waiting.erase(own.open.id);
    if (muster.waiting.empty()) return;
    Own& next = own_.at(*muster.waiting.begin());
    if (was_due(muster, next)) {
        if (muster.by == own.open.id) muster.by = next.open.id;
        wake(muster, next);
    } else if (muster.by == own.open.id) {
        ask(muster, next);
    }
}

// The directory keeps the open in view for a while, for those of other nodes that expire a little later.
void Rendezvous::expire(Own& own, const RollCall* roll) {
    const wire::RequestId request = own.open.id;
    Error error = group_incomplete({own.open, own.local, own.timeout, own.trouble,
                                    !config_.in_cluster || config_.in_cluster(), apart(), own.parent_ranks},
                                   roll, [this](const NodeId& n) { return name_of(n); });
    send(own.listed, wire::GroupWithdraw{request, own.open.key, false, true}, own.payer);
    leave_second(own, true);
    fail_open(request, std::move(error));
}

// ---- What a leader says of who came [R11] ----

void Rendezvous::on_status_request(const NodeId& from, const wire::GroupStatusRequest& request, Time now) {
    if (leader_ == config_.self)
        answer_status(from, request, now);
    else if (const Listed* at = relayed_.find(request.id); at != nullptr && at->came_through(from)) {
        if (room_of(leader_).refusals > 0) send(leader_, request);
    }
}

// Each open in a report is paid for with time, for so long the same node gets no other one [R24]: the report
// is a walk through all opens of a key, and the question is short.
void Rendezvous::answer_status(const NodeId& from, const wire::GroupStatusRequest& request, Time now) {
    Time& paid = status_paid_[from];
    paid = std::max(paid, now);
    if (paid - now > status_debt_max || room_of(from).refusals < refusal_bytes_max) return;
    wire::GroupStatus status = directory_.status(request.id, request.key, now);
    paid += pay_of(status);
    send(from, std::move(status));
}

void Rendezvous::on_status(const NodeId& from, const wire::GroupStatus& status, Time now) {
    keep_arrived(from, status);
    if (const auto own = own_.find(status.id); own != own_.end()) {
        if (own->second.status_until == never || from != leader_of(own->second)) return;
        Muster& muster = muster_of(own->second);
        muster.is_answered = true;
        report(muster, own->second, status, now);
        wake(muster, own_.at(*muster.waiting.begin()));
    } else if (const Listed* relayed = relayed_.find(status.id); relayed != nullptr && from == leader_) {
        send(relayed->via, status);
    }
}

}  // namespace nexar::rendezvous
