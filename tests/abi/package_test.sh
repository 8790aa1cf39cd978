#!/bin/bash
# [U7] Installs the client library into a fresh prefix, moves that, and builds a separate project against it: with
# find_package(nexar), in C and C++, and with pkg-config. Every part of the header is there, and compiles alone in both
# languages. Other versions are refused, and the file that programs load has the ABI's number in its name.
# Usage: package_test.sh BUILD_DIR SOURCE_DIR C_COMPILER CXX_COMPILER VERSION
set -euo pipefail
build="$1" source="$2" compiler="$3" cxx_compiler="$4" version="$5"
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

alone() { # HEADER COMPILER LANGUAGE STANDARD: nothing but it, as installed
    "$2" -x "$3" -std="$4" -pedantic -Wall -Wextra -Werror -fsyntax-only -I"$headers" -include "$1" /dev/null ||
        { echo "$1 does not compile alone as $4"; exit 1; }
}
headers="$(dirname "$(find "$work/moved" -name nexar.h)")"
diff <(cd "$source/include" && find . -name '*.h' | sort) <(cd "$headers" && find . -name '*.h' | sort)
for header in nexar.h "$headers"/nexar/*.h; do
    alone "${header#"$headers/"}" "$compiler" c c99
    alone "${header#"$headers/"}" "$cxx_compiler" c++ c++17
done
echo "the parts of the header: ok"

mkdir "$work/project"
cp "$source/tests/abi/uses_header.c" "$work/project/main.c"
cp "$source/tests/abi/uses_header.c" "$work/project/main.cpp"
cat >"$work/project/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.25)
project(uses_nexar C CXX)
find_package(nexar ${WANTED} REQUIRED)
foreach(language IN ITEMS c cpp)
  add_executable(uses_nexar_${language} main.${language})
  target_link_libraries(uses_nexar_${language} PRIVATE nexar::nexar_c)
endforeach()
END
configure() { # WANTED FOLDER
    cmake -S "$work/project" -B "$work/$2" -DWANTED="$1" -DCMAKE_PREFIX_PATH="$work/moved" \
        -DCMAKE_C_COMPILER="$compiler" -DCMAKE_CXX_COMPILER="$cxx_compiler"
}
configure "$major.$minor" out
cmake --build "$work/out"
"$work/out/uses_nexar_c"
"$work/out/uses_nexar_cpp"
readelf -d "$work/out/uses_nexar_c" | grep -q "NEEDED.*\[libnexar_c.so.$abi\]" || { echo "linked to another name"; exit 1; }
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
