// A dialler's first packet that carries any bytes as its ClientHello (RFC 9001 section 5 and appendix A).
#pragma once

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>

#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace nexar::test {

using Octets = std::vector<uint8_t>;

inline Octets hmac_sha256(const Octets& key, const Octets& text) {
    Octets out(SHA256_DIGEST_LENGTH);
    REQUIRE(HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), text.data(), text.size(), out.data(),
                 nullptr));
    return out;
}

// HKDF-Expand-Label of one block (RFC 8446 section 7.1).
inline Octets expand(const Octets& secret, std::string_view label, uint8_t bytes) {
    const std::string name = "tls13 " + std::string(label);
    Octets text{0, bytes, static_cast<uint8_t>(name.size())};
    text.insert(text.end(), name.begin(), name.end());
    text.insert(text.end(), {0, 1});
    Octets out = hmac_sha256(secret, text);
    out.resize(bytes);
    return out;
}

inline void encrypt(const EVP_CIPHER* cipher, const Octets& key, const uint8_t* nonce, const Octets& aad,
                    const Octets& plain, Octets& out, bool has_tag) {
    EVP_CIPHER_CTX* ctx = EVP_CIPHER_CTX_new();
    int n = 0;
    out.resize(plain.size() + 32);
    REQUIRE(EVP_EncryptInit_ex(ctx, cipher, nullptr, key.data(), nonce) == 1);
    if (!aad.empty()) REQUIRE(EVP_EncryptUpdate(ctx, nullptr, &n, aad.data(), static_cast<int>(aad.size())));
    REQUIRE(EVP_EncryptUpdate(ctx, out.data(), &n, plain.data(), static_cast<int>(plain.size())) == 1);
    size_t size = static_cast<size_t>(n);
    if (has_tag) {
        REQUIRE(EVP_EncryptFinal_ex(ctx, out.data() + size, &n) == 1);
        REQUIRE(EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_GET_TAG, 16, out.data() + size) == 1);
        size += 16;
    }
    out.resize(size);
    EVP_CIPHER_CTX_free(ctx);
}

// TLS 1.3, one suite, X25519 and a share of it, this protocol, these QUIC parameters (null: none at all);
// padded to at least so many bytes (RFC 7685).
inline Octets client_hello(std::string_view alpn, const Octets* parameters, size_t bytes = 0) {
    Octets extensions{0x00, 0x2b, 0x00, 0x03, 0x02, 0x03, 0x04,                     // supported_versions
                      0x00, 0x0d, 0x00, 0x04, 0x00, 0x02, 0x04, 0x03,               // signature_algorithms
                      0x00, 0x0a, 0x00, 0x04, 0x00, 0x02, 0x00, 0x1d,               // supported_groups
                      0x00, 0x33, 0x00, 0x26, 0x00, 0x24, 0x00, 0x1d, 0x00, 0x20};  // key_share
    const auto append = [&](auto... octets) { (extensions.push_back(static_cast<uint8_t>(octets)), ...); };
    for (uint8_t i = 0; i < 32; ++i) append(9 + i);
    const size_t n = alpn.size();
    append(0x00, 0x10, 0x00, n + 3, 0x00, n + 1, n);
    extensions.insert(extensions.end(), alpn.begin(), alpn.end());
    if (parameters) {
        append(0x00, 0x39, 0x00, parameters->size());
        extensions.insert(extensions.end(), parameters->begin(), parameters->end());
    }
    constexpr size_t rest_bytes = 47, extension_head_bytes = 4;  // of the message; of an extension
    const size_t padded = rest_bytes + extensions.size() + extension_head_bytes;
    if (bytes >= padded) {
        const size_t padding = bytes - padded;
        append(0x00, 0x15, padding >> 8, padding);
        extensions.resize(extensions.size() + padding);
    }
    Octets out{0x01, 0x00};
    const auto length = [&](size_t size) {
        out.insert(out.end(), {static_cast<uint8_t>(size >> 8), static_cast<uint8_t>(size)});
    };
    length(rest_bytes - 4 + extensions.size());
    out.insert(out.end(), {0x03, 0x03});
    out.insert(out.end(), 32, 0x55);                                    // random
    out.insert(out.end(), {0x00, 0x00, 0x02, 0x13, 0x01, 0x01, 0x00});  // no session, a suite
    length(extensions.size());
    out.insert(out.end(), extensions.begin(), extensions.end());
    return out;
}

// `hello`: the handshake message, with its type and length, and what may follow it.
inline std::vector<std::byte> initial_packet(const Octets& hello) {
    static const Octets salt{0x38, 0x76, 0x2c, 0xf7, 0xf5, 0x59, 0x34, 0xb3, 0x4d, 0x17,
                             0x9a, 0xe6, 0xa4, 0xc8, 0x0c, 0xad, 0xcc, 0xbb, 0x7f, 0x0a};
    const Octets dcid{1, 2, 3, 4, 5, 6, 7, 8}, scid{8, 7, 6, 5, 4, 3, 2, 1};
    const Octets secret = expand(hmac_sha256(salt, dcid), "client in", 32);
    Octets nonce = expand(secret, "quic iv", 12);  // of packet 0
    const size_t payload_bytes = std::max<size_t>(1180, hello.size() + 4);
    const auto two = [](size_t n) {  // a variable-length integer of two bytes (RFC 9000 section 16)
        return std::array{static_cast<uint8_t>(0x40 | n >> 8), static_cast<uint8_t>(n)};
    };
    Octets payload{0x06, 0};  // CRYPTO, from offset 0
    const auto length = two(hello.size());
    payload.insert(payload.end(), length.begin(), length.end());
    payload.insert(payload.end(), hello.begin(), hello.end());
    payload.resize(payload_bytes);  // PADDING
    Octets head{0xc3, 0, 0, 0, 1, 8};
    head.insert(head.end(), dcid.begin(), dcid.end());
    head.push_back(8);
    head.insert(head.end(), scid.begin(), scid.end());
    head.push_back(0);  // no token
    const auto rest = two(4 + payload_bytes + 16);
    head.insert(head.end(), rest.begin(), rest.end());
    head.insert(head.end(), 4, 0);  // the packet's number
    Octets sealed, mask;
    encrypt(EVP_aes_128_gcm(), expand(secret, "quic key", 16), nonce.data(), head, payload, sealed, true);
    encrypt(EVP_aes_128_ecb(), expand(secret, "quic hp", 16), nullptr, {},
            Octets(sealed.begin(), sealed.begin() + 16), mask, false);
    head[0] ^= mask[0] & 0x0f;
    for (size_t i = 0; i < 4; ++i) head[head.size() - 4 + i] ^= mask[1 + i];
    head.insert(head.end(), sealed.begin(), sealed.end());
    std::vector<std::byte> out(head.size());
    std::ranges::transform(head, out.begin(), [](uint8_t b) { return static_cast<std::byte>(b); });
    return out;
}

}  // namespace nexar::test
