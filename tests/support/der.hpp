// Certificates and requests in DER (X.690), put together by hand around a public key of any form, with
// signatures that nobody has made. Never for anything but tests.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "core/bytes.hpp"

namespace nexar::test {

using Der = std::vector<std::byte>;

inline Der unhex(std::string_view digits) {
    Der out;
    for (size_t i = 0; i + 1 < digits.size(); i += 2)
        out.push_back(static_cast<std::byte>(std::stoi(std::string(digits.substr(i, 2)), nullptr, 16)));
    return out;
}

// An element with this tag and these contents.
inline Der element(uint8_t tag, std::initializer_list<Der> contents) {
    Der body;
    for (const Der& part : contents) body.insert(body.end(), part.begin(), part.end());
    if (body.size() > 0xffff) throw std::runtime_error("an element too long for tests");
    Der out{std::byte{tag}};
    const auto high = static_cast<std::byte>(body.size() >> 8), low = static_cast<std::byte>(body.size());
    if (body.size() > 0xff)
        out.insert(out.end(), {std::byte{0x82}, high, low});
    else if (body.size() > 0x7f)
        out.insert(out.end(), {std::byte{0x81}, low});
    else
        out.push_back(low);
    out.insert(out.end(), body.begin(), body.end());
    return out;
}

inline Der sequence(std::initializer_list<Der> contents) {
    return element(0x30, contents);
}

inline Der no_signature() {
    return element(0x03, {unhex("003006020101020101")});
}
inline Der ecdsa_with_sha256() {
    return sequence({unhex("06082a8648ce3d040302")});
}

inline Der certificate_of(const Der& public_key) {
    const Der time = unhex("170d3235303130313030303030305a"), late = unhex("170d3335303130313030303030305a");
    const Der part = sequence({unhex("020101"), ecdsa_with_sha256(), sequence({}), sequence({time, late}),
                               sequence({}), public_key});
    return sequence({part, ecdsa_with_sha256(), no_signature()});
}
inline Der request_of(const Der& public_key) {
    const Der part = sequence({unhex("020100"), sequence({}), public_key, element(0xa0, {})});
    return sequence({part, ecdsa_with_sha256(), no_signature()});
}

inline std::string pem_of(const Der& der, const std::string& label) {
    static constexpr char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string out = "-----BEGIN " + label + "-----\n";
    for (size_t i = 0, column = 0; i < der.size(); i += 3, column += 4) {
        if (column == 64) out += '\n', column = 0;
        uint32_t v = 0;
        for (size_t k = 0; k < 3; ++k)
            v = v << 8 | (i + k < der.size() ? std::to_integer<uint32_t>(der[i + k]) : 0);
        for (size_t k = 0; k < 4; ++k) out += i + k <= der.size() ? alphabet[v >> (18 - 6 * k) & 63] : '=';
    }
    return out + "\n-----END " + label + "-----\n";
}

// Its curve is given by parameters, over the prime p = k 2^640 + 1, with points that are compressed. To
// decompress one, the TLS library takes a square root by 640^2 / 2 multiplications: a tenth of a second.
inline Der slow_public_key() {
    return unhex(
        "308201d33082017806072a8648ce3d02013082016b020101305e06072a8648ce3d010102531001d10000000000000000"
        "000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"
        "00000000000000000000000000000000000000000000000130580401010453000d28a17b869c7be38212c530f1224008"
        "33fa29305deb896b4cf3d077f36c3942ab678f1c40989673902b8d9161379c88653974a50cf5b3b49a3c6aa71aa051fa"
        "4899f7c1abd45676abe7ac7443beca4b210b045402053225240f60c5443bebcbe3ec24e0819394ee5e6f5ca83906c250"
        "22ad1f66f9cf9b4218de743c320178e701bf57b8918650e5b29e753a4a6077b2f11b3de53b542ab30ca8fab1c5be85a4"
        "5c17eead3e8d301802531001d0ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"
        "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff020101"
        "0355000205e2e55ce5d2257c57efb929e14534056d543c354fc5f4c5c3359b22329623246de651c353bd863a9bc3db34"
        "890f5946e46f6b12fc0ebbcdf149a66edfbaf9320a22785b0a90ecdd3a1627832fff682ed145f4");
}

}  // namespace nexar::test
