#!/usr/bin/env bash
# systemd-analyze verify says nothing about the unit, and its security score is what docs/operations.md states. Arguments: the configured unit, and its two programs' folders.
# Skips (77) where there is no systemd-analyze.
set -euo pipefail

unit=$1
bindir=$2
sbindir=$3

if ! command -v systemd-analyze >/dev/null; then
    echo "skipped: no systemd-analyze here"
    exit 77
fi

# The programs are not installed yet, and verify wants to see them: stand-ins take their places.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin"
for program in nexard nexarctl; do
    printf '#!/bin/sh\n' >"$work/bin/$program"
    chmod +x "$work/bin/$program"
done
sed -e "s|$sbindir/nexard\$|$work/bin/nexard|" -e "s|$bindir/nexarctl |$work/bin/nexarctl |" \
    "$unit" >"$work/nexard.service"
grep -q "=$work/bin/nexard\$" "$work/nexard.service" || { echo "ExecStart is not where it was"; exit 1; }

report=$(systemd-analyze verify --man=no "$work/nexard.service" 2>&1) || { echo "$report"; exit 1; }
if [ -n "$report" ]; then
    echo "$report"
    exit 1
fi

# [U16] 19: 1.9, in tenths. Versions of systemd differ in what they rate, so a later one may need another figure.
report=$(systemd-analyze security --offline=true --threshold=19 "$work/nexard.service" 2>&1) || { echo "$report"; exit 1; }

# The check can fail: a key that does not exist is complained about.
echo 'NoSuchKey=yes' | sed 's/^/[Service]\n/' >>"$work/nexard.service"
report=$(systemd-analyze verify --man=no "$work/nexard.service" 2>&1) || true
[ -n "$report" ] || { echo "verify does not notice a bad key"; exit 1; }
