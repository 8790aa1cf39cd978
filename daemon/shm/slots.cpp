#include "shm/slots.hpp"

#include <algorithm>

namespace nexar::shm {

SlotPool::SlotPool(uint32_t slots) : generations_(slots), next_(slots), top_(slots), free_(slots) {
    for (uint32_t i = 0; i < slots; ++i)
        next_[i].store(
            i, std::memory_order_relaxed);  // slot i - 1 follows slot i, stored as + 1; 0 ends the list
}

void SlotPool::start_above(uint64_t generation_floor) {
    for (auto& generation : generations_)
        generation.store(generation_floor & generation_mask, std::memory_order_relaxed);
}

std::optional<SlotPool::Taken> SlotPool::try_take(For purpose) {
    const uint32_t kept = purpose == For::operation ? kept_from_operations
                          : purpose == For::opening ? kept_from_openings
                                                    : 0;
    // The count first: a thread that has decremented it finds a slot in the list.
    uint32_t free = free_.load(std::memory_order_relaxed);
    do {
        if (free <= kept) return std::nullopt;
    } while (!free_.compare_exchange_weak(free, free - 1, std::memory_order_acquire));

    uint64_t top = top_.load(std::memory_order_acquire);
    uint64_t rest;
    do {
        const auto slot = static_cast<uint32_t>(top) - 1;
        rest = ((top >> 32) + 1) << 32 | next_[slot].load(std::memory_order_relaxed);
    } while (!top_.compare_exchange_weak(top, rest, std::memory_order_acq_rel, std::memory_order_acquire));

    const auto slot = static_cast<uint32_t>(top) - 1;
    return Taken{slot, renew(slot)};
}

uint64_t SlotPool::renew(uint32_t slot) {
    uint64_t generation = (generations_[slot].load(std::memory_order_relaxed) + 1) & generation_mask;
    if (generation == 0) generation = 1;  // so that no handle is 0
    generations_[slot].store(generation, std::memory_order_relaxed);
    return generation;
}

void SlotPool::give_back(uint32_t slot) {
    uint64_t top = top_.load(std::memory_order_relaxed);
    uint64_t mine;
    do {
        next_[slot].store(static_cast<uint32_t>(top), std::memory_order_relaxed);
        mine = ((top >> 32) + 1) << 32 | (slot + 1);
    } while (!top_.compare_exchange_weak(top, mine, std::memory_order_acq_rel, std::memory_order_relaxed));
    free_.fetch_add(1, std::memory_order_release);
}

uint64_t SlotPool::highest_generation() const {
    uint64_t highest = 0;
    for (const auto& g : generations_) highest = std::max(highest, g.load(std::memory_order_relaxed));
    return highest;
}

bool SlotLedger::try_accept(uint32_t slot, uint32_t generation) {
    if (slot >= records_.size() || records_[slot].in_flight) return false;
    records_[slot] = {generation, true};
    ++count_;
    return true;
}

bool SlotLedger::in_flight(uint32_t slot, uint32_t generation) const {
    return slot < records_.size() && records_[slot].in_flight && records_[slot].generation == generation;
}

bool SlotLedger::try_finish(uint32_t slot, uint32_t generation) {
    if (!in_flight(slot, generation)) return false;
    records_[slot].in_flight = false;
    --count_;
    return true;
}

}  // namespace nexar::shm
