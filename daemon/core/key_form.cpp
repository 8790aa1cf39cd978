#include "core/key_form.hpp"

#include <algorithm>
#include <initializer_list>
#include <span>
#include <string>

namespace nexar {
namespace {

// Tags of DER (X.690 section 8): INTEGER, SEQUENCE, and [0], constructed.
constexpr uint8_t der_integer = 0x02, der_sequence = 0x30, der_version = 0xa0;

// A SubjectPublicKeyInfo's contents, but for the point's coordinates: the algorithm id-ecPublicKey with the
// curve secp256r1 by its name, then a BIT STRING without unused bits that begins an uncompressed point.
constexpr uint8_t p256_form[] = {0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08,
                                 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00, 0x04};
constexpr size_t coordinates_bytes = 64;

struct BeforeKey {
    uint8_t tag;
    const char* name;
    bool may_lack = false;
};

size_t take_number(Reader& in, int bytes) {
    size_t value = 0;
    for (int i = 0; i < bytes; ++i) value = value << 8 | in.get<uint8_t>();
    return value;
}

// The contents of the next element, which has this tag and a length in its shortest definite form, of up to
// 24 bits; else `in` has failed.
Bytes take_der(Reader& in, uint8_t tag) {
    const bool right = in.get<uint8_t>() == tag;
    size_t bytes = in.get<uint8_t>();
    if (bytes >= 0x80) {
        const int more = static_cast<int>(bytes - 0x80);
        if (more < 1 || more > 3) return in.take(SIZE_MAX);
        bytes = take_number(in, more);
        if (bytes < 0x80 || bytes >> (8 * (more - 1)) == 0) return in.take(SIZE_MAX);
    }
    return in.take(right ? bytes : SIZE_MAX);
}

bool der_follows(Reader in, uint8_t tag) {
    return in.left() > 0 && in.get<uint8_t>() == tag;
}

// `before`: the fields of what is signed that come before the key.
Result<> check_form(Bytes der, const char* what, std::initializer_list<BeforeKey> before) {
    const auto unreadable = [&](const char* field) {
        return fail(Errc::bad_certificate, std::string(what) + " that does not parse: there is no DER of " +
                                               field + " where one belongs");
    };
    Reader whole(der);
    Reader outer(take_der(whole, der_sequence));
    if (!whole.finished()) return unreadable("the whole");
    Reader signed_part(take_der(outer, der_sequence));
    if (outer.failed()) return unreadable("its signed part");
    for (const BeforeKey& field : before) {
        if (field.may_lack && !der_follows(signed_part, field.tag)) continue;
        take_der(signed_part, field.tag);
        if (signed_part.failed()) return unreadable(field.name);
    }
    const Bytes key = take_der(signed_part, der_sequence);
    if (signed_part.failed()) return unreadable("its public key");
    const Bytes form = std::as_bytes(std::span(p256_form));
    if (key.size() != form.size() + coordinates_bytes || !std::ranges::equal(key.first(form.size()), form))
        return fail(Errc::bad_certificate,
                    std::string(what) +
                        " whose key is not allowed: only ECDSA P-256 is, with its curve named and its "
                        "point uncompressed (RFC 5480)");
    return {};
}

}  // namespace

Result<> check_certificate_key(Bytes der) {
    return check_form(der, "a certificate",
                      {{der_version, "its version", true},
                       {der_integer, "its serial number"},
                       {der_sequence, "its signature's algorithm"},
                       {der_sequence, "its issuer's name"},
                       {der_sequence, "its validity"},
                       {der_sequence, "its subject's name"}});
}

Result<> check_request_key(Bytes der) {
    return check_form(der, "a certificate request",
                      {{der_integer, "its version"}, {der_sequence, "its subject's name"}});
}

Result<> check_certificate_message(Bytes body) {
    const auto cut = [] { return fail(Errc::bad_certificate, "a list of certificates that does not parse"); };
    Reader message(body);
    message.take(message.get<uint8_t>());  // the request's context
    Reader list(message.take(take_number(message, 3)));
    if (!message.finished()) return cut();
    for (size_t count = 1; list.left() > 0; ++count) {
        if (count > chain_length_max)
            return fail(Errc::bad_certificate, "a chain of more than " + std::to_string(chain_length_max) +
                                                   " certificates, which is the most that is allowed");
        const Bytes certificate = list.take(take_number(list, 3));
        list.take(take_number(list, 2));  // its extensions
        if (list.failed()) return cut();
        NEXAR_TRY_VOID(check_certificate_key(certificate));
    }
    return {};
}

}  // namespace nexar
