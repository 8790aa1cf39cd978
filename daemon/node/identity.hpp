// Identity: this node's key, certificate chain and root, and, on an issuer, the keys and tokens to admit
// others. It is loaded from the state directory; init_cluster() or accept_join() make it
// (docs/protocol/admission.md).
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "admission/certificates.hpp"
#include "admission/token.hpp"
#include "node/state_dir.hpp"

namespace nexar::node {

struct Issuer {
    std::string key, certificate;
    WallSeconds leaf_lifetime = admission::leaf_seconds;  // of the leaves that it signs
    admission::TokenBook tokens;
};

struct Identity {
    NodeId node;
    admission::ClusterId cluster{};
    admission::Digest root_key_hash{};
    std::string node_key;
    std::string certificate;         // the leaf
    std::string issuer_certificate;  // of the issuer that signed the leaf
    std::string root_certificate;
    std::optional<Issuer> issuer;

    std::string cluster_name() const;  // from the root's certificate
    std::string chain() const { return certificate + issuer_certificate; }
};

// none: this node is in no cluster yet. `leaf_lifetime`: of the leaves that an issuer signs. An issuer whose
// own leaf has expired renews it here.
Result<std::optional<Identity>> load_identity(const StateDir& state, WallSeconds now,
                                              WallSeconds leaf_lifetime = admission::leaf_seconds);
// Makes root, issuer and node keys, and writes them. bad_state if there is an identity already. After an
// error none of its files is left.
Result<Identity> init_cluster(const StateDir& state, const std::string& name, WallSeconds now,
                              WallSeconds leaf_lifetime = admission::leaf_seconds);
// Leaf and issuer in one file, replaced at once: a crash leaves the old pair or the new one.
Result<void> save_certificate(const StateDir& state, const std::string& certificate,
                              const std::string& issuer_certificate);
// The secret for stateless resets, by which a restarted node closes its peers' old connections at once.
// Random, made at the first start; each port has its own, so that no port resets another port's connections.
// Source: RFC 9000 section 10.3.
using ResetSecret = std::array<std::byte, 32>;
Result<ResetSecret> reset_secret(const StateDir& state, uint16_t port);
// Checks the issuer's reply against this node's key and the token's root, and writes it. An issuer's files
// that an interrupted init left are removed before: they belong to another cluster.
Result<Identity> accept_join(const StateDir& state, const std::string& node_key,
                             const admission::JoinReply& reply, const admission::Digest& root_key_hash,
                             WallSeconds now);
// Undoes an init whose member could not start: none of its files is left.
void forget_identity(const StateDir& state);
// Changes the list of tokens, on disk and then in memory. Ensures: after an error memory equals the disk.
Result<void> change_tokens(const StateDir& state, Issuer& issuer,
                           const std::function<Result<void>(admission::TokenBook&)>& change);

}  // namespace nexar::node
