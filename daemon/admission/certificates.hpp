// Keys and certificates of a cluster. The root signs issuers, an issuer signs leaves; each node makes its own
// keys, so no private key leaves its node. docs/protocol/admission.md has the invariants [A1] and on.
// Dry: the caller passes the wall clock; random bytes come from the TLS library. ECDSA P-256 with SHA-256.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "core/bytes.hpp"
#include "core/ids.hpp"
#include "core/result.hpp"
#include "core/secret.hpp"
#include "core/time.hpp"

namespace nexar::admission {

using Digest = std::array<uint8_t, 32>;
using ClusterId = std::array<uint8_t, 16>;

constexpr WallSeconds leaf_seconds = 30 * 86400;  // unless the issuer's certificate_lifetime is set
constexpr WallSeconds issuer_seconds = 5 * 365 * 86400;
constexpr WallSeconds root_seconds = 20 * 365 * 86400;
constexpr WallSeconds backdate_seconds = 600;  // so that a fresh certificate is valid where the clock is slow
constexpr size_t csr_bytes_max = 4096;

Digest sha256(Bytes data);
Digest hmac_sha256(Bytes key, Bytes data);
SecretBytes<32> hkdf_sha256(Bytes secret, Bytes salt, Bytes info);  // RFC 5869, the first 32 bytes
void random_bytes(std::span<uint8_t> out);
uint64_t random_u64();

// PEM throughout. A key is a secret: never logged, never in an error text.
Result<Secret> make_key();
Result<NodeId> node_id_of_key(const Secret& key_pem);
Result<NodeId> node_id_of_certificate(const std::string& certificate_pem);
Result<Digest> key_hash_of_certificate(const std::string& certificate_pem);  // SHA-256 of the public key
std::string common_name_of_certificate(const std::string& certificate_pem);  // empty: unreadable
Result<WallSeconds> expiry_of_certificate(const std::string& certificate_pem);

// A cluster's id is the first half of its root key's hash.
ClusterId cluster_id_of(const Digest& root_key_hash);

Result<std::string> make_root(const Secret& root_key, std::string_view cluster_name, WallSeconds now);
Result<std::string> make_issuer(const Secret& root_key, const std::string& root_certificate,
                                const Secret& issuer_key, WallSeconds now);

Result<std::string> make_csr(const Secret& node_key);
// Verifies the request's own signature (proof of possession) and signs. The subject is derived from the key;
// the request's subject is ignored [A3].
Result<std::string> sign_leaf(const Secret& issuer_key, const std::string& issuer_certificate,
                              const std::string& csr, WallSeconds now, WallSeconds lifetime = leaf_seconds);
// The node of a request's key; bad_certificate also when the request's own signature is wrong.
Result<NodeId> node_id_of_csr(const std::string& csr);

// A chain as TLS gives it: DER, leaf first.
using DerChain = std::vector<std::vector<std::byte>>;

Result<std::vector<std::byte>> der_of_pem(const std::string& certificate_pem);

// Verifies a peer that connects as a member: a leaf, signed by an issuer, signed by this cluster's root, all
// valid now, whose name is the hash of its key [A1]. chain_der: as the peer sent it, leaf first.
Result<NodeId> verify_member(const DerChain& chain_der, const std::string& root_certificate, WallSeconds now);
// Verifies the peer of a joiner: the holder of an issuer's key, signed by the root whose key hash the token
// carries [A2]. A member's leaf is not enough.
Result<NodeId> verify_issuer(const DerChain& chain_der, const Digest& root_key_hash, WallSeconds now);

}  // namespace nexar::admission
