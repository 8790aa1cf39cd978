# Every third-party library, found in one place. Each is an imported target to be named in DEPS:
#
#   nexar::deps_openssl   OpenSSL >= 3.5 (prefix, static, on Debian 12; the system's on Debian 13)
#   nexar::deps_ngtcp2    ngtcp2 and its OpenSSL glue, static, from the prefix; brings deps_openssl
#   nexar::deps_uv        libuv >= 1.44
#   nexar::deps_capnp     Cap'n Proto serialisation (capnp_generate_cpp() is there too)
#   nexar::deps_spdlog    spdlog with the system's fmt
#   nexar::deps_hwy       Highway
#   nexar::deps_cli11     CLI11
#   nexar::deps_toml      toml++
#   nexar::deps_json      nlohmann JSON
#   nexar::deps_catch2    Catch2 v3 without its main (tests only)
#
# "The prefix" is what tools/setup built outside the tree; `tools/setup --print-prefix` names it.
# nghttp3 will stand beside ngtcp2 here when HTTP/3 comes.

set(NEXAR_DEPS_PREFIX "" CACHE PATH "Libraries built by tools/setup; empty: ask tools/setup")
set(prefix "${NEXAR_DEPS_PREFIX}")
if(NOT prefix)
  execute_process(COMMAND "${PROJECT_SOURCE_DIR}/tools/setup" --print-prefix
                  OUTPUT_VARIABLE prefix OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed)
  if(failed)
    message(FATAL_ERROR "tools/setup --print-prefix failed; set NEXAR_DEPS_PREFIX to a prefix by hand.")
  endif()
endif()
if(NOT EXISTS "${prefix}/lib/libngtcp2.a")
  message(FATAL_ERROR "No dependencies in ${prefix}: run tools/setup first.")
endif()
message(STATUS "Dependencies built by tools/setup: ${prefix}")

find_package(PkgConfig REQUIRED)

# The distribution's Python: python3-numpy belongs to it, and not to another one that comes first in PATH.
if(EXISTS /usr/bin/python3)
  set(Python3_EXECUTABLE /usr/bin/python3 CACHE FILEPATH "The Python of the tests")
endif()

# An imported interface target that forwards to others.
function(nexar_dependency name)
  add_library(nexar_deps_${name} INTERFACE IMPORTED GLOBAL)
  target_link_libraries(nexar_deps_${name} INTERFACE ${ARGN})
  add_library(nexar::deps_${name} ALIAS nexar_deps_${name})
endfunction()

function(nexar_dependency_pkg name spec)
  pkg_check_modules(pc_${name} REQUIRED IMPORTED_TARGET GLOBAL "${spec}")
  nexar_dependency(${name} PkgConfig::pc_${name})
endfunction()

# OpenSSL: the prefix's own wins over whatever the system has.
if(EXISTS "${prefix}/lib/libssl.a")
  add_library(nexar_deps_crypto_static STATIC IMPORTED GLOBAL)
  set_target_properties(nexar_deps_crypto_static PROPERTIES
    IMPORTED_LOCATION "${prefix}/lib/libcrypto.a"
    INTERFACE_INCLUDE_DIRECTORIES "${prefix}/include"
    INTERFACE_LINK_LIBRARIES "Threads::Threads;${CMAKE_DL_LIBS}")
  add_library(nexar_deps_ssl_static STATIC IMPORTED GLOBAL)
  set_target_properties(nexar_deps_ssl_static PROPERTIES
    IMPORTED_LOCATION "${prefix}/lib/libssl.a"
    INTERFACE_INCLUDE_DIRECTORIES "${prefix}/include"
    INTERFACE_LINK_LIBRARIES nexar_deps_crypto_static)
  nexar_dependency(openssl nexar_deps_ssl_static)
else()
  nexar_dependency_pkg(openssl "openssl>=3.5.0")
endif()

add_library(nexar_deps_ngtcp2_core STATIC IMPORTED GLOBAL)
set_target_properties(nexar_deps_ngtcp2_core PROPERTIES
  IMPORTED_LOCATION "${prefix}/lib/libngtcp2.a"
  INTERFACE_INCLUDE_DIRECTORIES "${prefix}/include"
  INTERFACE_COMPILE_DEFINITIONS NGTCP2_STATICLIB)
add_library(nexar_deps_ngtcp2_ossl STATIC IMPORTED GLOBAL)
set_target_properties(nexar_deps_ngtcp2_ossl PROPERTIES
  IMPORTED_LOCATION "${prefix}/lib/libngtcp2_crypto_ossl.a"
  INTERFACE_INCLUDE_DIRECTORIES "${prefix}/include"
  INTERFACE_LINK_LIBRARIES "nexar_deps_ngtcp2_core;nexar_deps_openssl")
nexar_dependency(ngtcp2 nexar_deps_ngtcp2_ossl)

nexar_dependency_pkg(uv "libuv>=1.44")
nexar_dependency_pkg(hwy "libhwy>=1.0.3")

find_package(CapnProto CONFIG REQUIRED)
nexar_dependency(capnp CapnProto::capnp)
find_package(spdlog CONFIG REQUIRED)
nexar_dependency(spdlog spdlog::spdlog)
find_package(CLI11 CONFIG REQUIRED)
nexar_dependency(cli11 CLI11::CLI11)
find_package(nlohmann_json 3.11 CONFIG REQUIRED)
nexar_dependency(json nlohmann_json::nlohmann_json)
# Header-only: Debian's shared build of toml++ throws, and the daemon parses without exceptions.
add_library(nexar::deps_toml INTERFACE IMPORTED)
target_compile_definitions(nexar::deps_toml INTERFACE TOML_HEADER_ONLY=1 TOML_EXCEPTIONS=0)

if(BUILD_TESTING)
  find_package(Catch2 3 CONFIG REQUIRED HINTS "${prefix}")
  nexar_dependency(catch2 Catch2::Catch2)
endif()
