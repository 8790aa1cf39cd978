// Clusters for tests: made and joined through Entering, as a daemon does it, on a disk without a thread.
#pragma once

#include "node/entering.hpp"
#include "node/identity.hpp"
#include "node/starts.hpp"
#include "support/temporary.hpp"

namespace nexar::node::test {

inline Result<void> enter(const writers::StateDir& state, storage::Batch files) {
    nexar::test::DirectDisk disk(state);
    return Entering(disk, std::move(files), no_files()).poll().value();
}

inline storage::Batch start_of(const writers::StateDir& state) {
    auto starts = Starts::read(state).value();
    starts.next();
    return starts.files();
}

inline Result<Identity> init_cluster(const writers::StateDir& state, const std::string& name, WallSeconds now,
                                     WallSeconds leaf_lifetime = admission::leaf_seconds) {
    NEXAR_TRY(const Secret key, admission::make_key());
    NEXAR_TRY(auto made, make_cluster(name, key, now, leaf_lifetime));
    NEXAR_TRY_VOID(enter(state, files_of_init(made, start_of(state))));
    return std::move(made.identity);
}

inline admission::JoinReply reply_of(const Identity& issuer, const Secret& node_key, WallSeconds now,
                                     WallSeconds leaf_lifetime = admission::leaf_seconds) {
    admission::JoinReply reply;
    reply.certificate = admission::sign_leaf(issuer.issuer->key, issuer.issuer->certificate,
                                             admission::make_csr(node_key).value(), now, leaf_lifetime)
                            .value();
    reply.issuer_certificate = issuer.issuer->certificate;
    reply.root_certificate = issuer.root_certificate;
    return reply;
}

inline Result<Identity> join_cluster(const writers::StateDir& state, const Secret& key,
                                     const admission::JoinReply& reply,
                                     const admission::Digest& root_key_hash, WallSeconds now) {
    NEXAR_TRY(Identity joined, accept_join(key, reply, root_key_hash, now));
    NEXAR_TRY_VOID(enter(state, files_of_join(joined, start_of(state), "127.0.0.1:1\n")));
    return joined;
}

}  // namespace nexar::node::test
