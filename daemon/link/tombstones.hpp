// Finished receives that the sender may still ask about (docs/protocol/wire.md, "Tombstones").
#pragma once

#include <deque>

#include "link/containers.hpp"
#include "link/rows.hpp"

namespace nexar::link {

class Tombstones {
  public:
    struct Stone {
        uint32_t chunks;
        uint32_t generation;
        uint64_t ack_batch;  // of that generation; has the last ack
    };
    explicit Tombstones(size_t limit) : limit_(limit) { NEXAR_CHECK(limit > 0); }
    Stone* find(const TransferKey& key) { return stones_.find(key); }
    void add(const TransferKey& key, const Stone& stone);
    void answered(const TransferKey& key, const Stone& stone);  // acked again, in this batch
    void confirm(uint32_t generation, uint64_t acks_seen);
    void new_generation();
    void asks_ended(uint32_t generation);  // what was not asked about is known to be done
    void clear();
    size_t size() const { return stones_.size(); }
    void check_invariants() const;

  private:
    struct Entry {
        TransferKey key;
        uint32_t generation;
        uint64_t ack_batch;
    };
    void pop(std::deque<Entry>& from);

    size_t limit_;
    FlatMap<TransferKey, Stone, TransferKeyHash> stones_;
    std::deque<Entry> order_;  // of this generation, by ack batch
    std::deque<Entry> old_;    // of earlier ones
};

}  // namespace nexar::link
