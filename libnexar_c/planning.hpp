// Where the daemon finds an operation's memory: in a region, copied into scratch, or staged through windows.
#pragma once

#include "core/result.hpp"
#include "group.hpp"
#include "session.hpp"

namespace nexar::c {

// What an operation touches.
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

// An operation that was found good.
struct Checked {
    Span in, out;
    uint64_t element = 0;
    bool in_place = false;
};

// Fills in the descriptor's memory. `blocking`: the caller stays until the end, so its bytes can move
// meanwhile.
Result<Plan> make_plan(Session& session, const Group& group, const Checked& checked, bool blocking,
                       nexar_shm_descriptor& descriptor);

}  // namespace nexar::c
