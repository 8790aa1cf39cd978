// make_plan: how the daemon reaches an operation's memory: in a region, copied into scratch, or staged
// through windows.
#pragma once

#include <optional>
#include <vector>

#include "core/counts.hpp"
#include "core/result.hpp"
#include "group.hpp"
#include "session.hpp"

namespace nexar::c {

// A side of an operation: the input or the output.
struct Span {
    const std::byte* data = nullptr;
    uint64_t bytes = 0;
    bool holds(const Span& inner) const {
        return inner.data >= data && inner.data + inner.bytes <= data + bytes;
    }
    bool overlaps(const Span& other) const {
        return data < other.data + other.bytes && other.data < data + bytes;
    }
};

// An operation whose arguments are valid.
struct Checked {
    Span in, out;
    uint64_t element = 0, align = 1;
    uint64_t count = 0;      // with a list of counts their sum
    uint64_t own_begin = 0;  // of this rank's block in the larger side, in elements
    std::optional<Counts> counts;
    std::optional<OwnCounts> own_counts;
    bool in_place = false;
    bool replaces = false;     // the input is copied wherever it is
    std::vector<Span> pieces;  // two or more, none of them empty: the memory of the one side; else empty
};

// Fills in the descriptor's extents. What is blocking waits until the end, so it can stage; what is
// persistent copies its input at each start, and not now.
Result<Plan> make_plan(Session& session, const Group& group, const Checked& checked, Use use,
                       nexar_shm_descriptor& descriptor);

}  // namespace nexar::c
