// See lending.hpp.
#include "shards/lending.hpp"

#include <algorithm>

namespace nexar::shards {
namespace {

// Requires: it is not empty. All of a batch is of one operation.
const GroupId& group_of(const link::Batch& batch) {
    return batch.recvs.empty() ? batch.sends.front().key.op.group : batch.recvs.front().key.op.group;
}

size_t bytes_to_send(const link::Batch& batch) {
    size_t out = 0;
    for (const link::SendSpec& send : batch.sends) out += link::bytes_of(send.memory);
    return out;
}

}  // namespace

void Lending::posting(Time now, const link::Batch& batch, const Lendable* to) {
    if (batch.recvs.empty() && batch.sends.empty()) return;
    const GroupId& group = group_of(batch);
    for (const Row& row : rows_)
        if (row.shard->is_borrowed() && row.shard->has_transfers() && row.group != group) return crowded(now);
    const auto row = std::ranges::find(rows_, to, &Row::shard);
    if (row == rows_.end()) return;
    const bool has_more = row->shard->is_borrowed() && row->shard->has_transfers();
    row->bytes = bytes_to_send(batch) + (has_more ? row->bytes : 0);
    row->group = group;
    if (running_() > 1)
        crowded(now);
    else if (row->bytes > bytes_max)
        give_back_all(now + pause_min);
    else if (now >= pause_until_ && row->shard->borrow())
        row->worked = now;
}

bool Lending::receive(Time now) {
    bool work = false;
    for (Row& row : rows_) {
        if (row.shard->is_offered()) answer(row, now);
        if (!row.shard->is_borrowed()) continue;
        if (row.shard->has_visitors() || running_() > 1)
            crowded(now);
        else if (row.shard->receive(now))
            row.worked = now, work = true;
        else if (now >= row.worked + linger)
            row.shard->give_back();
    }
    return work;
}

// An offer that cannot be accepted in this turn can be in the next one, when its last events were polled.
void Lending::answer(Row& row, Time now) {
    if (now < pause_until_)
        row.shard->decline();
    else if (row.shard->borrow())
        row.worked = now;
}

bool Lending::send(Time now) {
    bool work = false;
    for (const Row& row : rows_) work |= row.shard->send(now);
    return work;
}

void Lending::crowded(Time now) {
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
