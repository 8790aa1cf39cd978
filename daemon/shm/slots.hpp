// The owner of each op slot: the client's free list with generations, and the daemon's ledger of what is in
// flight. Neither reads its own decision back from shared memory. docs/protocol/shm.md [S2].
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
    // The last slots are kept for commands that complete by themselves: so groups and memory can be freed
    // also when the table is full of operations and of group openings, which wait for other processes.
    enum class For : uint8_t { operation, opening, command };
    static constexpr uint32_t kept_from_operations = 4, kept_from_openings = 2;

    explicit SlotPool(uint32_t slots);
    // Every slot's first generation is above `generation_floor`. Requires: no slot was taken yet.
    void start_above(uint64_t generation_floor);

    struct Taken {
        uint32_t slot;
        uint64_t generation;
    };
    // Nothing: the table is full for this purpose.
    std::optional<Taken> try_take(For purpose);
    // The next generation of a slot that is taken and stays so. Requires: one thread at a time for a slot.
    uint64_t renew(uint32_t slot);
    // Requires: each generation is given back once (Request's lock ensures it).
    void give_back(uint32_t slot);

    uint64_t highest_generation() const;

  private:
    std::vector<std::atomic<uint64_t>> generations_;  // of each slot, the latest
    std::vector<std::atomic<uint32_t>> next_;         // in the free list, + 1; 0: the last one
    std::atomic<uint64_t> top_;   // tag << 32 | slot + 1; the tag makes a stale compare-and-swap fail
    std::atomic<uint32_t> free_;  // slots in the list, or about to be: never more than there are
};

// Daemon side.
class SlotLedger {
  public:
    explicit SlotLedger(uint32_t slots) : records_(slots) {}

    // False: no such slot, or it is in flight.
    bool try_accept(uint32_t slot, uint32_t generation);
    bool in_flight(uint32_t slot, uint32_t generation) const;
    bool in_flight(uint32_t slot) const {
        return records_[slot].in_flight;
    }  // Requires: slot is in the table
    // False: not in flight in this generation; a late or repeated completion.
    bool try_finish(uint32_t slot, uint32_t generation);
    size_t count() const { return count_; }

  private:
    struct Record {
        uint32_t generation = 0;
        bool in_flight = false;
    };
    std::vector<Record> records_;  // by slot
    size_t count_ = 0;             // records in flight
};

}  // namespace nexar::shm
