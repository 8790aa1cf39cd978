// Intake: a session's submitted entries, in the order in which they are handled: that of the submission ring,
// but that an urgent operation passes those of other groups (docs/protocol/priorities.md [K28]). Dry.
//
// Which is urgent is read from the descriptor before it is copied and checked [S3]. A client that changes it
// meanwhile changes the order of its own entries, and nothing else.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "shm/control.hpp"
#include "shm/ring.hpp"

namespace nexar::local {

class Intake {
  public:
    static constexpr size_t ahead_max = 1024;      // entries that were taken from the ring and not handled
    static constexpr size_t ahead_per_entry = 16;  // entries that are looked at for each that is handled
    static constexpr size_t urgent_in_row_max = 16;

    explicit Intake(shm::ControlView control) : control_(control), ring_(control) {}

    bool has_entry() const { return !urgent_.empty() || !waiting_.empty() || ring_.has_entry(); }
    std::optional<shm::Entry> next();

  private:
    struct Waiting {
        shm::Entry entry;
        uint32_t group = 0;       // of its operation; 0: of none
        bool is_command = false;  // nothing passes it
        uint64_t number = 0;      // in the order of the ring
    };
    struct Read {
        Waiting entry;
        bool is_urgent;
    };
    Read read(const shm::Entry& entry);
    void place(const shm::Entry& entry);
    bool has_turn() const;
    bool may_pass(uint32_t group) const;

    shm::ControlView control_;
    shm::SubmissionConsumer ring_;
    std::deque<Waiting> waiting_;  // in order
    std::deque<Waiting> urgent_;   // in order; these are before `waiting_`
    size_t urgent_in_row_ = 0;     // since one of `waiting_`
    uint64_t taken_ = 0;           // entries from the ring
};

}  // namespace nexar::local
