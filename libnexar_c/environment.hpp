// from_environment: the group that a process is to join, by the variables of nexarctl run or another
// launcher.
#pragma once

#include <span>

#include "core/result.hpp"
#include "nexar.h"

namespace nexar::c {

struct Environment {
    const char* (*get)(const char* name);  // getenv, or a test's function
    const char* const* all;                // environ
};

// This process's.
Environment environment();

constexpr size_t environment_name_bytes = 2 * NEXAR_NAME_TEXT;

// Writes the defaults and the variables' values into `out`, whose strings point into `name`
// (environment_name_bytes) and into the environment.
//   not_found          no rank and size; the rest is filled in
//   invalid_argument   a variable's value is not allowed, or only one of NEXAR_RANK and NEXAR_WORLD_SIZE is
//   set;
//                      `out` has the defaults
Result<void> from_environment(const Environment& environment, std::span<char> name, nexar_group_options& out);

// The variable that has this rank; null: none has.
const char* rank_variable(const Environment& environment, uint32_t rank);

}  // namespace nexar::c
