// See group_key.hpp.
#include "node/group_key.hpp"

#include "admission/certificates.hpp"

namespace nexar::node {

namespace {

constexpr std::string_view salt = "nexar-proof-v2";

wire::GroupKey key_of(const engine::OpenRequest& request, const NodeId& self) {
    std::vector<std::byte> data;
    data.reserve(1024);  // a larger buffer later would leave a copy of the secret behind
    Writer w(data);
    const auto put = [&](std::string_view text) { w.put_bytes(std::as_bytes(std::span(text))); };
    if (!request.job_secret.empty()) {
        put("nexar-group-v2");
        w.put(static_cast<uint32_t>(request.job_secret.size()));
        put(request.job_secret.text());
    } else {
        put("nexar-local-v2");
        w.put(self.bytes);
        w.put(request.tenant->name.uid);
        w.put(static_cast<uint32_t>(request.tenant->name.label.size()));
        put(request.tenant->name.label);
    }
    w.put(request.instance);
    put(request.name);
    const wire::GroupKey key = admission::sha256(data);
    wipe(data);
    return key;
}

}  // namespace

rendezvous::Credentials credentials(const engine::OpenRequest& request, const NodeId& self) {
    rendezvous::Credentials out{key_of(request, self), {}};
    if (!request.job_secret.empty())
        out.proof = admission::hkdf_sha256(request.job_secret.bytes(), std::as_bytes(std::span(salt)),
                                           std::as_bytes(std::span(out.key)));
    return out;
}

rendezvous::ProofPort proof_port() {
    return {[] {
                wire::Nonce nonce;
                admission::random_bytes(nonce);
                return nonce;
            },
            admission::sha256, admission::hmac_sha256};
}

}  // namespace nexar::node
