#!/bin/bash
# Installs the client library into a fresh prefix, moves that, and builds a separate project against it: with
# find_package(nexar) and with pkg-config. Usage: package_test.sh BUILD_DIR SOURCE_DIR C_COMPILER
set -euo pipefail
build="$1" source="$2" compiler="$3"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

cmake --install "$build" --component nexar_c --prefix "$work/first" >"$work/log" || { cat "$work/log"; exit 1; }
mv "$work/first" "$work/moved"
mkdir "$work/project"
cp "$source/tests/abi/uses_header.c" "$work/project/main.c"
cat >"$work/project/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.25)
project(uses_nexar C)
find_package(nexar 0.1 REQUIRED)
add_executable(uses_nexar main.c)
target_link_libraries(uses_nexar PRIVATE nexar::nexar_c)
END
cmake -S "$work/project" -B "$work/out" -DCMAKE_PREFIX_PATH="$work/moved" -DCMAKE_C_COMPILER="$compiler"
cmake --build "$work/out"
"$work/out/uses_nexar"
echo "find_package: ok"

if command -v pkg-config >/dev/null; then
    pc="$(dirname "$(find "$work/moved" -name nexar.pc)")"
    # shellcheck disable=SC2046
    "$compiler" "$work/project/main.c" -o "$work/by_pc" $(PKG_CONFIG_PATH="$pc" pkg-config --cflags --libs nexar)
    LD_LIBRARY_PATH="$(dirname "$(find "$work/moved" -name libnexar_c.so)")" "$work/by_pc"
    echo "pkg-config: ok"
fi
