# shellcheck shell=bash
# shellcheck disable=SC2154  # top, quick and all are set by tools/test
# Fresh Debian roots: what a user with a new machine sees. Each repeats set-up, build and the demo; with --quick or --all
# before --roots also the quick tests, or all.
# The mirror, the proxy and the like are the machine's own; only the root's tarball is kept, outside the tree.

root_tarball_days=7

# The machine's apt settings that decide how anything is fetched, as mmdebstrap options.
apt_options() {
    apt-config dump | grep -E '^Acquire::(http|https|Check|Retries|ForceIPv)[^ ]* "[^"]+";$' |
        sed 's/^/--aptopt=/'
}

# make_root_tarball SUITE FILE
make_root_tarball() {
    local suite=$1 file=$2 mirror options
    if [ -n "$(find "$file" -mtime "-$root_tarball_days" 2>/dev/null)" ]; then
        return 0
    fi
    mirror=$(debian_mirror) || fail "apt's sources name no Debian mirror; run apt-get update and try again"
    mapfile -t options < <(apt_options)
    mkdir -p "${file%/*}"
    quietly "${file%.tar}.log" "making a fresh $suite root" \
        mmdebstrap --variant=apt --include=ca-certificates "${options[@]}" "$suite" "${file%.tar}.new.tar" \
        "deb $mirror $suite main"
    mv "${file%.tar}.new.tar" "$file"
}

# copy_tree INTO: the files a clone would have, with this tree's changes.
copy_tree() {
    mkdir -p "$1"
    git -C "$top" ls-files -z --cached --others --exclude-standard |
        tar -C "$top" --null --ignore-failed-read -T - -c | tar -C "$1" -x
}

# What runs inside the root, in namespaces of its own that end with it.
# shellcheck disable=SC2016  # expanded by the inner shells
root_script='
set -e
mount --bind "$1" "$1"  # a mount of its own, as the root of a machine is
cd "$1"
mount -t proc proc "$1/proc"
mount --rbind /sys "$1/sys"
mount --rbind /dev "$1/dev"
mount -t tmpfs tmpfs "$1/run"
exec chroot "$1" env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin TERM=dumb sh -c "
    cd /src/nexar && tools/demo && $2"
'

# unpack_root SUITE ROOT
unpack_root() {
    local cache=${NEXAR_DEPS_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/nexar}
    make_root_tarball "$1" "$cache/root-$1.tar" &&
        tar -C "$2" --exclude='./dev/*' -xf "$cache/root-$1.tar" &&
        cp -L /etc/resolv.conf /etc/hosts "$2/etc/" &&
        copy_tree "$2/src/nexar"
}

# test_root SUITE: status 0: everything worked. Runs in a shell of its own.
test_root() (
    root=$(mktemp -d "${TMPDIR:-/tmp}/nexar-root-$1.XXXXXX") || exit 1
    # The mounts live and die with the inner namespace: out here the root is plain files.
    trap 'rm -rf --one-file-system "$root"' EXIT
    trap 'exit 130' INT TERM
    local tests=true
    if [ "$quick" = yes ]; then tests="tools/test --quick"; fi
    if [ "$all" = yes ]; then tests=tools/test; fi
    unpack_root "$1" "$root" &&
        unshare --mount --pid --fork --kill-child --propagation private \
            bash -c "$root_script" root "$root" "$tests" </dev/null
)

require_root_tools() {
    [ "$(id -u)" = 0 ] || fail "--roots needs root (mmdebstrap and chroot): run it with sudo"
    local tool
    for tool in mmdebstrap unshare chroot; do
        command -v "$tool" >/dev/null || fail "--roots needs $tool: apt-get install mmdebstrap util-linux"
    done
}
