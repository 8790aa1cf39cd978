# nexar_precompile(target LIKE other | TEST)
#
# The standard library's headers are half of what a file compiles. With NEXAR_PRECOMPILE (all presets that build
# everything at once) they are compiled once: LIKE shares those of a target that has the same flags, TEST makes this
# target's own, with Catch2's.
# A module's own files are compiled several at a time, so that what they share is compiled once, too.
# The everyday build does without: one file is compiled again in seconds. tests/tidy/includes.py has the same headers, and
# shows that every file includes what it uses of them.

option(NEXAR_PRECOMPILE "Compile the standard headers once, and a module's files several at a time" OFF)

set(nexar_common_headers
  <algorithm> <array> <atomic> <charconv> <chrono> <cstdint> <cstring> <deque> <functional> <map> <memory> <optional>
  <set> <span> <string> <string_view> <variant> <vector>)

function(nexar_precompile target)
  cmake_parse_arguments(arg "TEST" "LIKE" "" ${ARGN})
  if(NEXAR_PRECOMPILE AND arg_LIKE)
    target_precompile_headers(${target} REUSE_FROM ${arg_LIKE})
  elseif(NEXAR_PRECOMPILE AND arg_TEST)
    target_precompile_headers(${target} PRIVATE ${nexar_common_headers} <catch2/catch_test_macros.hpp>)
  endif()
endfunction()

# nexar_unity(target): names that are private to one of its files must not clash with another's.
function(nexar_unity target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${NEXAR_PRECOMPILE} UNITY_BUILD_BATCH_SIZE 12)
endfunction()

# What LIKE names: one for code that may become part of a shared library, one for tests that are not busy.
if(NEXAR_PRECOMPILE)
  set(empty_program "${PROJECT_BINARY_DIR}/cmake/nexar_main.cpp")
  file(GENERATE OUTPUT "${empty_program}" CONTENT "int main() {}\n")
  add_library(nexar_code STATIC EXCLUDE_FROM_ALL "${empty_program}")
  target_link_libraries(nexar_code PRIVATE nexar_options Threads::Threads)
  target_precompile_headers(nexar_code PRIVATE ${nexar_common_headers})
  add_executable(nexar_quick_test EXCLUDE_FROM_ALL "${empty_program}")
  target_link_libraries(nexar_quick_test PRIVATE nexar_options nexar::deps_catch2 Threads::Threads)
  target_compile_options(nexar_quick_test PRIVATE ${nexar_unchecked} -O0)
  nexar_precompile(nexar_quick_test TEST)
endif()
