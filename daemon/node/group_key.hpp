// credentials: what the secret of an open becomes (docs/protocol/rendezvous.md, Keys). The secret itself is
// never sent. proof_port: the cryptography of the proofs [R19].
#pragma once

#include "engine/ports.hpp"
#include "rendezvous/proof.hpp"

namespace nexar::node {

rendezvous::Credentials credentials(const engine::OpenRequest& request, const NodeId& self);
rendezvous::ProofPort proof_port();

}  // namespace nexar::node
