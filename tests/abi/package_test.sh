#!/bin/bash
# [U7] Installs the client library into a fresh prefix, moves that, and builds a separate project against it: with
# find_package(nexar) and with pkg-config. Other versions are refused, and the file that programs load has the ABI's
# number in its name. Usage: package_test.sh BUILD_DIR SOURCE_DIR C_COMPILER VERSION
set -euo pipefail
build="$1" source="$2" compiler="$3" version="$4"
IFS=. read -r major minor _ <<<"$version"
abi="$major"
if [ "$major" = 0 ]; then abi="0.$minor"; fi # until 1.0 each 0.N is an ABI of its own (docs/abi.md)
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

cmake --install "$build" --component nexar_c --prefix "$work/first" >"$work/log" || { cat "$work/log"; exit 1; }
mv "$work/first" "$work/moved"
libraries="$(dirname "$(find "$work/moved" -name libnexar_c.so)")"
for name in libnexar_c.so "libnexar_c.so.$abi" "libnexar_c.so.$version"; do
    [ -e "$libraries/$name" ] || { echo "not installed: $name"; ls "$libraries"; exit 1; }
done

mkdir "$work/project"
cp "$source/tests/abi/uses_header.c" "$work/project/main.c"
cat >"$work/project/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.25)
project(uses_nexar C)
find_package(nexar ${WANTED} REQUIRED)
add_executable(uses_nexar main.c)
target_link_libraries(uses_nexar PRIVATE nexar::nexar_c)
END
configure() { # WANTED FOLDER
    cmake -S "$work/project" -B "$work/$2" -DWANTED="$1" -DCMAKE_PREFIX_PATH="$work/moved" -DCMAKE_C_COMPILER="$compiler"
}
configure "$major.$minor" out
cmake --build "$work/out"
"$work/out/uses_nexar"
readelf -d "$work/out/uses_nexar" | grep -q "NEEDED.*\[libnexar_c.so.$abi\]" || { echo "linked to another name"; exit 1; }
echo "find_package: ok"

for other in 0.1 "$major.$((minor + 1))" "$((major + 1)).0"; do
    if configure "$other" "refused-$other" >"$work/log" 2>&1; then
        echo "find_package took $version for $other"
        exit 1
    fi
    grep -q "version: $version" "$work/log" || { cat "$work/log"; exit 1; }
done
echo "find_package refuses other versions: ok"

if command -v pkg-config >/dev/null; then
    PKG_CONFIG_PATH="$(dirname "$(find "$work/moved" -name nexar.pc)")"
    export PKG_CONFIG_PATH
    # shellcheck disable=SC2046
    "$compiler" "$work/project/main.c" -o "$work/by_pc" $(pkg-config --cflags --libs nexar)
    LD_LIBRARY_PATH="$libraries" "$work/by_pc"
    pkg-config "nexar >= $major.$minor nexar < $major.$((minor + 1))"
    if pkg-config "nexar < $major.$minor"; then echo "nexar.pc says an older version"; exit 1; fi
    echo "pkg-config: ok"
fi
