# shellcheck shell=bash
# Debian packages: which are needed, which are missing, and how they get installed.

# debian_release FILE: 12 or 13, from an os-release file.
debian_release() {
    local file=$1 name
    # shellcheck disable=SC1090  # a system file
    name=$(. "$file" && printf '%s%s' "${ID:-unknown}" "${VERSION_ID:-}")
    case $name in
        debian12 | debian13) printf '%s' "${name#debian}" ;;
        *) fail "this system calls itself $name; the set-up knows Debian 12 and 13" ;;
    esac
}

packages_common=(
    clang-19 lld-19 libclang-rt-19-dev llvm-19
    cmake ninja-build pkg-config make perl patch
    libuv1-dev capnproto libcapnp-dev libspdlog-dev libhwy-dev libcli11-dev libtomlplusplus-dev
    nlohmann-json3-dev
    spin strace xz-utils dpkg-dev python3 python3-numpy iproute2 nftables
    python3-dev python3-pip python3-setuptools python3-wheel mypy
)

# needed_packages RELEASE: the packages of that Debian release, one per line.
needed_packages() {
    printf '%s\n' "${packages_common[@]}"
    local cxx=libstdc++-12-dev
    if [ "$1" = 13 ]; then
        printf '%s\n' libssl-dev libcatch2-dev
        cxx=libstdc++-14-dev
    fi
    # tests/unit/aarch64: elsewhere the ordinary tests run on AArch64 itself, or not at all. tests/unit/instructions: it
    # knows what an x86-64 takes.
    if [ "$(dpkg --print-architecture)" = amd64 ]; then
        printf '%s\n' valgrind qemu-user binutils-aarch64-linux-gnu "$cxx-arm64-cross"
    fi
}

# missing_packages RELEASE: those of them that dpkg does not have. Any package that provides a virtual name meets it.
missing_packages() {
    local have
    # dpkg-query exits 1 when one of the names is unknown; what it prints is right all the same.
    have=$(dpkg-query -W -f '${db:Status-Status} ${Package}, ${Provides},\n' 2>/dev/null | grep '^installed ' || true)
    local package
    for package in $(needed_packages "$1"); do
        case $have in
            *" $package,"* | *" $package ("*) ;;
            *) printf '%s\n' "$package" ;;
        esac
    done
}

# as_root COMMAND...: directly for root, through sudo for others.
as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    else
        sudo "$@"
    fi
}

apt_install() {
    as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get -o DPkg::Lock::Timeout=300 install -y -q --no-install-recommends "$@"
}

# The package lists may be absent or stale: one refresh, then once more.
apt_install_refreshing() {
    apt_install "$@" && return
    as_root apt-get -q update && apt_install "$@"
}

# install_packages LOG PACKAGE...
install_packages() {
    local log=$1
    shift
    if [ "$(id -u)" != 0 ] && ! command -v sudo >/dev/null; then
        fail "these packages are missing and there is no sudo here; ask an administrator to run: apt-get install $*"
    fi
    quietly "$log" "installing packages; check the network and apt's sources, then run this again" \
        apt_install_refreshing "$@"
}
