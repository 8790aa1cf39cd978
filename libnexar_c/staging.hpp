// A staged operation as the client sees it: which segment of the caller's memory goes into which window, and
// when. Dry: two counts are told, bytes are copied. docs/protocol/shm.md [S12].
#pragma once

#include <cstddef>
#include <cstdint>

namespace nexar::c {

// How an operation is cut.
struct Cut {
    uint64_t count = 0;    // elements of one block
    uint64_t element = 0;  // bytes
    uint32_t segments = 0;
    uint32_t windows = 0;  // of each staged side
};

// One side: the caller's memory, and the windows that the daemon sees.
struct StagedSide {
    std::byte* user = nullptr;  // null: this side is not staged
    std::byte* windows = nullptr;
    uint64_t blocks = 1;  // one per rank where the side is that large, in rank order

    uint64_t window_bytes(const Cut& cut) const;
    explicit operator bool() const { return user != nullptr; }
};

// Input and output may be the same memory, or the smaller one this rank's block of the larger one. That is
// safe for every kind: in such memory segment i of the output only covers bytes of segment i of the input (of
// the whole, or of this rank's block), and it is copied out after segment i is over, so after its input was
// copied in.
class Stage {
  public:
    Stage() = default;
    Stage(const Cut& cut, const StagedSide& in, const StagedSide& out) : cut_(cut), in_(in), out_(out) {}

    explicit operator bool() const { return cut_.segments != 0; }
    uint32_t filled() const { return filled_; }
    uint32_t taken() const { return taken_; }

    // So many segments are over. Only growth counts.
    void on_done(uint32_t segments);
    bool can_fill() const;
    bool can_take() const { return out_ && taken_ < done_; }
    // One segment in or out; the bytes copied.
    uint64_t fill_next();
    uint64_t take_next();
    // The operation ended well: what was not taken stands in the windows.
    uint64_t take_rest();

    bool unsent = false;  // the counts have grown and the daemon was not told: the ring was full

  private:
    Cut cut_;
    StagedSide in_, out_;
    uint32_t filled_ = 0, taken_ = 0, done_ = 0;
};

}  // namespace nexar::c
