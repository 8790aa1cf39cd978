# nexar_unit_test(NAME unit_x MODULES x y SOURCES a_test.cpp ... [LABELS unit] [DEPS json ...] [HEADERS <x> ...]
#                 [TIMEOUT 300] [COST 1] [BUSY] [SECOND unit_x_rest])
#
# One Catch2 executable and one ctest entry; with SECOND two, each with half of the test cases, for two cores. MODULES names modules of the layer table, DEPS third-party
# targets, HEADERS what is worth precompiling for this test alone. BUSY: it computes for seconds; the others'
# own sources are compiled without optimisation, which takes half as long. COST (about its seconds): the longest tests begin first, so that no core waits for them at the end.
# A TIMEOUT ends a hang and says nothing about speed: it has room for a machine with ten times as much to do.

# Catch2's main is compiled once for all; so is the header, where the compiler's flags agree.
add_library(nexar_test_main STATIC "${CMAKE_CURRENT_LIST_DIR}/../tests/support/main.cpp")
target_include_directories(nexar_test_main PUBLIC "${PROJECT_SOURCE_DIR}/tests")
target_link_libraries(nexar_test_main PUBLIC nexar::deps_catch2 Threads::Threads PRIVATE nexar_options)

function(nexar_unit_test)
  cmake_parse_arguments(arg "BUSY" "NAME;SECOND;TIMEOUT;COST" "MODULES;SOURCES;LABELS;DEPS;HEADERS" ${ARGN})
  if(NOT arg_NAME OR NOT arg_SOURCES OR arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "nexar_unit_test needs NAME and SOURCES; got: ${ARGN}")
  endif()
  nexar_missing_parts(missing "${arg_MODULES}" "${arg_SOURCES}")
  if(missing AND NEXAR_SKIP_INCOMPLETE)
    # A target all the same, so that the list file's other commands about it stay valid.
    message(STATUS "test ${arg_NAME}: not built, still missing: ${missing}")
    add_executable(${arg_NAME} EXCLUDE_FROM_ALL "${NEXAR_EMPTY_SOURCE}")
    return()
  endif()
  if(NOT arg_LABELS)
    set(arg_LABELS unit)
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  if(NEXAR_SANITIZE)
    # Sanitized code runs several times slower; a hang is still found.
    math(EXPR arg_TIMEOUT "${arg_TIMEOUT} * 2")
  endif()

  add_executable(${arg_NAME} ${arg_SOURCES})
  list(TRANSFORM arg_MODULES PREPEND "nexar_")
  list(TRANSFORM arg_DEPS PREPEND "nexar::deps_")
  target_link_libraries(${arg_NAME} PRIVATE nexar_test_main ${arg_MODULES} ${arg_DEPS} nexar_options)
  # What is tested is checked for undefined behaviour; to check the tests as well would double their compile time.
  target_compile_options(${arg_NAME} PRIVATE ${nexar_unchecked})
  if(NOT arg_BUSY)
    target_compile_options(${arg_NAME} PRIVATE -O0)
  endif()
  if(arg_HEADERS)
    target_precompile_headers(${arg_NAME} PRIVATE ${arg_HEADERS})
  elseif(arg_BUSY)
    nexar_precompile(${arg_NAME} TEST)
  else()
    nexar_precompile(${arg_NAME} LIKE nexar_quick_test)
  endif()
  set(tests ${arg_NAME})
  if(arg_SECOND)
    list(APPEND tests ${arg_SECOND})
    add_test(NAME ${arg_NAME} COMMAND ${arg_NAME} --shard-count 2 --shard-index 0)
    add_test(NAME ${arg_SECOND} COMMAND ${arg_NAME} --shard-count 2 --shard-index 1)
  else()
    add_test(NAME ${arg_NAME} COMMAND ${arg_NAME})
  endif()
  set_tests_properties(${tests} PROPERTIES LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT})
  if(arg_COST)
    set_tests_properties(${tests} PROPERTIES COST ${arg_COST})
  endif()
  nexar_test_target(${arg_NAME} LABELS ${arg_LABELS})
endfunction()

# What a test names and does not exist yet.
function(nexar_missing_parts result modules sources)
  set(missing "")
  foreach(module IN LISTS modules)
    if(NOT TARGET "nexar_${module}")
      list(APPEND missing "module ${module}")
    endif()
  endforeach()
  foreach(source IN LISTS sources)
    if(NOT EXISTS "${CMAKE_CURRENT_SOURCE_DIR}/${source}" AND NOT EXISTS "${source}")
      list(APPEND missing "${source}")
    endif()
  endforeach()
  set(${result} "${missing}" PARENT_SCOPE)
endfunction()

# nexar_test_target(target LABELS a b): says which labels need this target, so that `ninja tests_<label>` builds
# just what the tests with that label need (the sanitizer builds do only that).
function(nexar_test_target target)
  cmake_parse_arguments(arg "" "" "LABELS" ${ARGN})
  foreach(label IN LISTS arg_LABELS)
    if(NOT TARGET tests_${label})
      add_custom_target(tests_${label})
    endif()
    add_dependencies(tests_${label} ${target})
  endforeach()
endfunction()

# nexar_fuzz_target(NAME fuzz_x MODULES x SOURCES x_fuzz.cpp CORPUS folder [DEPS json ...])
#
# The sources define LLVMFuzzerTestOneInput. With NEXAR_FUZZ (preset fuzz): a libFuzzer program, run by hand
# (build/fuzz/.../fuzz_x tests/fuzz/corpus/x). Otherwise: a program that replays the corpus and seeded mutations of
# it, a test labelled unit and fuzz.
function(nexar_fuzz_target)
  cmake_parse_arguments(arg "" "NAME;CORPUS" "MODULES;SOURCES;DEPS" ${ARGN})
  if(NOT arg_NAME OR NOT arg_SOURCES OR NOT arg_CORPUS OR arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "nexar_fuzz_target needs NAME, SOURCES and CORPUS; got: ${ARGN}")
  endif()
  list(TRANSFORM arg_MODULES PREPEND "nexar_")
  list(TRANSFORM arg_DEPS PREPEND "nexar::deps_")
  add_executable(${arg_NAME} ${arg_SOURCES})
  target_include_directories(${arg_NAME} PRIVATE "${PROJECT_SOURCE_DIR}/tests" "${PROJECT_SOURCE_DIR}/daemon")
  target_link_libraries(${arg_NAME} PRIVATE ${arg_MODULES} ${arg_DEPS} nexar_options)
  if(NEXAR_FUZZ)
    target_link_options(${arg_NAME} PRIVATE -fsanitize=fuzzer)
  else()
    target_sources(${arg_NAME} PRIVATE "${PROJECT_SOURCE_DIR}/tests/support/fuzz_replay.cpp")
    add_test(NAME ${arg_NAME} COMMAND ${arg_NAME} "${CMAKE_CURRENT_SOURCE_DIR}/${arg_CORPUS}")
    set_tests_properties(${arg_NAME} PROPERTIES LABELS "unit;fuzz" TIMEOUT 300)
    nexar_test_target(${arg_NAME} LABELS unit fuzz)
  endif()
endfunction()
