// Who has which op slot: the client's free list with generations, and the daemon's ledger of what is in
// flight. Neither reads a decision back from shared memory. docs/protocol/shm.md [S2].
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace nexar::shm {

// Client side: a lock-free free list. A generation has 36 bits in a handle and its low 32 in shared memory.
class SlotPool {
  public:
    static constexpr uint64_t generation_mask = (uint64_t{1} << 36) - 1;
    static constexpr uint32_t reserved_for_commands =
        4;  // so that a full table can still free groups and regions

    // Every slot's first generation is above `generation_floor`.
    SlotPool(uint32_t slots, uint64_t generation_floor);

    struct Taken {
        uint32_t slot;
        uint64_t generation;
    };
    // Nothing: the table is full. Operations leave the last few slots to commands.
    std::optional<Taken> try_take(bool command);
    // The caller has made sure that it frees each generation once (Request's lock).
    void give_back(uint32_t slot);

    uint64_t generation_of(uint32_t slot) const { return generations_[slot].load(std::memory_order_relaxed); }
    uint64_t highest_generation() const;

  private:
    std::vector<std::atomic<uint64_t>> generations_;
    std::vector<std::atomic<uint32_t>> next_;
    std::atomic<uint64_t> top_;  // tag << 32 | slot + 1; the tag makes a stale compare-and-swap fail
    std::atomic<uint32_t> free_;
};

// Daemon side.
class SlotLedger {
  public:
    explicit SlotLedger(uint32_t slots) : records_(slots) {}

    // False: no such slot, or it is in flight.
    bool try_accept(uint32_t slot, uint32_t generation);
    bool in_flight(uint32_t slot, uint32_t generation) const;
    // False: not in flight in this generation; a late or repeated completion.
    bool try_finish(uint32_t slot, uint32_t generation);
    size_t count() const { return count_; }

  private:
    struct Record {
        uint32_t generation = 0;
        bool in_flight = false;
    };
    std::vector<Record> records_;
    size_t count_ = 0;
};

}  // namespace nexar::shm
