# nexar_options: the language standards, warnings and sanitizers of every target of this project.
# Link it PRIVATE (nexar_module and nexar_unit_test do). Nobody edits CMAKE_CXX_FLAGS.

if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 19)
elseif(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 14)
else()
  message(FATAL_ERROR
    "nexar needs clang >= 19 or g++ >= 14, but the C++ compiler is ${CMAKE_CXX_COMPILER_ID} "
    "${CMAKE_CXX_COMPILER_VERSION}. Run tools/setup, or set CXX=clang++-19 CC=clang-19.")
endif()

set(NEXAR_SANITIZE "" CACHE STRING "Sanitizers: empty, 'address;undefined' or 'thread'")
option(NEXAR_WERROR "Warnings are errors (set by the presets)" OFF)
option(NEXAR_SKIP_INCOMPLETE "Leave out unit tests whose files are not written yet (the presets do not)" ON)
option(NEXAR_FUZZ "Build the fuzz targets with libFuzzer (clang)" OFF)

set(CMAKE_CXX_STANDARD 23)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)

add_library(nexar_options INTERFACE)
set(both_warnings -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion)
target_compile_options(nexar_options INTERFACE
  # Sums must be the same on every host: a fused multiply-add rounds once where another host rounds twice.
  -ffp-contract=off
  ${both_warnings}
  "$<$<COMPILE_LANGUAGE:CXX>:-Wold-style-cast;-Woverloaded-virtual>"
  # g++ 14 sees overruns in the short form of std::string wherever it inlines its operations.
  "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wshadow=local;-Wno-array-bounds;-Wno-stringop-overflow>"
  "$<$<COMPILE_LANG_AND_ID:CXX,Clang>:-Wshadow>"
  "$<$<BOOL:${NEXAR_WERROR}>:-Werror>")
target_compile_definitions(nexar_options INTERFACE _GNU_SOURCE)

if(NEXAR_SANITIZE)
  list(JOIN NEXAR_SANITIZE "," nexar_sanitize_list)
  set(nexar_sanitize_flags "-fsanitize=${nexar_sanitize_list}" -fno-sanitize-recover=all -fno-omit-frame-pointer)
  if("address" IN_LIST NEXAR_SANITIZE AND "undefined" IN_LIST NEXAR_SANITIZE)
    # What these see the address sanitizer sees, too; they are a third of the compile time.
    list(APPEND nexar_sanitize_flags -fno-sanitize=null,object-size,vptr)
  endif()
  target_compile_options(nexar_options INTERFACE ${nexar_sanitize_flags})
  if("undefined" IN_LIST NEXAR_SANITIZE)
    set(nexar_unchecked -fno-sanitize=undefined)  # for tests' own sources
  endif()
  target_link_options(nexar_options INTERFACE "-fsanitize=${nexar_sanitize_list}")
endif()

if(NEXAR_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "NEXAR_FUZZ needs clang's libFuzzer; the compiler is ${CMAKE_CXX_COMPILER_ID}.")
  endif()
  target_compile_options(nexar_options INTERFACE -fsanitize=fuzzer-no-link)
endif()

# lld links this project in a third of the time; the compiler's default linker will do without it.
find_program(NEXAR_LLD NAMES ld.lld-19 ld.lld)
mark_as_advanced(NEXAR_LLD)
if(NEXAR_LLD AND CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  target_link_options(nexar_options INTERFACE -fuse-ld=lld)
  # A small message runs through a little code of every module: optimised together it is 5 to 8 % faster. It takes the
  # linker and the archiver of the same release as the compiler.
  if(NOT DEFINED CMAKE_INTERPROCEDURAL_OPTIMIZATION_RELEASE AND NOT DEFINED CMAKE_INTERPROCEDURAL_OPTIMIZATION AND
     CMAKE_CXX_COMPILER_AR AND NOT NEXAR_SANITIZE)
    execute_process(COMMAND "${CMAKE_CXX_COMPILER}" -fuse-ld=lld -Wl,--version
      OUTPUT_VARIABLE nexar_lld_version ERROR_QUIET)
    string(REGEX MATCH "^[0-9]+" nexar_major "${CMAKE_CXX_COMPILER_VERSION}")
    if(nexar_lld_version MATCHES "LLD ${nexar_major}[.]")
      set(CMAKE_INTERPROCEDURAL_OPTIMIZATION_RELEASE ON)
    endif()
  endif()
endif()

find_package(Threads REQUIRED)
