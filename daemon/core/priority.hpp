// Priority: which of one tenant's work is next, in workers, scratch memory and links
// (docs/protocol/priorities.md). Between tenants it decides nothing. Dry.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace nexar {

// The codes of nexar.h and of a descriptor, the most urgent first.
enum class Priority : uint8_t { critical = 0, realtime = 1, bulk = 2 };
constexpr size_t priority_count = 3;
constexpr size_t index_of(Priority priority) {
    return static_cast<size_t>(priority);
}
constexpr const char* name_of(Priority priority) {
    constexpr const char* names[] = {"critical", "realtime", "bulk"};
    return names[index_of(priority)];
}

// Strict priority with a floor: the most urgent that waits is next, unless a less urgent one was passed over
// by `floor` units of what was served instead.
class PriorityTurns {
  public:
    // Of those with a bit in `waiting`. Requires: there is one.
    size_t next(unsigned waiting, uint64_t floor) const {
        size_t first = priority_count;
        for (size_t p = 0; p < priority_count; ++p) {
            if ((waiting >> p & 1u) == 0) continue;
            if (first == priority_count)
                first = p;
            else if (passed_over_[p] >= floor)
                return p;
        }
        return first;
    }
    // `waiting`: also afterwards. One that does not wait is not passed over.
    void served(size_t priority, uint64_t cost, unsigned waiting) {
        for (size_t p = 0; p < priority_count; ++p)
            passed_over_[p] = p > priority && (waiting >> p & 1u) != 0 ? passed_over_[p] + cost
                              : p < priority                           ? passed_over_[p]
                                                                       : 0;
    }

  private:
    std::array<uint64_t, priority_count> passed_over_{};  // since it was served; [0] stays 0
};

}  // namespace nexar
