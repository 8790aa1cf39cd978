// Staging: the progress of the staged ranks of one collective on this node (docs/protocol/shm.md [S12]):
// which segments may begin, and how many are finished. Only an op with a staged rank has one.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "engine/ports.hpp"
#include "task/op.hpp"

namespace nexar::engine {

class Staging : public RecycledObject {
  public:
    struct Member {
        uint32_t rank = 0;
        SessionId session;
        uint64_t ticket = 0;
        Stage stage;
        uint32_t segments = 0;  // as its descriptor has them; another rank's may differ
        uint32_t filled = 0, taken = 0;
        bool has_left = false;  // its session has ended: no segment waits for it
        bool has_filled() const { return !stage.in || filled == segments; }
    };

    explicit Staging(bool sabotaged) : sabotaged_(sabotaged) {}

    void add(const Member& member) { members_.push_back(member); }
    Member* find(uint32_t rank);
    const Member* find(uint32_t rank) const;
    // False: the ticket is of another operation.
    bool on_progress(SessionId session, uint64_t ticket, uint32_t filled, uint32_t taken);
    void leave(uint32_t rank);

    void begin(uint32_t lanes);
    // The Op completes when the segment may begin; one at a time for each lane. It fails once fail() was
    // called.
    Op& gate(uint32_t lane, uint32_t segment);
    void fail(const Error& error);
    // True: the number of ended segments, counted from the first without a gap, has grown.
    bool end_segment(uint32_t segment);
    uint32_t segments_ended() const { return segments_ended_; }

    // A segment waits for this rank's bytes.
    bool waits_for(uint32_t rank) const;
    const Vector<Member>& members() const { return members_; }

  private:
    struct Gate : RecycledObject {
        uint32_t segment = 0;
        Op op;
    };
    bool may_begin(const Member& member, uint32_t segment) const;
    bool may_begin(uint32_t segment) const;
    void open_gates();

    Vector<Member> members_;               // the staged ranks of this node
    Vector<std::unique_ptr<Gate>> gates_;  // by lane
    Vector<uint32_t> next_of_lane_;        // by lane: its first segment that is not finished
    uint32_t segments_ended_ = 0;
    std::optional<Error> failed_;  // set by fail()
    bool sabotaged_;               // tests only: begins segments without their input
};

}  // namespace nexar::engine
