// The rows of proto/types.def as values: element types, reductions, and which type has which reduction. Also
// used by libnexar_c.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>

namespace nexar {

enum class TypeFamily : uint8_t { floating, integer, boolean, pair };

struct TypeRow {
    uint8_t number;
    const char* name;
    uint8_t bytes, align;
    TypeFamily family;
};

struct ReductionRow {
    uint8_t number;
    const char* name;
    bool of_family[4];
};

namespace type_table {  // the words of the table's columns

constexpr bool yes = true, no = false;

inline constexpr TypeRow types[] = {
#define NEXAR_DTYPE(number, name, NAME, text, bytes, align, family) \
    {number, text, bytes, align, TypeFamily::family},
#include "types.def"
};

inline constexpr ReductionRow reductions[] = {
#define NEXAR_REDUCTION(number, name, NAME, ...) {number, #name, {__VA_ARGS__}},
#include "types.def"
};

template <class Rows>
constexpr bool in_order(const Rows& rows) {
    for (size_t i = 0; i < std::size(rows); ++i)
        if (rows[i].number != i) return false;
    return true;
}
static_assert(in_order(types) && in_order(reductions),
              "types.def: a number is missing, or rows are not in order");

}  // namespace type_table

constexpr size_t type_count = std::size(type_table::types);
constexpr size_t reduction_count = std::size(type_table::reductions);

// Null: nothing has this number.
constexpr const TypeRow* find_type(uint64_t number) {
    return number < type_count ? &type_table::types[number] : nullptr;
}
constexpr const ReductionRow* find_reduction(uint64_t number) {
    return number < reduction_count ? &type_table::reductions[number] : nullptr;
}

// False also where a number names nothing.
constexpr bool may_reduce(uint64_t type, uint64_t reduction) {
    const TypeRow* of = find_type(type);
    const ReductionRow* by = find_reduction(reduction);
    return of != nullptr && by != nullptr && by->of_family[static_cast<size_t>(of->family)];
}

// What an error says of a type and a reduction that do not go together. Requires: both have names.
inline std::string reduction_refusal(uint64_t type, uint64_t reduction) {
    std::string out = std::string(find_type(type)->name) + " has no reduction " +
                      find_reduction(reduction)->name + "; allowed: ";
    const char* comma = "";
    for (const ReductionRow& row : type_table::reductions) {
        if (!may_reduce(type, row.number)) continue;
        out += comma + std::string(row.name);
        comma = ", ";
    }
    return out;
}

// The same of an operation in which rank 0 has no ranks to divide by.
inline const char* no_average() {
    return "exclusive_scan has no reduction avg; allowed: sum, and a division by this rank's number";
}

}  // namespace nexar
