// StagedMemory: the client's half of a staged call [S12], written from docs/protocol/shm.md and not from
// libnexar_c: what the application has, the windows that the daemon sees, and the counts. A window is
// poisoned as soon as the daemon has no business in it: who still reads it there gets a wrong result.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/counts.hpp"
#include "shm_layout.h"

namespace nexar::sim {

struct StagedMemory {
    struct Side {
        std::vector<std::byte> user;   // empty: this side is not staged
        std::byte* windows = nullptr;  // in a region
        uint64_t blocks = 1, stride = 0;
        uint64_t first = 0, end = UINT64_MAX;  // of the one block the elements that `user` has

        void limit_to_own(const Counts& counts, uint32_t rank) {
            first = counts.begin(rank), end = first + counts.of(rank);
        }
    };
    uint64_t count = 0, element = 1;
    uint32_t segments = 1, windows = 1;
    Side in, out;
    uint32_t filled = 0, taken = 0, poisoned = 0;
    uint32_t at_most = UINT32_MAX;  // segments moved per look

    // The daemon has finished `done` segments. True: the counts have grown.
    bool move(uint32_t done) {
        const uint32_t filled_before = filled, taken_before = taken;
        for (; poisoned < std::min(done, filled) && !in.user.empty(); ++poisoned)
            std::memset(in.windows + poisoned % windows * in.stride, 0xcc, in.stride);
        for (uint32_t i = 0; i < at_most && !out.user.empty() && taken < done; ++i) take();
        for (uint32_t i = 0; i < at_most && may_fill(done); ++i) fill();
        return filled > filled_before || taken > taken_before;
    }
    bool can_move(uint32_t done) const { return (!out.user.empty() && taken < done) || may_fill(done); }
    void take_rest() {
        while (!out.user.empty() && taken < segments) take();
    }

  private:
    bool may_fill(uint32_t done) const {
        return !in.user.empty() && filled < segments && filled < uint64_t{done} + windows;
    }
    void fill() {
        copy(in, filled, true);
        ++filled;
    }
    void take() {
        copy(out, taken, false);
        std::memset(out.windows + taken % windows * out.stride, 0xee, out.stride);
        ++taken;
    }
    void copy(Side& side, uint32_t segment, bool into_window) {
        const auto own = [&](uint32_t index) {
            return std::clamp(nexar_shm_segment_begin(count, segments, index), side.first, side.end) -
                   side.first;
        };
        const uint64_t begin = own(segment), bytes = (own(segment + 1) - begin) * element;
        std::byte* window = side.windows + segment % windows * side.stride;
        if (into_window) std::memset(window, 0xdd, side.stride);
        for (uint64_t block = 0; block < side.blocks; ++block) {
            std::byte* user = side.user.data() + (block * count + begin) * element;
            if (into_window)
                std::memcpy(window + block * bytes, user, bytes);
            else
                std::memcpy(user, window + block * bytes, bytes);
        }
    }
};

}  // namespace nexar::sim
