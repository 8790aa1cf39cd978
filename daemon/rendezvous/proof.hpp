// Proof: that a node knows the secret of a group's job, shown to the other member nodes in one attempt
// (docs/protocol/rendezvous.md [R19]-[R22]). Dry: the cryptography comes through a port.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>

#include "core/bytes.hpp"
#include "core/ids.hpp"
#include "core/secret.hpp"
#include "wire/messages.hpp"

namespace nexar::rendezvous {

using Digest = std::array<uint8_t, 32>;
// Derived from a job's secret and the group's key. It stays in the daemon of the open.
using ProofKey = SecretBytes<32>;

// What an open's secret becomes.
struct Credentials {
    wire::GroupKey key{};
    std::optional<ProofKey> proof;  // none: no secret; the key is valid on this node only
};

struct ProofPort {
    std::function<wire::Nonce()> nonce;  // random, never the same again
    std::function<Digest(Bytes data)> sha256;
    std::function<Digest(Bytes key, Bytes data)> hmac_sha256;
};

// The exclusive or of nonces.
void add_nonce(wire::Nonce& sum, const wire::Nonce& nonce);

// The bytes of a GroupPrepare that all members must have alike: each of its fields [R19].
std::vector<std::byte> transcript_of(const wire::GroupPrepare& prepare);

class Proof {
  public:
    // Requires: `port` outlives it.
    Proof(const ProofPort& port, const ProofKey& key, const wire::GroupPrepare& prepare)
        : port_(&port), key_(key), digest_(port.sha256(transcript_of(prepare))) {}

    wire::Tag tag_of(const NodeId& node, Incarnation incarnation) const;
    // Takes equally long for every wrong tag.
    bool holds(const wire::Tag& tag, const NodeId& node, Incarnation incarnation) const;

  private:
    const ProofPort* port_;
    ProofKey key_;
    Digest digest_;
};

}  // namespace nexar::rendezvous
