// What the environment says of the group that a process is to join: nexarctl run's variables, or another
// launcher's.
#pragma once

#include <span>

#include "core/result.hpp"
#include "nexar.h"

namespace nexar::c {

struct Environment {
    const char* (*get)(const char* name);  // getenv; tests give their own
    const char* const* all;                // environ
};

// This process's.
Environment environment();

constexpr size_t environment_name_bytes = 2 * NEXAR_NAME_TEXT;

// Writes defaults and what is said into `out`, whose strings point into `name` (environment_name_bytes) and
// into the environment.
//   not_found          no rank and size; the rest is filled in
//   invalid_argument   a variable makes no sense, or NEXAR_RANK or NEXAR_WORLD_SIZE stands alone: the
//   defaults
Result<void> from_environment(const Environment& environment, std::span<char> name, nexar_group_options& out);

// The variable that says this rank; null: none does.
const char* rank_variable(const Environment& environment, uint32_t rank);

}  // namespace nexar::c
