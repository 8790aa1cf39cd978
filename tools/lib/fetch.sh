# shellcheck shell=bash
# Sources and binary packages of other Debian suites, through a private apt state: it needs no root, changes
# nothing in the system, and verifies all it gets by Debian's own signatures. The mirror is the machine's own.

debian_keyring=/usr/share/keyrings/debian-archive-keyring.gpg

# debian_mirror SUITE: the machine's mirror that has it. The security archive is one of its own.
debian_mirror() {
    local codename uri label=Debian
    codename=$(. /etc/os-release && printf '%s' "${VERSION_CODENAME:-}")
    case $1 in *-security) label=Debian-Security codename=$codename-security ;; esac
    # shellcheck disable=SC2016  # apt expands these names, not the shell
    uri=$(apt-get indextargets --format '$(REPO_URI)|$(ORIGIN)|$(LABEL)|$(RELEASE)' 'Created-By: Packages' |
        awk -F'|' -v own="$codename" -v label="$label" \
            '($2 == "Debian" && $3 == label) || $4 == own { print $1; exit }')
    [ -n "$uri" ] || return 1
    printf '%s' "$uri"
}

# private_apt STATE TYPE SUITE: makes a private apt state in STATE for one suite ("deb" or "deb-src").
private_apt() {
    local state=$1 type=$2 suite=$3 uri
    uri=$(debian_mirror "$suite") || return 1
    mkdir -p "$state/lists/partial" "$state/cache/archives/partial" "$state/no-preferences"
    printf '%s [signed-by=%s] %s %s main\n' "$type" "$debian_keyring" "$uri" "$suite" >"$state/sources.list"
    private_apt_get "$state" -q -o APT::Update::Error-Mode=any update
}

private_apt_get() {
    local state=$1
    shift
    apt-get -o "Dir::Etc::sourcelist=$state/sources.list" -o Dir::Etc::sourceparts=- \
        -o Dir::Etc::preferences=/dev/null \
        -o "Dir::Etc::preferencesparts=$state/no-preferences" \
        -o "Dir::State::lists=$state/lists" -o "Dir::Cache=$state/cache" \
        -o APT::Sandbox::User= -o Acquire::Languages=none -o Acquire::Retries=2 "$@"
}

# fetch_source WORK PACKAGE SUITE: unpacks the suite's source package, patches applied, into WORK/PACKAGE.
fetch_source() {
    local work=$1 package=$2 suite=$3
    local state=$work/apt-$suite
    private_apt "$state" deb-src "$suite" || return 1
    mkdir -p "$work/download-$package"
    (
        cd "$work/download-$package" &&
            private_apt_get "$state" -q source --download-only "$package" &&
            rm -rf "${work:?}/$package" &&
            dpkg-source -x "$package"_*.dsc "$work/$package"
    )
}

# fetch_release WORK PACKAGE SUITE: the release archive only, without Debian's patches, for when a mirror lacks
# the rest of a source package (it happens in the days after a point release).
fetch_release() {
    local work=$1 package=$2 suite=$3
    local state=$work/apt-$suite
    private_apt "$state" deb-src "$suite" || return 1
    mkdir -p "$work/release-$suite-$package"
    (
        cd "$work/release-$suite-$package" &&
            private_apt_get "$state" -q source --download-only --tar-only "$package" &&
            rm -rf "${work:?}/$package" && mkdir -p "$work/$package" &&
            tar -C "$work/$package" --strip-components=1 -xf "$package"_*.orig.tar.*z
    )
}

# fetch_upstream WORK PACKAGE URL SHA256: the fallback, a release archive with a pinned hash.
fetch_upstream() {
    local work=$1 package=$2 url=$3 sha256=$4
    local archive=$work/${url##*/}
    if command -v curl >/dev/null; then
        curl -fsSL --retry 2 --max-time 120 -o "$archive" "$url" || return 1
    else
        wget -q --tries=2 --timeout=60 -O "$archive" "$url" || return 1
    fi
    printf '%s  %s\n' "$sha256" "$archive" | sha256sum -c - || return 1
    rm -rf "${work:?}/$package"
    mkdir -p "$work/$package"
    tar -C "$work/$package" --strip-components=1 -xf "$archive"
}

# fetch_binary WORK PACKAGE SUITE INTO: unpacks the suite's binary package below INTO.
fetch_binary() {
    local work=$1 package=$2 suite=$3 into=$4
    local state=$work/apt-$suite-binary
    private_apt "$state" deb "$suite" || return 1
    mkdir -p "$work/download-$package" "$into"
    (
        cd "$work/download-$package" &&
            private_apt_get "$state" -q download "$package" &&
            dpkg-deb -x "$package"_*.deb "$into"
    )
}
