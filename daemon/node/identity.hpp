// Identity: this node's key, certificate chain and root, and, on an issuer, the keys and tokens to admit
// others. It is loaded from the state directory; make_cluster() or accept_join() make it
// (docs/protocol/admission.md). What is to be saved comes as batches for the storage port; nothing here
// writes.
#pragma once

#include <optional>
#include <string>

#include "admission/certificates.hpp"
#include "admission/token.hpp"
#include "storage/port.hpp"
#include "writers/state_dir.hpp"

namespace nexar::node {

constexpr const char* roster_file = "roster";  // the addresses of the members, one a line

struct Issuer {
    Secret key;
    std::string certificate;
    WallSeconds leaf_lifetime = admission::leaf_seconds;  // of the leaves that it signs
    admission::TokenBook tokens;
};

struct Identity {
    NodeId node;
    admission::ClusterId cluster{};
    admission::Digest root_key_hash{};
    Secret node_key;
    std::string certificate;         // the leaf
    std::string issuer_certificate;  // of the issuer that signed the leaf
    std::string root_certificate;
    std::optional<Issuer> issuer;
    bool leaf_unsaved = false;  // load_identity() has renewed the leaf: certificate_change() is to be saved

    std::string cluster_name() const;  // from the root's certificate
    std::string chain() const { return certificate + issuer_certificate; }
};

// none: this node is in no cluster yet. `leaf_lifetime`: of the leaves that an issuer signs. An issuer whose
// own leaf has expired renews it here.
Result<std::optional<Identity>> load_identity(const writers::StateDir& state, WallSeconds now,
                                              WallSeconds leaf_lifetime = admission::leaf_seconds);

// A new cluster: root and issuer keys, and their certificates and that of the node's key.
struct Cluster {
    Identity identity;
    Secret root_key;
};
Result<Cluster> make_cluster(const std::string& name, const Secret& node_key, WallSeconds now,
                             WallSeconds leaf_lifetime = admission::leaf_seconds);
// Checks the issuer's reply against this node's key and the token's root.
Result<Identity> accept_join(const Secret& node_key, const admission::JoinReply& reply,
                             const admission::Digest& root_key_hash, WallSeconds now);

// What enters a cluster [K7]. `start`: of Starts. `roster`: the issuer's address, without which a node that
// stops now would know nobody to dial.
storage::Batch files_of_init(const Cluster& cluster, const storage::Batch& start);
storage::Batch files_of_join(const Identity& identity, const storage::Batch& start, std::string_view roster);
storage::Batch no_files();  // undoes both
// The node leaves its cluster: every file of its identity becomes "left.NAME" (of an earlier one: replaced),
// and the next join or init makes a new one. The keys stay, so that an operator can undo it. `asked`: what
// the configuration asks for (configured_entry()), which does not count any more after that [A12].
Result<storage::Batch> files_of_leave(const writers::StateDir& state, const std::string& asked);
constexpr const char* left_entry_file = "left.entry";
// What a configuration asks of a node in no cluster, without secrets: "init", "token <id>"; "": nothing.
std::string configured_entry(const std::string& join_token, bool init_cluster);
constexpr const char* set_aside_prefix = "left.";
// Leaf and issuer in one file, replaced at once: a crash leaves the old pair or the new one.
storage::Change certificate_change(const std::string& certificate, const std::string& issuer_certificate);
storage::Change tokens_change(const admission::TokenBook& tokens);

}  // namespace nexar::node
