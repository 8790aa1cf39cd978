// The rows of proto/operations.def as values: what every part that handles an operation must know of it. Also
// used by libnexar_c.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>

#include "core/types.hpp"
#include "segments.h"

namespace nexar {

enum class OpKind : uint8_t {
#define NEXAR_COLLECTIVE(number, name, ...) name = (number),
#define NEXAR_MESSAGE(number, name, ...) name = (number),
#define NEXAR_GROUPING(number, name, ...) name = (number),
#include "operations.def"
};

// Elements of one side of an operation, per element of its count.
enum class SideSize : uint8_t {
    none,
    one,
    all,
    one_at_root,
    all_at_root,
    one_elsewhere,
    own,
    packed,
    packed_at_root,
    sent,
    received
};
// How input and output may share memory.
enum class InPlace : uint8_t { never, same, block_of_out, block_of_in };

struct OpRow {
    OpKind kind;
    const char* name;
    const char* summary;
    SideSize in, out;
    InPlace in_place = InPlace::never;
    bool collective = false;    // false: a message
    bool has_elements = false;  // a dtype and a count
    bool reduces = false;
    bool in_rank_order = false;      // it reduces the ranks one after the other
    bool first_has_nothing = false;  // and rank 0 has no values to reduce
    bool rooted = false;
    bool any_source = false;    // a message's peer and tag may be left open
    bool of_apart = false;      // its tag is the number of a message that was set apart; it has no peer
    bool makes_groups = false;  // a collective that gives its ranks children of the group
};

namespace operation_table {  // the words of the table's columns

enum class Reduction : uint8_t { moves, reduces, scans, scans_below };
constexpr bool is_scan(Reduction reduction) {
    return reduction == Reduction::scans || reduction == Reduction::scans_below;
}
constexpr bool rooted = true, unrooted = false, elements = true, nothing = false;
enum class Source : uint8_t { exact, any, apart };

inline constexpr OpRow rows[] = {
#define NEXAR_COLLECTIVE(number, id, ID, text, memory, ins, outs, sharing, reduction, root, agreed, ...) \
    {.kind = OpKind::id,                                                                                 \
     .name = #id,                                                                                        \
     .summary = text,                                                                                    \
     .in = SideSize::ins,                                                                                \
     .out = SideSize::outs,                                                                              \
     .in_place = InPlace::sharing,                                                                       \
     .collective = true,                                                                                 \
     .has_elements = agreed,                                                                             \
     .reduces = Reduction::reduction != Reduction::moves,                                                \
     .in_rank_order = is_scan(Reduction::reduction),                                                     \
     .first_has_nothing = Reduction::reduction == Reduction::scans_below,                                \
     .rooted = root},
#define NEXAR_MESSAGE(number, id, ID, text, ins, outs, source)                            \
    {.kind = OpKind::id,                                                                  \
     .name = #id,                                                                         \
     .summary = text,                                                                     \
     .in = SideSize::ins,                                                                 \
     .out = SideSize::outs,                                                               \
     .has_elements = SideSize::ins != SideSize::none || SideSize::outs != SideSize::none, \
     .any_source = Source::source == Source::any,                                         \
     .of_apart = Source::source == Source::apart},
#define NEXAR_GROUPING(number, id, ID, text) \
    {.kind = OpKind::id,                     \
     .name = #id,                            \
     .summary = text,                        \
     .in = SideSize::none,                   \
     .out = SideSize::none,                  \
     .collective = true,                     \
     .makes_groups = true},
#include "operations.def"
};

constexpr bool in_order() {
    for (size_t i = 0; i < std::size(rows); ++i)
        if (static_cast<size_t>(rows[i].kind) != i) return false;
    return true;
}
static_assert(in_order(), "operations.def: a number is missing, or rows are not in order");

}  // namespace operation_table

constexpr size_t operation_count = std::size(operation_table::rows);

// Null: no operation has this number.
constexpr const OpRow* find_operation(uint64_t number) {
    return number < operation_count ? &operation_table::rows[number] : nullptr;
}
// Requires: a number that find_operation knows. Descriptors of other nodes may hold any.
constexpr const OpRow& row_of(OpKind kind) {
    return operation_table::rows[static_cast<size_t>(kind)];
}
constexpr const char* name_of(OpKind kind) {
    const OpRow* row = find_operation(static_cast<uint64_t>(kind));
    return row != nullptr ? row->name : "unknown";
}
// A message whose memory may be in pieces.
constexpr bool has_pieces(const OpRow& row) {
    return !row.collective && row.has_elements;
}
constexpr bool is_collective(uint64_t number) {
    const OpRow* row = find_operation(number);
    return row != nullptr && row->collective;
}
constexpr const OpRow* find_operation(std::string_view name) {
    for (const OpRow& row : operation_table::rows)
        if (row.name == name) return &row;
    return nullptr;
}

// A collective that only synchronises: it is urgent, and has a time-out of its own.
constexpr bool is_barrier(const OpRow& row) {
    return row.collective && !row.has_elements && !row.makes_groups;
}
// Whether the operation has the reduction, of a type that has it: rank 0 may have no ranks to divide by.
constexpr bool may_reduce(const OpRow& row, uint64_t reduction) {
    return !row.first_has_nothing || !has_form(reduction, ReductionForm::average);
}
// What an error says where it has not. Requires: both have names.
inline std::string reduction_refusal(const OpRow& row, uint64_t reduction) {
    return std::string(row.name) + " has no reduction " + find_reduction(reduction)->name +
           "; allowed: sum, and a division by this rank's number";
}

// Blocks of `count` elements on each side, for one rank.
struct SideBlocks {
    uint64_t in = 0, out = 0;
};
constexpr uint64_t blocks_of(SideSize side, uint64_t ranks, uint64_t rank, uint64_t root) {
    const bool is_root = rank == root;
    switch (side) {
        case SideSize::none:
            return 0;
        case SideSize::one:
        case SideSize::own:
        case SideSize::packed:
        case SideSize::sent:
        case SideSize::received:
            return 1;
        case SideSize::all:
            return ranks;
        case SideSize::one_at_root:
        case SideSize::packed_at_root:
            return is_root ? 1 : 0;
        case SideSize::all_at_root:
            return is_root ? ranks : 0;
        case SideSize::one_elsewhere:
            return is_root ? 0 : 1;
    }
    return 0;
}
// `root`: of an unrooted operation any.
constexpr SideBlocks blocks_of(const OpRow& row, uint64_t ranks, uint64_t rank, uint64_t root) {
    return {blocks_of(row.in, ranks, rank, root), blocks_of(row.out, ranks, rank, root)};
}
// Whether a call has a list with a count per rank (core/counts.hpp).
constexpr bool has_counts(const OpRow& row) {
    return row.in == SideSize::own || row.out == SideSize::own;
}
// Whether it has two lists, of what this rank sends to and receives from each rank.
constexpr bool has_own_counts(const OpRow& row) {
    return row.in == SideSize::sent;
}
// Elements of each side, for one rank; `own`: of a side whose length follows from a list of counts for this
// rank. Requires: the count of all ranks together does not overflow.
struct SideElements {
    uint64_t in = 0, out = 0;
};
constexpr SideElements elements_of(const OpRow& row, uint64_t count, SideElements own,
                                   const SideBlocks& blocks) {
    const bool own_in = row.in == SideSize::own || row.in == SideSize::sent;
    const bool own_out = row.out == SideSize::own || row.out == SideSize::received;
    return {own_in ? own.in : count * blocks.in, own_out ? own.out : count * blocks.out};
}
// Blocks of a side, of a rank that has it.
constexpr uint64_t side_blocks(SideSize side, uint64_t ranks) {
    return side == SideSize::all || side == SideSize::all_at_root ? ranks : 1;
}
// Blocks of the larger side: what an element of count stands for when an operation is cut into segments. The
// same on all ranks, whichever sides they have.
constexpr uint64_t row_blocks(const OpRow& row, uint64_t ranks) {
    return std::max(side_blocks(row.in, ranks), side_blocks(row.out, ranks));
}

// Segments of about segment_bytes, of whole rows: a row longer than segment_bytes is a segment by itself.
inline uint32_t segments_of(const OpRow& row, uint64_t count, uint64_t element_bytes, uint64_t ranks,
                            uint64_t segment_bytes) {
    return nexar_shm_segments(row.has_elements ? count : 0, element_bytes * row_blocks(row, ranks),
                              segment_bytes);
}

// Whether input and output that overlap may: `in` and `out` are their first bytes' positions in the memory
// that they share, own_offset is where this rank's block lies in the larger side, in bytes.
constexpr bool may_share(InPlace rule, uint64_t in, uint64_t out, uint64_t own_offset) {
    switch (rule) {
        case InPlace::never:
            return false;
        case InPlace::same:
            return in == out;
        case InPlace::block_of_out:
            return in == out + own_offset;
        case InPlace::block_of_in:
            return out == in + own_offset;
    }
    return false;
}

}  // namespace nexar
