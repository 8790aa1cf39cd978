#!/bin/bash
# The tests of reduce/ on AArch64: compiled with clang for it, and run under qemu-user. So the golden bits are compared on
# NEON too, by a host that has none. Half a minute; exits 77, with the reason, where a tool is missing.
#
#     run.sh [PART-OF-A-TEST-CASE'S-NAME]
#
# On Debian it needs qemu-user, libstdc++-12-dev-arm64-cross and binutils-aarch64-linux-gnu besides what the build needs. Catch2
# is replaced by a header beside this file.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../../.." && pwd)

skip() {
    echo "skipped: $1"
    exit 77
}

qemu=$(command -v qemu-aarch64 || command -v qemu-aarch64-static) || skip "qemu-aarch64 is missing (Debian: qemu-user)"
clang=$(command -v clang++-19 || command -v clang++) || skip "clang++ is missing"
ls -d /usr/aarch64-linux-gnu/include/c++/* > /dev/null 2>&1 ||
    skip "the C++ library for AArch64 is missing (Debian: libstdc++-12-dev-arm64-cross)"
command -v aarch64-linux-gnu-ld > /dev/null || skip "the linker for AArch64 is missing (Debian: binutils-aarch64-linux-gnu)"
[ -f /usr/include/hwy/highway.h ] || skip "Highway's headers are missing (Debian: libhwy-dev)"

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
# Highway alone, not the host's other headers.
mkdir "$out/include"
ln -s /usr/include/hwy "$out/include/hwy"

flags=(--target=aarch64-linux-gnu -std=c++2b -O2 -ffp-contract=off -static -w -DHWY_SHARED_DEFINE
       -I"$here" -I"$root/tests/unit/reduce" -I"$root/daemon" -I"$root/proto" -I"$out/include")
sources=("$root"/daemon/reduce/*.cpp "$root"/tests/unit/reduce/*.cpp "$here/main.cpp")
objects=()
for source in "${sources[@]}"; do
    object="$out/$(echo "${source#"$root"/}" | tr / _).o"
    "$clang" "${flags[@]}" -c "$source" -o "$object"
    objects+=("$object")
done
"$clang" "${flags[@]}" "${objects[@]}" -o "$out/reduce_tests"
"$qemu" "$out/reduce_tests" "$@"
