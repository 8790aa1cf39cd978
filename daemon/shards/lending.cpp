// See lending.hpp.
#include "shards/lending.hpp"

#include <algorithm>

namespace nexar::shards {
namespace {

// Requires: it is not empty. All of a batch is of one operation.
const link::OpKey& op_of(const link::Batch& batch) {
    return batch.recvs.empty() ? batch.sends.front().key.op : batch.recvs.front().key.op;
}

bool is_message(const link::OpKey& op) {
    return (op.op & link::OpKey::message_bit) != 0;
}

}  // namespace

// What goes between hosts and what does not: both wait for the loop's turns.
void Lending::requested(Time now, const GroupId& group) {
    if (group != op_.group && has_transfers()) crowded(now);
}

// By operation: a large one is many batches, on several shards, and each may be over before the next is
// there. Of messages there may be many at once.
void Lending::count(const link::Batch& batch) {
    if (op_of(batch) != op_) {
        if (!has_transfers() || !is_message(op_)) before_ = {};
        if (has_transfers()) before_ += own_;
        own_ = {};
        op_ = op_of(batch);
    }
    Bytes bytes;
    for (const link::SendSpec& send : batch.sends) bytes.sent += link::bytes_of(send.memory);
    for (const link::RecvSpec& recv : batch.recvs) bytes.received += link::bytes_of(recv.memory);
    own_ += bytes;
    if (is_message(op_)) return;
    if (op_ != collective_) of_collective_ = {};
    collective_ = op_;
    of_collective_ += bytes;
}

// Of the latest operation. Messages may come between the batches of a large collective, and are not large
// for it.
bool Lending::may_lend(Time now) const {
    const bool is_single =
        is_message(op_) ? running_() == 0 : running_() <= 1 && of_collective_.larger() <= bytes_max;
    const Bytes all{before_.sent + own_.sent, before_.received + own_.received};
    return now >= pause_until_ && is_single && all.larger() <= bytes_max;
}

void Lending::posting(Time now, const link::Batch& batch, const Lendable& to) {
    if (batch.recvs.empty() && batch.sends.empty()) return;
    if (op_of(batch).group != op_.group && has_transfers()) crowded(now);
    count(batch);
    const auto row = std::ranges::find(rows_, &to, &Row::shard);
    if (running_() > 1)
        crowded(now);
    else if (!may_lend(now))
        give_back_all(now);
    else if (row->shard->borrow())
        row->worked = now;
}

bool Lending::has_transfers() const {
    return std::ranges::any_of(
        rows_, [](const Row& row) { return row.shard->is_borrowed() && row.shard->has_transfers(); });
}

bool Lending::receive(Time now) {
    bool work = false;
    for (Row& row : rows_) {
        if (row.shard->is_offered()) answer(row, now);
        if (!row.shard->is_borrowed()) continue;
        if (running_() > 1)
            crowded(now);
        else if (row.shard->has_visitors())
            give_back_all(now + pause_min);
        else
            work |= receive(row, now);
    }
    return work;
}

// What comes without a transfer is no reason to go on: a peer may send such without end.
bool Lending::receive(Row& row, Time now) {
    const bool work = row.shard->receive(now);
    if (work && row.shard->has_transfers())
        row.worked = now;
    else if (now >= row.worked + linger)
        row.shard->give_back();
    return work;
}

// An offer that cannot be accepted in this turn can be in the next one, when its last events were polled.
void Lending::answer(Row& row, Time now) {
    if (!may_lend(now))
        row.shard->decline();
    else if (row.shard->borrow())
        row.worked = now;
}

bool Lending::send(Time now) {
    bool work = false;
    for (const Row& row : rows_) work |= row.shard->send(now);
    return work;
}

// While the threads drive, nobody waits for the loop's turns: that is no reason for a longer pause.
void Lending::crowded(Time now) {
    const auto is_borrowed = [](const Row& row) { return row.shard->is_borrowed(); };
    if (std::ranges::none_of(rows_, is_borrowed)) return;
    pause_ = now < pause_until_ + 2 * pause_ ? std::min(2 * pause_, pause_max) : pause_min;
    give_back_all(now + pause_);
}

void Lending::give_back_all(Time until) {
    pause_until_ = std::max(pause_until_, until);
    for (const Row& row : rows_)
        if (row.shard->is_borrowed()) row.shard->give_back();
}

Time Lending::wake_at() const {
    Time at = never;
    for (const Row& row : rows_) {
        at = std::min(at, row.shard->is_offered() ? Time{} : row.shard->wake_at());
        if (row.shard->is_borrowed()) at = std::min(at, row.worked + linger);
    }
    return at;
}

bool Lending::is_due(Time now) const {
    return std::ranges::any_of(rows_, [&](const Row& row) { return row.shard->is_due(now); });
}

}  // namespace nexar::shards
