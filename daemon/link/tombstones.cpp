// See tombstones.hpp.
#include "link/tombstones.hpp"

namespace nexar::link {

void Tombstones::add(const TransferKey& key, const Stone& stone) {
    while (stones_.size() >= limit_) pop(old_.empty() ? order_ : old_);
    stones_.insert(key, stone);
    order_.push_back({key, stone.generation, stone.ack_batch});
}

void Tombstones::answered(const TransferKey& key, const Stone& stone) {
    // One entry per key and batch of acks at most, or a peer that asks forever would make the order grow.
    Stone* at = stones_.find(key);
    const bool again = at->generation == stone.generation && at->ack_batch == stone.ack_batch;
    *at = stone;
    if (again) return;
    order_.push_back({key, stone.generation, stone.ack_batch});
    while (order_.size() > 2 * limit_) pop(order_);
}

void Tombstones::confirm(uint32_t generation, uint64_t acks_seen) {
    while (!order_.empty()) {
        const Entry& e = order_.front();
        if (e.generation == generation && e.ack_batch > acks_seen) return;
        pop(order_);
    }
}

void Tombstones::new_generation() {
    old_.insert(old_.end(), order_.begin(), order_.end());
    order_.clear();
    while (old_.size() > limit_) pop(old_);
}

void Tombstones::asks_ended(uint32_t generation) {
    while (!old_.empty()) {
        const Stone* stone = stones_.find(old_.front().key);
        if (stone != nullptr && stone->generation == generation)
            old_.pop_front();  // asked about and answered: it has a new entry
        else
            pop(old_);
    }
}

void Tombstones::clear() {
    stones_.clear();
    order_.clear();
    old_.clear();
}

// Drops the entry, and its stone unless that has a newer entry.
void Tombstones::pop(std::deque<Entry>& from) {
    const Entry e = from.front();
    from.pop_front();
    const Stone* stone = stones_.find(e.key);
    if (stone != nullptr && stone->generation == e.generation && stone->ack_batch == e.ack_batch)
        stones_.erase(e.key);
}

void Tombstones::check_invariants() const {
    NEXAR_CHECK(stones_.size() <= limit_ && order_.size() <= 2 * limit_ && old_.size() <= limit_);
    NEXAR_CHECK(stones_.size() <= order_.size() + old_.size());  // each has its newest entry
}

}  // namespace nexar::link
