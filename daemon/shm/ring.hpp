// The two rings of a control segment: submission (many client threads to one daemon loop) and completion
// (daemon loop to the client). Entries carry slot and generation only. docs/protocol/shm.md [S1], [S6].
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "shm/control.hpp"

namespace nexar::shm {

struct Entry {
    uint32_t slot = 0;  // 16 bits
    uint32_t generation = 0;
    uint8_t kind = 0;

    uint64_t pack(uint8_t turn) const {
        return uint64_t{generation} << 32 | uint64_t{turn} << 24 | uint64_t{kind} << 16 | (slot & 0xffffu);
    }
    static Entry unpack(uint64_t raw) {
        return {static_cast<uint32_t>(raw & 0xffff), static_cast<uint32_t>(raw >> 32),
                static_cast<uint8_t>(raw >> 16)};
    }
    bool operator==(const Entry&) const = default;
};

// Client side. Thread: any, without a lock.
class SubmissionProducer {
  public:
    explicit SubmissionProducer(ControlView view) : view_(view) {}
    // False: the ring is full. Ensures, after true: the caller may fence and read the `sleeping` word [S7].
    bool try_push(const Entry& entry);

  private:
    ControlView view_;
};

// Daemon side. Thread: one. It never trusts submit_tail: an entry counts when its turn is the expected one.
class SubmissionConsumer {
  public:
    explicit SubmissionConsumer(ControlView view) : view_(view) {}
    std::optional<Entry> try_pop();
    bool has_entry() const;

  private:
    ControlView view_;
    uint32_t head_ = 0;  // position of the next entry; the shared submit_head follows it
};

// Daemon side. Thread: one. The ring cannot be full [S6].
class CompletionProducer {
  public:
    explicit CompletionProducer(ControlView view) : view_(view) {}
    void push(uint32_t slot, uint32_t generation);

  private:
    ControlView view_;
    uint32_t tail_ = 0;  // position of the next entry; the shared completion_tail follows it
};

// Client side. Thread: one at a time.
class CompletionConsumer {
  public:
    explicit CompletionConsumer(ControlView view) : view_(view) {}
    std::optional<Entry> try_pop();
    bool behind() const;  // an entry is waiting
    // True once after the daemon overwrote entries that were not read: the caller scans the whole table.
    bool take_overrun() { return std::exchange(overrun_, false); }

  private:
    ControlView view_;
    uint32_t next_ = 0;     // position of the next entry to read
    bool overrun_ = false;  // since take_overrun()
};

}  // namespace nexar::shm
