// See attach.hpp. HMAC: RFC 2104, with SHA-256.
#include "tcp/attach.hpp"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>

#include <cstring>
#include <string>

#include "core/check.hpp"
#include "core/secret.hpp"
#include "core/transcript.hpp"

namespace nexar::tcp {
namespace {

constexpr std::string_view purpose = "nexar bulk attach 1";

Proof hmac(const AttachKey& key, Bytes over) {
    Proof out;
    unsigned size = 0;
    const unsigned char* done = HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
                                     reinterpret_cast<const unsigned char*>(over.data()), over.size(),
                                     reinterpret_cast<unsigned char*>(out.data()), &size);
    NEXAR_CHECK(done != nullptr && size == out.size());
    return out;
}

template <class T>
Result<T> read_as(Bytes bytes, const char* what) {
    T out;
    if (bytes.size() != sizeof out)
        return fail(Errc::protocol_error,
                    std::string(what) + " of " + std::to_string(bytes.size()) + " bytes");
    std::memcpy(static_cast<void*>(&out), bytes.data(), sizeof out);
    return out;
}

}  // namespace

AttachKeyId id_of(const AttachKey& key) {
    const Proof whole = hmac(key, std::as_bytes(std::span(std::string_view("nexar bulk attach key id"))));
    AttachKeyId out;
    std::memcpy(out.data(), whole.data(), out.size());
    return out;
}

Proof prove(const AttachKey& key, const AttachTerms& terms, Side side) {
    Transcript w;
    w.label(purpose);
    w.put(side);
    w.put(terms.mode);
    w.put(terms.shard);
    w.put(terms.dialler);
    w.put(terms.dialler_incarnation);
    w.put(terms.acceptor);
    w.put(terms.acceptor_incarnation);
    w.put(terms.dialler_nonce);
    w.put(terms.acceptor_nonce);
    w.put(terms.binding);
    return hmac(key, w.bytes());
}

bool proves(const AttachKey& key, const AttachTerms& terms, Side side, const Proof& proof) {
    const Proof right = prove(key, terms, side);
    return equal_in_constant_time(right, proof);
}

Result<Hello> read_hello(Bytes bytes) {
    NEXAR_TRY(const Hello hello, read_as<Hello>(bytes, "an attach"));
    if (hello.magic != Hello::magic_value) return fail(Errc::protocol_error, "no attach of nexar");
    if (hello.version != 1)
        return fail(Errc::protocol_error, "an attach of version " + std::to_string(hello.version) +
                                              "; this daemon speaks version 1");
    return hello;
}

Result<Answer> read_answer(Bytes bytes) {
    return read_as<Answer>(bytes, "an answer to an attach");
}

Result<Proof> read_proof(Bytes bytes) {
    return read_as<Proof>(bytes, "a proof of an attach");
}

bool AttachKeys::add(const Incarnation& of, const AttachKey& key) {
    if (keys[0] == key && incarnation == of) return false;
    if (incarnation != of) forget();
    incarnation = of;
    keys[1] = keys[0];
    keys[0] = key;
    return true;
}

const AttachKey* AttachKeys::find(const AttachKeyId& id) const {
    for (const auto& key : keys)
        if (key && id_of(*key) == id) return &*key;
    return nullptr;
}

void AttachKeys::forget() {
    for (auto& key : keys) {
        if (key) wipe(MutableBytes(*key));
        key.reset();
    }
}

AttachKeys::~AttachKeys() {
    forget();
}

}  // namespace nexar::tcp
