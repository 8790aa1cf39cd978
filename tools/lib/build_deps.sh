# shellcheck shell=bash
# shellcheck disable=SC2154  # work, stage and prefix are set by tools/setup
# Builds the libraries that the distribution has not, or not new enough, into a prefix of their own:
# OpenSSL >= 3.5 and Catch2 v3 (Debian 12 only) and ngtcp2 (both). nghttp3 will be one more function here.
#
# $work: scratch, $stage$prefix: where things are installed before the finished prefix is renamed into place.

# Change `recipe` whenever a line below changes what ends up in the prefix: it is part of the cache's key.
recipe=1
ngtcp2_url=https://github.com/ngtcp2/ngtcp2/releases/download/v1.24.0/ngtcp2-1.24.0.tar.xz
ngtcp2_sha256=7fa5ec2be0f0cbed8bc4ec89c0787dfa9d8ce678f1ed9477c52f30eb1a591207
openssl_url=https://github.com/openssl/openssl/releases/download/openssl-3.5.7/openssl-3.5.7.tar.gz
openssl_sha256=a8c0d28a529ca480f9f36cf5792e2cd21984552a3c8e4aa11a24aa31aeac98e8

deps_key() {
    printf 'deps-debian%s-%s-clang19-recipe%s' "$1" "$(dpkg --print-architecture)" "$recipe"
}

fetch_openssl() {
    fetch_source "$work" openssl trixie ||
        fetch_release "$work" openssl trixie ||
        fetch_release "$work" openssl trixie-security ||
        fetch_upstream "$work" openssl "$openssl_url" "$openssl_sha256"
}

# Static, position independent (the default), QUIC kept: ngtcp2 wants SSL_set_quic_tls_cbs.
# The certificate store stays the system's.
configure_openssl() {
    mkdir -p "$work/openssl-build" && cd "$work/openssl-build" &&
        CC=clang-19 ../openssl/Configure --prefix="$prefix" --libdir=lib --openssldir=/etc/ssl \
            no-shared no-tests no-docs no-apps no-module enable-ktls
}

build_openssl() (
    configure_openssl && make -j"$(nproc)" build_libs && make DESTDIR="$stage" install_dev
)

fetch_ngtcp2() {
    fetch_source "$work" ngtcp2 forky ||
        fetch_source "$work" ngtcp2 sid ||
        fetch_upstream "$work" ngtcp2 "$ngtcp2_url" "$ngtcp2_sha256"
}

# cmake's build type Release keeps ngtcp2's asserts alive (its own list file strips NDEBUG).
build_ngtcp2() {
    local openssl=()
    if [ -e "$stage$prefix/lib/libssl.a" ]; then
        openssl=(-DOPENSSL_ROOT_DIR="$stage$prefix" -DOPENSSL_USE_STATIC_LIBS=ON)
    fi
    cmake -S "$work/ngtcp2" -B "$work/ngtcp2-build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
        -DCMAKE_C_COMPILER=clang-19 -DCMAKE_CXX_COMPILER=clang++-19 \
        -DCMAKE_POSITION_INDEPENDENT_CODE=ON -DCMAKE_INSTALL_PREFIX="$prefix" -DCMAKE_INSTALL_LIBDIR=lib \
        -DENABLE_LIB_ONLY=ON -DENABLE_STATIC_LIB=ON -DENABLE_SHARED_LIB=OFF -DBUILD_TESTING=OFF \
        -DENABLE_OPENSSL=ON -DENABLE_GNUTLS=OFF "${openssl[@]}" &&
        cmake --build "$work/ngtcp2-build" &&
        DESTDIR="$stage" cmake --install "$work/ngtcp2-build" &&
        test -e "$stage$prefix/lib/libngtcp2_crypto_ossl.a"
}

install_catch2() {
    fetch_binary "$work" libcatch2-dev bookworm-backports "$work/catch2" &&
        mkdir -p "$stage$prefix" &&
        cp -a "$work/catch2/usr/include" "$work/catch2/usr/lib" "$stage$prefix/"
}
