# nexar_module(NAME x USES a b [DEPS uv ...] [DRY|WET])
#
# One line of the layer table in daemon/CMakeLists.txt. Creates the static library nexar_x, which may
# include core/..., itself, and the modules after USES, and nothing else (tests/tidy/layers.py reads the
# same lines). DEPS are third-party targets nexar::deps_<name>, seen by the module's own sources only.
# The folder's CMakeLists.txt adds the files: target_sources(nexar_x PRIVATE a.cpp b.cpp).
# A folder without CMakeLists.txt is skipped.

function(nexar_module)
  cmake_parse_arguments(arg "DRY;WET" "NAME" "USES;DEPS" ${ARGN})
  if(NOT arg_NAME OR arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "nexar_module needs NAME and knows USES, DEPS, DRY, WET; got: ${ARGN}")
  endif()
  set(target "nexar_${arg_NAME}")
  if(NOT EXISTS "${CMAKE_CURRENT_SOURCE_DIR}/${arg_NAME}/CMakeLists.txt")
    message(STATUS "module ${arg_NAME}: not there yet, skipped")
    return()
  endif()
  nexar_make_module_target(${target})
  foreach(used IN LISTS arg_USES)
    if(TARGET "nexar_${used}")
      target_link_libraries(${target} PUBLIC "nexar_${used}")
    else()
      message(STATUS "module ${arg_NAME}: its layer '${used}' is not there yet")
    endif()
  endforeach()
  foreach(dep IN LISTS arg_DEPS)
    target_link_libraries(${target} PRIVATE "nexar::deps_${dep}")
  endforeach()
  add_subdirectory("${arg_NAME}")
  if(NEXAR_SKIP_INCOMPLETE)
    nexar_drop_missing_sources(${target})
  endif()
endfunction()

# Files that a list names and nobody has written yet would stop the whole configuration.
function(nexar_drop_missing_sources target)
  get_target_property(sources ${target} SOURCES)
  set(present "")
  foreach(source IN LISTS sources)
    if(source MATCHES "^\\$<" OR EXISTS "${source}" OR source MATCHES "^${PROJECT_BINARY_DIR}/")
      list(APPEND present "${source}")
    else()
      message(STATUS "${target}: ${source} is not there yet, left out")
    endif()
  endforeach()
  set_target_properties(${target} PROPERTIES SOURCES "${present}")
endfunction()

set(NEXAR_EMPTY_SOURCE "${PROJECT_BINARY_DIR}/cmake/nexar_empty.cpp")
file(GENERATE OUTPUT "${NEXAR_EMPTY_SOURCE}" CONTENT "// Generated: a file without code.\n")

# A static library that may also have headers only: the empty source gives it a language.
function(nexar_make_module_target target)
  add_library(${target} STATIC "${NEXAR_EMPTY_SOURCE}")
  target_include_directories(${target} PUBLIC "${PROJECT_SOURCE_DIR}/daemon" "${PROJECT_SOURCE_DIR}/proto")
  target_link_libraries(${target} PRIVATE nexar_options Threads::Threads)
  nexar_precompile(${target} LIKE nexar_code)
  nexar_unity(${target})
endfunction()

# add_subdirectory for those that exist already.
function(nexar_subdirectories)
  foreach(folder IN LISTS ARGN)
    if(EXISTS "${CMAKE_CURRENT_SOURCE_DIR}/${folder}/CMakeLists.txt")
      add_subdirectory("${folder}")
    endif()
  endforeach()
endfunction()
