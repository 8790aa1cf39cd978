#!/usr/bin/env bash
# The failure paths of tools/setup and tools/test: each ends with one clear line and the right status.
set -uo pipefail

top=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../..
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

# expect NAME STATUS PATTERN COMMAND...: runs the command in a shell that has the tools' functions.
expect() {
    local name=$1 status=$2 pattern=$3 got output
    shift 3
    output=$(
        # shellcheck disable=SC1090,SC1091
        for part in say packages fetch; do . "$top/tools/lib/$part.sh"; done
        set -e
        "$@" 2>&1
    )
    got=$?
    if [ "$got" != "$status" ] || ! grep -qE -- "$pattern" <<<"$output"; then
        printf 'FAILED: %s\n  expected status %s and /%s/, got status %s and:\n%s\n' \
            "$name" "$status" "$pattern" "$got" "$output"
        failures=$((failures + 1))
    fi
}

# fake NAME BODY: a program of that name that comes first in PATH (for `with_fakes`).
fake() {
    mkdir -p "$work/bin"
    printf '#!/bin/sh\n%s\n' "$2" >"$work/bin/$1"
    chmod +x "$work/bin/$1"
}
with_fakes() { PATH=$work/bin:$PATH "$@"; }
only_fakes() { PATH=$work/bin "$@"; }

# Distributions.
printf 'ID=debian\nVERSION_ID="13"\n' >"$work/os13"
printf 'ID=ubuntu\nVERSION_ID="24.04"\n' >"$work/ubuntu"
expect "Debian 13 is known" 0 '^13$' debian_release "$work/os13"
expect "another system is refused by name" 1 'calls itself ubuntu24.04' debian_release "$work/ubuntu"

# Packages.
fake dpkg-query 'printf "installed cmake, ,\nunknown make, ,\ninstalled pkgconf, pkg-config (= 1.8), x,\n"; exit 1'
missing_line() { with_fakes missing_packages "$1" | tr '\n' ' '; }
expect "a package that is only known counts as missing" 0 '(^| )make ' missing_line 12
expect "Debian 13's own packages are asked for there" 0 'libssl-dev libcatch2-dev' missing_line 13
fake dpkg 'echo amd64'
expect "Debian 12's C++ library for AArch64 is asked for there" 0 'qemu-user .*libstdc\+\+-12-dev-arm64-cross' missing_line 12
expect "and Debian 13's there" 0 'qemu-user .*libstdc\+\+-14-dev-arm64-cross' missing_line 13
fake dpkg 'echo arm64'
no_cross() { ! missing_line "$1" | grep -qE 'arm64-cross|qemu|valgrind'; }
expect "a machine that is AArch64 needs none with Debian 12" 0 '' no_cross 12
expect "nor with Debian 13" 0 '' no_cross 13
expect "where it has Debian 13's own packages" 0 'libssl-dev libcatch2-dev' missing_line 13
not_listed() { ! missing_line 12 | grep -qE "(^| )$1 "; }
expect "an installed package is not missing" 0 '' not_listed cmake
expect "a virtual package is met by its provider" 0 '' not_listed pkg-config
fake id 'echo 1000'
expect "a user without sudo learns what to ask for" 1 'ask an administrator.* cmake make$' \
    only_fakes install_packages "$work/log" cmake make
fake id 'echo 0'
fake env 'echo "E: Unable to fetch some archives"; exit 100'
fake apt-get 'echo "E: no network"; exit 100'
expect "a failed installation says why, what to do and where the log is" 1 \
    'installing packages failed: E: .*; check the network.*; log: .*/log$' \
    with_fakes install_packages "$work/log" cmake
rm -r "${work:?}/bin"

# Fetching.
fake apt-get 'exit 0'
expect "apt without a Debian mirror fails" 1 '' with_fakes debian_mirror
printf 'content' >"$work/archive.tar.xz"
mkdir -p "$work/fetch"
wrong=0000000000000000000000000000000000000000000000000000000000000000
# curl OPTION... -o INTO URL
fake curl "while [ \$# -gt 2 ]; do shift; done; cp '$work/archive.tar.xz' \"\$1\""
expect "an archive with another hash is refused" 1 'archive.tar.xz: FAILED' \
    with_fakes fetch_upstream "$work/fetch" package https://example.invalid/archive.tar.xz "$wrong"

# The programs themselves.
expect "an unknown option of setup is named" 1 "unknown option '--bogus'" "$top/tools/setup" --bogus
expect "an unknown option of test is named" 1 "unknown option '--bogus'" "$top/tools/test" --bogus
expect "the prefix is a path in the cache" 0 "^$work/cache/deps-debian1[23]-" \
    env NEXAR_DEPS_DIR="$work/cache" "$top/tools/setup" --print-prefix

# Counting.
cat >"$work/junit.xml" <<'XML'
<testsuite>
  <testcase name="a" status="run"/>
  <testcase name="b" status="fail"><failure message=""/></testcase>
  <testcase name="no executable" status="notrun"><skipped message="Unable to find executable: x"/></testcase>
  <testcase name="exit 77" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/></testcase>
  <testcase name="off" status="disabled"/>
</testsuite>
XML
expect "a test that cannot start is a failure, a skipped one is not" 0 '^1 2 2$' \
    python3 "$top/tools/lib/count_tests.py" "$work/junit.xml"

[ "$failures" = 0 ] || exit 1
