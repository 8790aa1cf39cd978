#include "core/counts.hpp"

#include <algorithm>
#include <bit>

namespace nexar {

Result<Counts> Counts::of(std::span<const uint64_t> counts) {
    Counts out;
    out.begins_.reserve(counts.size() + 1);
    for (size_t rank = 0; rank < counts.size(); ++rank) {
        uint64_t sum = 0;
        if (__builtin_add_overflow(out.begins_.back(), counts[rank], &sum) || sum >> 63 != 0)
            return fail(Errc::invalid_argument, "the counts of ranks 0 to " + std::to_string(rank) +
                                                    " are together 2^63 elements or more; that of rank " +
                                                    std::to_string(rank) + " is " +
                                                    std::to_string(counts[rank]));
        out.begins_.push_back(sum);
    }
    return out;
}

uint64_t Counts::digest() const {
    uint64_t h = 0x2545f4914f6cdd1du;
    for (const uint64_t begin : begins_) {
        h ^= begin;
        h *= 0xff51afd7ed558ccdu;
        h = std::rotl(h, 29) + 0x632be59bd9b4e019u;
    }
    return h == 0 ? 1 : h;
}

Counts::Part Counts::part(uint32_t rank, uint64_t first, uint64_t end) const {
    const uint64_t from = std::max(first, begins_[rank]), to = std::min(end, begins_[rank + 1]);
    return from < to ? Part{from, to - from} : Part{first, 0};
}

}  // namespace nexar
