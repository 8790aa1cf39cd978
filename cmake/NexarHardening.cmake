# Hardening of what is shipped. The linker's part is in every build without sanitizers; the compiler's is in the Release
# build: the everyday build stays quick to compile, and the release's own check (tests/abi/hardening.py) runs after its
# programs are linked.
include(CheckCXXSourceCompiles)
include(CheckPIESupported)
check_pie_supported()  # from here on programs are linked with -pie

set(nexar_hardening_flags "")
foreach(flag -fstack-protector-strong -fstack-clash-protection -fcf-protection=full -mbranch-protection=standard)
  string(MAKE_C_IDENTIFIER "NEXAR_HAS${flag}" variable)
  set(CMAKE_REQUIRED_FLAGS "-Werror ${flag}")  # clang only warns of flags of another processor
  check_cxx_source_compiles("int main() { return 0; }" ${variable})
  unset(CMAKE_REQUIRED_FLAGS)
  if(${variable})
    list(APPEND nexar_hardening_flags ${flag})
  endif()
endforeach()

if(NOT NEXAR_SANITIZE)
  target_compile_options(nexar_options INTERFACE
    "$<$<CONFIG:Release>:${nexar_hardening_flags};-U_FORTIFY_SOURCE;-D_FORTIFY_SOURCE=3>")
  target_link_options(nexar_options INTERFACE -Wl,-z,relro,-z,now,-z,noexecstack)
endif()

# nexar_shipped(target): its file is checked, in the Release build whenever it was linked, in the others by a test.
function(nexar_shipped target)
  find_package(Python3 COMPONENTS Interpreter QUIET)
  if(NEXAR_SANITIZE OR NOT Python3_Interpreter_FOUND)
    return()
  endif()
  set(check "${Python3_EXECUTABLE}" -B "${PROJECT_SOURCE_DIR}/tests/abi/hardening.py")
  if(CMAKE_BUILD_TYPE STREQUAL "Release")
    add_custom_command(TARGET ${target} POST_BUILD COMMAND ${check} --release "$<TARGET_FILE:${target}>" VERBATIM)
  elseif(BUILD_TESTING)
    add_test(NAME hardening_${target} COMMAND ${check} "$<TARGET_FILE:${target}>")
    set_tests_properties(hardening_${target} PROPERTIES LABELS abi TIMEOUT 300)
  endif()
endfunction()
