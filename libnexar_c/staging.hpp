// Stage: the library's side of a staged operation: the window of each segment of the caller's memory, and
// when it is copied (docs/protocol/shm.md [S12]). Dry: its inputs are counts, its output is copied bytes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace nexar::c {

// The segments and windows of an operation.
struct Cut {
    uint64_t count = 0;    // elements of one block
    uint64_t element = 0;  // bytes
    uint32_t segments = 0;
    uint32_t windows = 0;  // of each staged side
};

// One side: the caller's memory, and the windows in memory that the daemon can reach.
struct StagedSide {
    std::byte* user = nullptr;  // null: this side is not staged
    std::byte* windows = nullptr;
    uint64_t blocks = 1;  // the number of ranks if the side has a block for each, otherwise 1
    // Of the one block the elements that the caller has: with a list of counts this rank's in the packed
    // side.
    uint64_t first = 0, end = UINT64_MAX;

    uint64_t window_bytes(const Cut& cut) const;
    explicit operator bool() const { return user != nullptr; }
};

// Input and output may be the same memory, or the smaller side this rank's block of the larger one. This is
// safe for every kind: segment i of the output covers only bytes of segment i of the input (of the whole, or
// of this rank's block), and it is copied out after segment i is done, so after its input was copied in.
class Stage {
  public:
    Stage() = default;
    Stage(const Cut& cut, const StagedSide& in, const StagedSide& out) : cut_(cut), in_(in), out_(out) {}

    explicit operator bool() const { return cut_.segments != 0; }
    uint32_t filled() const { return filled_; }
    uint32_t taken() const { return taken_; }

    // The daemon's count of segments that are done. A smaller count than before is ignored.
    void on_done(uint32_t segments);
    // Where both sides have the same windows, what stood there before must have been copied out.
    bool can_fill() const;
    bool can_take() const { return out_ && taken_ < done_; }
    // Copies one segment in or out; returns the bytes. Requires: can_fill(), can_take().
    uint64_t fill_next();
    uint64_t take_next();
    // The operation has succeeded: copies the segments that are still in the windows.
    uint64_t take_rest();

    bool unsent = false;  // the counts have grown, but the ring was full: announce them again

  private:
    bool shares_windows() const { return in_ && out_ && in_.windows == out_.windows; }

    Cut cut_;
    StagedSide in_, out_;
    uint32_t filled_ = 0;  // segments copied in
    uint32_t taken_ = 0;   // segments copied out
    uint32_t done_ = 0;    // segments that the daemon has finished
};

}  // namespace nexar::c
