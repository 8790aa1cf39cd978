// See identity.hpp.
#include "node/identity.hpp"

#include <algorithm>

namespace nexar::node {
namespace {

using namespace admission;

// One file per item. The certificate is written last, so an interrupted init or join has no effect.
constexpr const char* node_key_file = "node.key";
constexpr const char* certificate_file = "node.crt";  // and its issuer's, in one file
constexpr const char* root_file = "root.crt";
constexpr const char* root_key_file = "root.key";
constexpr const char* issuer_key_file = "issuer.key";
constexpr const char* issuer_file = "issuer.crt";
constexpr const char* tokens_file = "tokens";
// The certificate is removed first: without it the other files are ignored.
constexpr const char* membership_files[] = {certificate_file, node_key_file, root_file};
constexpr const char* issuer_files[] = {issuer_key_file, issuer_file, tokens_file};
constexpr const char* reset_secret_file = "reset-secret";
constexpr size_t reset_secret_bytes = 32;

Result<std::string> need(const StateDir& state, const char* file) {
    NEXAR_TRY(auto text, state.read(file));
    if (!text)
        return fail(Errc::io, state.path() + "/" + file + " is missing; the state directory is damaged");
    return std::move(*text);
}

// An error in a file's content, with the file's name.
std::unexpected<Error> damaged(const StateDir& state, const char* file, const Error& why) {
    return fail(why.code, state.path() + "/" + file + ": " + why.text);
}

Result<std::vector<std::byte>> certificate_in(const StateDir& state, const char* file,
                                              const std::string& pem) {
    auto der = der_of_pem(pem);
    return der ? std::move(der) : damaged(state, file, der.error());
}

// Checks each file by itself, so that the error names the damaged one, then the chain. Without this check
// every peer would refuse the node, and only the peers' logs would show the reason.
Result<void> check_files(const StateDir& state, const Identity& id, WallSeconds now) {
    if (const auto key = node_id_of_key(id.node_key); !key) return damaged(state, node_key_file, key.error());
    NEXAR_TRY(auto leaf, certificate_in(state, certificate_file, id.certificate));
    NEXAR_TRY(auto issuer, certificate_in(state, certificate_file, id.issuer_certificate));
    NEXAR_TRY([[maybe_unused]] const auto root, certificate_in(state, root_file, id.root_certificate));
    const auto member = verify_member({std::move(leaf), std::move(issuer)}, id.root_certificate, now);
    if (!member)
        return fail(member.error().code, "the certificates in " + state.path() + " (" + certificate_file +
                                             ", " + root_file + ") make no member: " + member.error().text);
    return {};
}

Result<Issuer> load_issuer(const StateDir& state, std::string key) {
    Issuer issuer;
    issuer.key = std::move(key);
    const auto key_hash = node_id_of_key(issuer.key);
    if (!key_hash) return damaged(state, issuer_key_file, key_hash.error());
    NEXAR_TRY(issuer.certificate, need(state, issuer_file));
    const auto certified = key_hash_of_certificate(issuer.certificate);
    if (!certified) return damaged(state, issuer_file, certified.error());
    if (!std::ranges::equal(key_hash->bytes, *certified))
        return fail(Errc::bad_certificate, state.path() + "/" + issuer_file + " is not the certificate of " +
                                               issuer_key_file + " beside it");
    NEXAR_TRY(const auto tokens, state.read(tokens_file));
    auto book = TokenBook::parse(tokens.value_or(""));
    if (!book) return damaged(state, tokens_file, book.error());
    issuer.tokens = std::move(*book);
    return issuer;
}

// Splits the leaf's PEM from the issuer's.
Result<void> split_certificates(const StateDir& state, const std::string& both, Identity& id) {
    static constexpr std::string_view begin = "-----BEGIN CERTIFICATE-----";
    const size_t second = both.find(begin, both.find(begin) + 1);
    if (both.find(begin) == std::string::npos || second == std::string::npos)
        return damaged(
            state, certificate_file,
            {Errc::bad_certificate, "it must hold this node's certificate and its issuer's", -1, -1, {}});
    id.certificate = both.substr(0, second);
    id.issuer_certificate = both.substr(second);
    return {};
}

// Renews an issuer's own expired leaf. A node that is no issuer cannot: peers refuse its expired certificate.
Result<void> renew_own_leaf(const StateDir& state, Identity& id, WallSeconds now) {
    const auto expiry = expiry_of_certificate(id.certificate);
    if (!expiry || *expiry >= now) return {};  // check_files() reports a certificate that does not parse
    if (!id.issuer)
        return fail(Errc::bad_certificate,
                    "this node's certificate expired " + std::to_string(now - *expiry) +
                        " s ago, before an issuer renewed it; join again with a new token: move " +
                        state.path() + " away, then nexarctl cluster join -");
    NEXAR_TRY(const std::string csr, make_csr(id.node_key));
    NEXAR_TRY(id.certificate,
              sign_leaf(id.issuer->key, id.issuer->certificate, csr, now, id.issuer->leaf_lifetime));
    id.issuer_certificate = id.issuer->certificate;
    return save_certificate(state, id.certificate, id.issuer_certificate);
}

Result<void> fill_derived(Identity& id) {
    NEXAR_TRY(id.node, node_id_of_key(id.node_key));
    NEXAR_TRY(id.root_key_hash, key_hash_of_certificate(id.root_certificate));
    id.cluster = cluster_id_of(id.root_key_hash);
    NEXAR_TRY(const NodeId certified, node_id_of_certificate(id.certificate));
    if (certified != id.node)
        return fail(Errc::bad_certificate, "the certificate belongs to node " + certified.hex() +
                                               ", but the key here is that of " + id.node.hex());
    return {};
}

Result<void> write_membership(const StateDir& state, const Identity& id) {
    NEXAR_TRY_VOID(state.write(node_key_file, id.node_key));
    NEXAR_TRY_VOID(state.write(root_file, id.root_certificate));
    return save_certificate(state, id.certificate, id.issuer_certificate);
}

// Tokens of an earlier cluster are removed.
Result<void> write_cluster(const StateDir& state, const std::string& root_key, const Identity& id) {
    NEXAR_TRY_VOID(state.remove(tokens_file));
    NEXAR_TRY_VOID(state.write(root_key_file, root_key));
    NEXAR_TRY_VOID(state.write(issuer_key_file, id.issuer->key));
    NEXAR_TRY_VOID(state.write(issuer_file, id.issuer->certificate));
    return write_membership(state, id);
}

}  // namespace

std::string Identity::cluster_name() const {
    static constexpr std::string_view prefix = "nexar root ";
    const std::string name = admission::common_name_of_certificate(root_certificate);
    return name.starts_with(prefix) ? name.substr(prefix.size()) : name;
}

Result<void> save_certificate(const StateDir& state, const std::string& certificate,
                              const std::string& issuer_certificate) {
    return state.write(certificate_file, certificate + issuer_certificate);
}

Result<ResetSecret> reset_secret(const StateDir& state, uint16_t port) {
    NEXAR_TRY(auto text, state.read(reset_secret_file));
    if (!text) {
        text.emplace(reset_secret_bytes, '\0');
        random_bytes(std::span(reinterpret_cast<uint8_t*>(text->data()), text->size()));
        NEXAR_TRY_VOID(state.write(reset_secret_file, *text));
    }
    if (text->size() != reset_secret_bytes)
        return damaged(
            state, reset_secret_file,
            {Errc::io, "it must hold 32 bytes; without it the next start makes another one", -1, -1, {}});
    const std::string label = "nexar-reset " + std::to_string(port);
    const Digest derived = hmac_sha256(std::as_bytes(std::span(*text)), std::as_bytes(std::span(label)));
    ResetSecret out;
    std::ranges::copy(std::as_bytes(std::span(derived)), out.begin());
    return out;
}

Result<std::optional<Identity>> load_identity(const StateDir& state, WallSeconds now,
                                              WallSeconds leaf_lifetime) {
    NEXAR_TRY(const auto certificates, state.read(certificate_file));
    if (!certificates) return std::nullopt;
    Identity id;
    NEXAR_TRY_VOID(split_certificates(state, *certificates, id));
    NEXAR_TRY(id.node_key, need(state, node_key_file));
    NEXAR_TRY(id.root_certificate, need(state, root_file));
    NEXAR_TRY(auto issuer_key, state.read(issuer_key_file));
    if (issuer_key) {
        NEXAR_TRY(id.issuer, load_issuer(state, std::move(*issuer_key)));
        id.issuer->leaf_lifetime = leaf_lifetime;
    }
    NEXAR_TRY_VOID(renew_own_leaf(state, id, now));
    NEXAR_TRY_VOID(check_files(state, id, now));
    NEXAR_TRY_VOID(fill_derived(id));
    return id;
}

Result<Identity> init_cluster(const StateDir& state, const std::string& name, WallSeconds now,
                              WallSeconds leaf_lifetime) {
    NEXAR_TRY(const auto present, state.read(certificate_file));
    if (present) return fail(Errc::bad_state, "this node is in a cluster already (" + state.path() + ")");
    Identity id;
    Issuer issuer;
    NEXAR_TRY(const std::string root_key, make_key());
    NEXAR_TRY(id.root_certificate, make_root(root_key, name, now));
    NEXAR_TRY(issuer.key, make_key());
    issuer.leaf_lifetime = leaf_lifetime;
    NEXAR_TRY(issuer.certificate, make_issuer(root_key, id.root_certificate, issuer.key, now));
    NEXAR_TRY(id.node_key, make_key());
    NEXAR_TRY(const std::string csr, make_csr(id.node_key));
    NEXAR_TRY(id.certificate, sign_leaf(issuer.key, issuer.certificate, csr, now, leaf_lifetime));
    id.issuer_certificate = issuer.certificate;
    NEXAR_TRY_VOID(fill_derived(id));
    id.issuer = std::move(issuer);
    if (auto written = write_cluster(state, root_key, id); !written) {
        forget_identity(state);
        return fail(written.error());
    }
    return id;
}

Result<Identity> accept_join(const StateDir& state, const std::string& node_key, const JoinReply& reply,
                             const Digest& root_key_hash, WallSeconds now) {
    if (reply.error.code != Errc::ok) return fail(reply.error);
    Identity id;
    id.node_key = node_key;
    id.certificate = reply.certificate;
    id.issuer_certificate = reply.issuer_certificate;
    id.root_certificate = reply.root_certificate;
    NEXAR_TRY_VOID(fill_derived(id));
    if (id.root_key_hash != root_key_hash)
        return fail(Errc::bad_certificate, "the issuer sent another root than the token names");
    DerChain chain;
    for (const std::string& pem : {id.certificate, id.issuer_certificate}) {
        NEXAR_TRY(auto der, der_of_pem(pem));
        chain.push_back(std::move(der));
    }
    NEXAR_TRY([[maybe_unused]] const NodeId verified, verify_member(chain, id.root_certificate, now));
    for (const char* file : issuer_files) NEXAR_TRY_VOID(state.remove(file));
    if (auto written = write_membership(state, id); !written) {
        for (const char* file : membership_files) (void)state.remove(file);
        return fail(written.error());
    }
    return id;
}

void forget_identity(const StateDir& state) {
    for (const char* file : membership_files) (void)state.remove(file);
    for (const char* file : issuer_files) (void)state.remove(file);
    (void)state.remove(root_key_file);
}

Result<void> change_tokens(const StateDir& state, Issuer& issuer,
                           const std::function<Result<void>(TokenBook&)>& change) {
    TokenBook changed = issuer.tokens;
    NEXAR_TRY_VOID(change(changed));
    if (auto saved = state.write(tokens_file, changed.text()); !saved) {
        // The file may have been replaced although the directory's sync failed.
        if (const auto text = state.read(tokens_file))
            if (auto book = TokenBook::parse(text->value_or(""))) issuer.tokens = std::move(*book);
        return fail(saved.error());
    }
    issuer.tokens = std::move(changed);
    return {};
}

}  // namespace nexar::node
