// The cryptography of the rendezvous's proofs for tests: the real one, with nonces that are counted.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <string>

#include "admission/certificates.hpp"
#include "rendezvous/proof.hpp"

namespace nexar::test {

// `of`: makes the nonces of one port differ from those of another.
inline rendezvous::ProofPort proof_port(uint64_t of = 0) {
    return {[of, next = std::make_shared<uint64_t>(0)] {
                const uint64_t words[2]{of, ++*next};
                const auto digest = admission::sha256(std::as_bytes(std::span(words)));
                wire::Nonce nonce;
                std::copy_n(digest.begin(), nonce.size(), nonce.begin());
                return nonce;
            },
            admission::sha256, admission::hmac_sha256};
}

// `node`: of a group without a secret.
inline rendezvous::Credentials credentials_of(const std::string& secret, const std::string& name,
                                              uint64_t node, uint64_t uid = 0) {
    const std::string local = std::to_string(node) + "/" + std::to_string(uid) + "/";
    const std::string words = (secret.empty() ? local : secret + "|") + name;
    rendezvous::Credentials out{admission::sha256(std::as_bytes(std::span(words))), {}};
    if (!secret.empty())
        out.proof =
            admission::hkdf_sha256(std::as_bytes(std::span(secret)), {}, std::as_bytes(std::span(out.key)));
    return out;
}

}  // namespace nexar::test
