// docs/protocol/control_log.md.
#include "link/control_log.hpp"

#include <algorithm>

#include "core/check.hpp"

namespace nexar::link {

// ---- Room ----

bool ControlLog::reserve(Account account, size_t bytes) {
    const auto use = uses_.find(account);
    const size_t of_account = use == uses_.end() ? 0 : use->second.queued + use->second.reserved;
    if (of_account + bytes > config_.account_bytes_max ||
        requests_bytes_ + bytes > config_.requests_bytes_max) {
        room_wanted_ = true;
        room_was_freed_ = false;
        return false;
    }
    uses_[account].reserved += bytes;
    requests_bytes_ += bytes;
    return true;
}

bool ControlLog::reserve_open(Account account, size_t bytes) {
    const auto use = uses_.find(account);
    const size_t of_account = use == uses_.end() ? 0 : use->second.queued;
    if (of_account + bytes > config_.opens_queued_bytes_of_account_max ||
        queued_bytes_ - own_bytes_ + bytes > config_.opens_queued_bytes_max)
        return false;
    return reserve(account, bytes);
}

LogRoom ControlLog::room() const {
    const auto left = [](size_t limit, size_t used) { return limit - std::min(limit, used); };
    // What a request reserved may come beside them.
    const size_t opens = std::max(left(config_.requests_bytes_max, requests_bytes_),
                                  left(config_.opens_queued_bytes_max, queued_bytes_ - own_bytes_));
    return {left(config_.prepares_bytes_max, own_bytes_), left(config_.refusals_bytes_max, own_bytes_),
            opens};
}

// What a discarded or dropped log forgot is not there any more.
void ControlLog::release(Account account, size_t bytes) {
    const auto use = uses_.find(account);
    if (use == uses_.end()) return;
    bytes = std::min(bytes, use->second.reserved);
    use->second.reserved -= bytes;
    requests_bytes_ -= bytes;
    room_was_freed_ = true;
    free_if_unused(account);
}

bool ControlLog::take_room_again() {
    if (!room_wanted_ || !room_was_freed_) return false;
    room_wanted_ = room_was_freed_ = false;
    return true;
}

void ControlLog::free_if_unused(Account account) {
    const auto use = uses_.find(account);
    if (use != uses_.end() && use->second.queued == 0 && use->second.reserved == 0) uses_.erase(use);
}

size_t ControlLog::bytes_of(Account account) const {
    const auto use = uses_.find(account);
    return use == uses_.end() ? 0 : use->second.queued + use->second.reserved;
}

// ---- Sending ----

bool ControlLog::append(Bytes message, std::optional<Account> account) {
    const size_t cost = cost_of(message.size());
    if (queued_bytes_ + cost > config_.bytes_max) return false;
    if (account) {
        const Account charged =
            config_.sabotage.charge_another_account ? Account(account->value + 1) : *account;
        Use& use = uses_[charged];
        const size_t reserved = std::min(use.reserved, cost);
        use.reserved -= reserved;
        use.queued += cost;
        requests_bytes_ += cost - reserved;
        account = charged;
    } else {
        own_bytes_ += cost;
    }
    queued_bytes_ += cost;
    entries_.push_back({last() + 1, {message.begin(), message.end()}, account});
    return true;
}

const ControlLog::Entry* ControlLog::next() const {
    if (!resumed_ || written_ >= last()) return nullptr;
    return &entries_[written_ - dropped_];
}

void ControlLog::written() {
    NEXAR_CHECK(next() != nullptr);
    ++written_;
    ever_written_ = std::max(ever_written_, written_);
    if (config_.sabotage.skip_a_number && written_ % 7 == 0 && written_ < last()) ++written_;
}

const char* ControlLog::on_applied(uint64_t number) {
    if (!resumed_) return "an acknowledgement before the log was resumed";
    if (number > ever_written_) return "an acknowledgement of entries that were not sent";
    if (number < dropped_) return "an acknowledgement that was taken back";
    drop_through(number);
    // The peer may have applied what an earlier connection carried, after it had sent its RESUME.
    written_ = std::max(written_, dropped_);
    return nullptr;
}

void ControlLog::drop_through(uint64_t number) {
    for (; dropped_ < number; ++dropped_) {
        const Entry& entry = entries_.front();
        const size_t cost = cost_of(entry.message.size());
        queued_bytes_ -= cost;
        if (const std::optional<Account> account = entry.account) {
            uses_.at(*account).queued -= cost;
            requests_bytes_ -= cost;
            free_if_unused(*account);
        } else {
            own_bytes_ -= cost;
        }
        entries_.pop_front();
        room_was_freed_ = true;
    }
}

// ---- Receiving ----

ControlLog::Arrival ControlLog::on_entry(uint64_t number) {
    if (!resumed_) return {"an entry before the log was resumed", false};
    if (number <= received_) return {nullptr, config_.sabotage.apply_twice};
    if (number > received_ + 1) return {"an entry's number does not follow the one before it", false};
    received_ = number;
    return {nullptr, true};
}

void ControlLog::applied(size_t bytes) {
    NEXAR_CHECK(applied_ < received_ || config_.sabotage.apply_twice);
    applied_ = std::min(applied_ + 1, received_);
    unacknowledged_bytes_ += bytes;
}

bool ControlLog::ack_urgent() const {
    return applied_to_send() - acknowledged_ >= config_.unacknowledged_max ||
           unacknowledged_bytes_ >= config_.unacknowledged_bytes_max;
}

uint64_t ControlLog::take_ack() {
    acknowledged_ = applied_to_send();
    unacknowledged_bytes_ = 0;
    return acknowledged_;
}

// ---- Connections ----

// The peer's RESUME may have arrived before.
ControlLog::Resume ControlLog::resume() {
    if (config_.sabotage.forget_at_reconnect) drop_through(std::max(dropped_, ever_written_));
    return {generation_, take_ack()};
}

// [L5]
const char* ControlLog::on_resume(const Resume& theirs, bool& discarded) {
    if (resumed_) return "the log was resumed twice";
    if (theirs.generation == 0 || theirs.generation == UINT64_MAX) return "no generation of a log";
    const uint64_t ours = generation_;
    if (theirs.generation > ours) {
        reset();
        generation_ = theirs.generation;
        discarded = true;
    }
    const bool same = theirs.generation == ours;
    if (same && theirs.applied < dropped_) return "the log was resumed before what was acknowledged";
    if (same && theirs.applied > ever_written_) return "the log was resumed behind what was sent";
    if (same) drop_through(theirs.applied);
    resumed_ = true;
    written_ = dropped_;
    return nullptr;
}

void ControlLog::discard() {
    reset();
    ++generation_;
}

void ControlLog::reset() {
    drop_through(last());
    dropped_ = written_ = ever_written_ = 0;
    received_ = applied_ = acknowledged_ = 0;
    unacknowledged_bytes_ = 0;
    resumed_ = false;
}

void ControlLog::check_invariants() const {
    NEXAR_CHECK(dropped_ <= written_ || !resumed_);
    NEXAR_CHECK(written_ <= last() || !resumed_);
    NEXAR_CHECK(dropped_ <= ever_written_ && ever_written_ <= last());
    NEXAR_CHECK(acknowledged_ <= applied_to_send() && applied_ <= received_);  // [L3]
    size_t queued = 0, requests = 0, charged = 0;
    uint64_t number = dropped_;
    for (const Entry& entry : entries_) {
        NEXAR_CHECK(entry.number == ++number);  // [L1]
        queued += cost_of(entry.message.size());
        if (entry.account) charged += cost_of(entry.message.size());
    }
    const size_t of_accounts = charged;
    for (const auto& [account, use] : uses_) {
        charged -= use.queued;
        requests += use.queued + use.reserved;
    }
    NEXAR_CHECK(own_bytes_ == queued - of_accounts);
    NEXAR_CHECK(charged == 0 && queued == queued_bytes_ && requests == requests_bytes_);  // [L8]
    NEXAR_CHECK(queued_bytes_ <= config_.bytes_max);                                      // [L7]
}

}  // namespace nexar::link
