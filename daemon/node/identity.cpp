// See identity.hpp.
#include "node/identity.hpp"

#include <algorithm>

namespace nexar::node {
namespace {

using namespace admission;
using storage::Batch;
using storage::Change;
using writers::StateDir;

// One file per item. Without the certificate the others have no effect [K7].
constexpr const char* node_key_file = "node.key";
constexpr const char* certificate_file = "node.crt";  // and its issuer's, in one file
constexpr const char* root_file = "root.crt";
constexpr const char* root_key_file = "root.key";
constexpr const char* issuer_key_file = "issuer.key";
constexpr const char* issuer_file = "issuer.crt";
constexpr const char* tokens_file = "tokens";
constexpr const char* membership_files[] = {certificate_file, node_key_file, root_file, roster_file};
constexpr const char* issuer_files[] = {issuer_key_file, issuer_file, tokens_file, root_key_file};

Result<Secret> need(const StateDir& state, const char* file) {
    NEXAR_TRY(auto text, state.read(file));
    if (!text)
        return fail(Errc::io, state.path() + "/" + file + " is missing; the state directory is damaged");
    return std::move(*text);
}
Result<std::string> need_text(const StateDir& state, const char* file) {
    NEXAR_TRY(const Secret content, need(state, file));
    return std::string(content.text());
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

// An issuer of another cluster is no issuer here, whatever left its files.
Result<void> check_issuer(const StateDir& state, const Issuer& issuer, const Identity& id, WallSeconds now) {
    const auto key_hash = node_id_of_key(issuer.key);
    if (!key_hash) return damaged(state, issuer_key_file, key_hash.error());
    const auto certified = key_hash_of_certificate(issuer.certificate);
    if (!certified) return damaged(state, issuer_file, certified.error());
    if (!std::ranges::equal(key_hash->bytes, *certified))
        return fail(Errc::bad_certificate, state.path() + "/" + issuer_file + " is not the certificate of " +
                                               issuer_key_file + " beside it");
    NEXAR_TRY(auto der, certificate_in(state, issuer_file, issuer.certificate));
    NEXAR_TRY(auto root, certificate_in(state, root_file, id.root_certificate));
    NEXAR_TRY(const Digest root_key_hash, key_hash_of_certificate(id.root_certificate));
    const auto valid = verify_issuer({std::move(der), std::move(root)}, root_key_hash, now);
    if (!valid)
        return fail(valid.error().code, state.path() + "/" + issuer_file +
                                            " makes no issuer of this cluster (" + root_file +
                                            "): " + valid.error().text +
                                            "; a plain member has neither it nor " + issuer_key_file);
    return {};
}

Result<Issuer> load_issuer(const StateDir& state, Secret key, const Identity& id, WallSeconds now) {
    Issuer issuer;
    issuer.key = std::move(key);
    NEXAR_TRY(issuer.certificate, need_text(state, issuer_file));
    NEXAR_TRY_VOID(check_issuer(state, issuer, id, now));
    NEXAR_TRY(const auto tokens, state.read(tokens_file));
    auto book = TokenBook::parse(tokens ? tokens->text() : std::string_view());
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
    id.leaf_unsaved = true;
    return {};
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

void add(Batch& batch, const char* file, std::string_view text) {
    batch.push_back({file, Secret(text)});
}

// The certificate is last [K7].
void add_membership(Batch& batch, const Identity& id, const Batch& start) {
    batch.push_back({node_key_file, id.node_key});
    add(batch, root_file, id.root_certificate);
    batch.insert(batch.end(), start.begin(), start.end());
    batch.push_back(certificate_change(id.certificate, id.issuer_certificate));
}

}  // namespace

std::string Identity::cluster_name() const {
    static constexpr std::string_view prefix = "nexar root ";
    const std::string name = admission::common_name_of_certificate(root_certificate);
    return name.starts_with(prefix) ? name.substr(prefix.size()) : name;
}

Change certificate_change(const std::string& certificate, const std::string& issuer_certificate) {
    return {certificate_file, Secret(certificate + issuer_certificate)};
}

Change tokens_change(const TokenBook& tokens) {
    return {tokens_file, tokens.text()};
}

Result<std::optional<Identity>> load_identity(const StateDir& state, WallSeconds now,
                                              WallSeconds leaf_lifetime) {
    NEXAR_TRY(const auto certificates, state.read(certificate_file));
    if (!certificates) return std::nullopt;
    Identity id;
    NEXAR_TRY_VOID(split_certificates(state, std::string(certificates->text()), id));
    NEXAR_TRY(id.node_key, need(state, node_key_file));
    NEXAR_TRY(id.root_certificate, need_text(state, root_file));
    NEXAR_TRY(auto issuer_key, state.read(issuer_key_file));
    if (issuer_key) {
        NEXAR_TRY(id.issuer, load_issuer(state, std::move(*issuer_key), id, now));
        id.issuer->leaf_lifetime = leaf_lifetime;
    }
    NEXAR_TRY_VOID(renew_own_leaf(state, id, now));
    NEXAR_TRY_VOID(check_files(state, id, now));
    NEXAR_TRY_VOID(fill_derived(id));
    return id;
}

Result<Cluster> make_cluster(const std::string& name, const Secret& node_key, WallSeconds now,
                             WallSeconds leaf_lifetime) {
    Cluster out;
    Identity& id = out.identity;
    Issuer issuer;
    NEXAR_TRY(out.root_key, make_key());
    NEXAR_TRY(id.root_certificate, make_root(out.root_key, name, now));
    NEXAR_TRY(issuer.key, make_key());
    issuer.leaf_lifetime = leaf_lifetime;
    NEXAR_TRY(issuer.certificate, make_issuer(out.root_key, id.root_certificate, issuer.key, now));
    id.node_key = node_key;
    NEXAR_TRY(const std::string csr, make_csr(id.node_key));
    NEXAR_TRY(id.certificate, sign_leaf(issuer.key, issuer.certificate, csr, now, leaf_lifetime));
    id.issuer_certificate = issuer.certificate;
    NEXAR_TRY_VOID(fill_derived(id));
    id.issuer = std::move(issuer);
    return out;
}

Result<Identity> accept_join(const Secret& node_key, const JoinReply& reply, const Digest& root_key_hash,
                             WallSeconds now) {
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
    return id;
}

// Tokens and addresses of an earlier cluster are removed.
Batch files_of_init(const Cluster& cluster, const Batch& start) {
    Batch out{{tokens_file, std::nullopt}, {roster_file, std::nullopt}};
    out.push_back({root_key_file, cluster.root_key});
    out.push_back({issuer_key_file, cluster.identity.issuer->key});
    add(out, issuer_file, cluster.identity.issuer->certificate);
    add_membership(out, cluster.identity, start);
    return out;
}

// The issuer's files that an interrupted init left belong to another cluster.
Batch files_of_join(const Identity& identity, const Batch& start, std::string_view roster) {
    Batch out;
    for (const char* file : issuer_files) out.push_back({file, std::nullopt});
    add(out, roster_file, roster);
    add_membership(out, identity, start);
    return out;
}

// The copies come first, and of the originals the certificate: a batch that fails leaves the node in the
// cluster, or without it.
Result<Batch> files_of_leave(const StateDir& state, const std::string& asked) {
    Batch out;
    if (asked.empty())
        out.push_back({left_entry_file, std::nullopt});
    else
        add(out, left_entry_file, asked);
    for (const Change& change : no_files()) {
        NEXAR_TRY(auto content, state.read(change.file));
        out.push_back({set_aside_prefix + change.file, std::move(content)});
    }
    for (Change& change : no_files()) out.push_back(std::move(change));
    return out;
}

// A text that is no token is reported where it is used.
std::string configured_entry(const std::string& join_token, bool init_cluster) {
    if (init_cluster) return "init";
    const auto token = Token::parse(join_token);
    return token ? "token " + hex(token->id) : "";
}

Batch no_files() {
    Batch out;
    for (const char* file : membership_files) out.push_back({file, std::nullopt});
    for (const char* file : issuer_files) out.push_back({file, std::nullopt});
    return out;
}

}  // namespace nexar::node
