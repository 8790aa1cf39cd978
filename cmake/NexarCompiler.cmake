# Chooses the compiler before project(): clang 19 by default.
if(NOT DEFINED CMAKE_CXX_COMPILER AND NOT DEFINED ENV{CXX} AND
   NOT DEFINED CMAKE_C_COMPILER AND NOT DEFINED ENV{CC} AND NOT DEFINED CMAKE_TOOLCHAIN_FILE)
  find_program(NEXAR_CLANGXX clang++-19)
  find_program(NEXAR_CLANG clang-19)
  mark_as_advanced(NEXAR_CLANGXX NEXAR_CLANG)
  if(NEXAR_CLANGXX AND NEXAR_CLANG)
    set(CMAKE_CXX_COMPILER "${NEXAR_CLANGXX}")
    set(CMAKE_C_COMPILER "${NEXAR_CLANG}")
  endif()
endif()

# One configuration generators only; optimised with line tables is the everyday build.
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Debug, Release, RelWithDebInfo" FORCE)
endif()
if(NOT DEFINED CMAKE_CXX_FLAGS_RELWITHDEBINFO) # presets may say otherwise
  # No NDEBUG: check() and assert() of dependencies stay on.
  set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1" CACHE STRING "")
  set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O2 -g1" CACHE STRING "")
endif()
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
