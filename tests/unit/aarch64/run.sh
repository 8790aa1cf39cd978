#!/bin/bash
# The tests of a module on AArch64: compiled with clang for it, and run under qemu-user. Of reduce/ the golden bits are compared on
# NEON too, by a host that has none, and with SVE of three lengths. Of shm/ and link/ the words that processes share and the frames that
# nodes exchange have the same layout there. (What that processor may reorder is not seen: qemu keeps the host's order.)
# Half a minute of two cores each; exits 77, with the reason, where a tool is missing: tools/setup installs them.
#
#     run.sh reduce|shm|link [PART-OF-A-TEST-CASE'S-NAME]
#
# Only Highway's headers are needed, and Catch2 is replaced by a header beside this file: so nothing of Debian's arm64 is.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
module=${1:?reduce, shm or link}

skip() {
    echo "skipped: $1"
    exit 77
}

qemu=$(command -v qemu-aarch64 || command -v qemu-aarch64-static) || skip "qemu-aarch64 is missing (Debian: qemu-user)"
clang=$(command -v clang++-19 || command -v clang++) || skip "clang++ is missing"
ls -d /usr/aarch64-linux-gnu/include/c++/* > /dev/null 2>&1 ||
    skip "the C++ library for AArch64 is missing (Debian: libstdc++-*-dev-arm64-cross)"
command -v aarch64-linux-gnu-ld > /dev/null || skip "the linker for AArch64 is missing (Debian: binutils-aarch64-linux-gnu)"
[ -f /usr/include/hwy/highway.h ] || skip "Highway's headers are missing (Debian: libhwy-dev)"

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
# Highway alone, not the host's other headers.
mkdir "$out/include"
ln -s /usr/include/hwy "$out/include/hwy"

# compile FOLDER FLAG...: the tests as a program for AArch64, $out/FOLDER/tests.
compile() {
    local folder=$out/$1
    shift
    mkdir "$folder"
    local modules=(core "$module") each
    if [ "$module" = link ]; then modules+=(reduce); fi
    # A module's files are compiled together (cmake/NexarPrecompile.cmake), but for the kernels, which Highway includes
    # again and again.
    for each in "${modules[@]}"; do
        printf '%s\n' "$root/daemon/$each"/*.cpp | grep -v '/kernels' | sed 's/.*/#include "&"/' > "$folder/$each.cpp"
    done
    {
        if [ -e "$folder/reduce.cpp" ]; then printf '%s\n' "$root/daemon/reduce"/kernels*.cpp; fi
        printf '%s\n' "$folder"/*.cpp "$root/tests/unit/$module"/*.cpp "$here/main.cpp"
    } |
        (cd "$folder" && xargs -P "$(nproc)" -n 1 "$clang" --target=aarch64-linux-gnu "$@" -std=c++2b -O2 -ffp-contract=off \
            -w -D_GNU_SOURCE -DHWY_SHARED_DEFINE -I"$here" -I"$root/tests/unit/$module" -I"$root/tests" -I"$root/daemon" -I"$root/proto" -I"$out/include" -c)
    "$clang" --target=aarch64-linux-gnu -static -pthread "$folder"/*.o -o "$folder/tests"
}

# run CPU PROGRAM PART
run() {
    echo "== $1"
    "$qemu" -cpu "$1" "$out/$2/tests" "$3"
}

only=${2:-}
compile neon
if [ "$module" != reduce ]; then
    run cortex-a53 neon "$only"
    exit
fi
# For machines with SVE: kernels stay NEON (reduce/targets.hpp); what the compiler makes of the plain loops uses SVE, with vectors
# of the machine's length.
compile sve -march=armv9-a
runs=()
start() {
    run "$@" > "$out/run-${#runs[@]}" 2>&1 &
    runs+=($!)
}
start cortex-a53 neon "$only"
for bits in 128 256 512; do start "max,sve$bits=on,sve-max-vq=$((bits / 128))" sve "$only"; done
status=0
for i in "${!runs[@]}"; do
    wait "${runs[i]}" || status=1
    cat "$out/run-$i"
done
exit "$status"
