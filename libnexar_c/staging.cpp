// See staging.hpp.
#include "staging.hpp"

#include <algorithm>
#include <cstring>

#include "shm_layout.h"

namespace nexar::c {

namespace {

// Calls copy(place in the caller's memory, place in the window, bytes) for the segment's part of each block.
template <class Copy>
uint64_t for_each_part(const Cut& cut, const StagedSide& side, uint32_t segment, Copy copy) {
    const auto clipped = [&](uint32_t index) {
        const uint64_t at = nexar_shm_segment_begin(cut.count, cut.segments, index);
        return (std::clamp(at, side.first, side.end) - side.first) * cut.element;
    };
    const uint64_t begin = clipped(segment), end = clipped(segment + 1);
    std::byte* window = side.windows + segment % cut.windows * side.window_bytes(cut);
    for (uint64_t block = 0; block < side.blocks; ++block)
        copy(side.user + block * cut.count * cut.element + begin, window + block * (end - begin),
             end - begin);
    return side.blocks * (end - begin);
}

}  // namespace

uint64_t StagedSide::window_bytes(const Cut& cut) const {
    return nexar_shm_window_bytes(cut.count, cut.segments, cut.element, blocks);
}

void Stage::on_done(uint32_t segments) {
    done_ = std::max(done_, std::min(segments, cut_.segments));
}

bool Stage::can_fill() const {
    const uint32_t free_from = shares_windows() ? taken_ : done_;
    return in_ && filled_ < cut_.segments && filled_ < uint64_t{free_from} + cut_.windows;
}

uint64_t Stage::fill_next() {
    return for_each_part(cut_, in_, filled_++, [](const std::byte* user, std::byte* window, uint64_t bytes) {
        std::memcpy(window, user, bytes);
    });
}

uint64_t Stage::take_next() {
    return for_each_part(cut_, out_, taken_++, [](std::byte* user, const std::byte* window, uint64_t bytes) {
        std::memcpy(user, window, bytes);
    });
}

uint64_t Stage::take_rest() {
    uint64_t bytes = 0;
    on_done(cut_.segments);
    while (can_take()) bytes += take_next();
    return bytes;
}

}  // namespace nexar::c
