// Partials: what travels between the parts of a reduction (docs/protocol/partials.md). It follows from the
// flags of a call, its operation, type and reduction; ranks agree on it. Also used by libnexar_c.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/operations.hpp"
#include "core/types.hpp"

namespace nexar {

// The numbers travel between nodes.
enum class Partials : uint8_t {
    native = 0,  // values of the operation's type
    wide = 1,    // f32 instead of floats below 32 bits
    tree = 2,    // the same, and combined along a fixed tree over the ranks
};
constexpr uint8_t partials_count = 3;

constexpr const char* text_of(Partials partials) {
    switch (partials) {
        case Partials::native:
            return "";
        case Partials::wide:
            return "f32 partials";
        case Partials::tree:
            return "deterministic";
    }
    return "unknown partials";  // of another node, which may know more
}

// As nexar_op_options has them.
constexpr uint64_t flag_deterministic = 1, flag_f32_partials = 2;

// A scan takes the ranks one by one anyway, and what is exact has the same bits in every order [Z2].
constexpr bool depends_on_order(const OpRow& row, uint64_t type, uint64_t reduction) {
    return row.reduces && !row.in_rank_order && combination_of(type, reduction) == Combination::rounded;
}

constexpr Partials partials_of(const OpRow& row, uint64_t type, uint64_t reduction, uint64_t flags) {
    if (!depends_on_order(row, type, reduction)) return Partials::native;
    if ((flags & flag_deterministic) != 0) return Partials::tree;
    const bool is_wanted = (flags & flag_f32_partials) != 0;
    return is_wanted && is_narrow(*find_type(type)) ? Partials::wide : Partials::native;
}

// Of one element of a partial. An operation is cut into segments as if its elements had this width [S12].
constexpr uint64_t partial_bytes(uint64_t element_bytes, Partials partials) {
    return partials == Partials::native ? element_bytes : std::max<uint64_t>(element_bytes, 4);
}

}  // namespace nexar
