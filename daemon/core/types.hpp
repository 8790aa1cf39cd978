// The rows of proto/types.def as values: element types, reductions, and which type has which reduction. Also
// used by libnexar_c.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>

namespace nexar {

enum class TypeFamily : uint8_t { floating, integer, boolean, pair };

// What of a reduction is not the combination of two values.
enum class ReductionForm : uint8_t { plain, truth, average, scaled };

// Whether a family has a reduction, and whether its bits depend on the order in which ranks are combined.
enum class Combination : uint8_t { no, exact, rounded };

struct TypeRow {
    uint8_t number;
    const char* name;
    const char* constant;  // of the C interface
    uint8_t bytes, align;
    TypeFamily family;
};

struct ReductionRow {
    uint8_t number;
    const char* name;
    const char* constant;
    ReductionForm form;
    Combination of_family[4];
};

namespace type_table {  // the words of the table's columns

constexpr Combination no = Combination::no, exact = Combination::exact, rounded = Combination::rounded;

inline constexpr TypeRow types[] = {
#define NEXAR_DTYPE(number, name, NAME, text, bytes, align, family) \
    {number, text, "NEXAR_" #NAME, bytes, align, TypeFamily::family},
#include "types.def"
};

inline constexpr ReductionRow reductions[] = {
#define NEXAR_REDUCTION(number, name, NAME, form, ...) \
    {number, #name, "NEXAR_" #NAME, ReductionForm::form, {__VA_ARGS__}},
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

// `no` also where a number names nothing.
constexpr Combination combination_of(uint64_t type, uint64_t reduction) {
    const TypeRow* of = find_type(type);
    const ReductionRow* by = find_reduction(reduction);
    return of != nullptr && by != nullptr ? by->of_family[static_cast<size_t>(of->family)] : Combination::no;
}
constexpr bool may_reduce(uint64_t type, uint64_t reduction) {
    return combination_of(type, reduction) != Combination::no;
}
// False also where the number names nothing.
constexpr bool has_form(uint64_t reduction, ReductionForm form) {
    const ReductionRow* row = find_reduction(reduction);
    return row != nullptr && row->form == form;
}
// A float of fewer bits than f32: its partials may be f32.
constexpr bool is_narrow(const TypeRow& type) {
    return type.family == TypeFamily::floating && type.bytes < 4;
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

}  // namespace nexar
