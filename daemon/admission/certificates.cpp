#include "admission/certificates.hpp"

#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <algorithm>

#include "admission/openssl.hpp"
#include "core/check.hpp"
#include "core/key_form.hpp"

namespace nexar::admission {
namespace {

Result<std::string> text_of(BIO* bio) {
    char* data = nullptr;
    const long n = BIO_get_mem_data(bio, &data);
    if (n <= 0) return openssl_failed(Errc::bad_certificate, "writing PEM");
    return std::string(data, static_cast<size_t>(n));
}

BioPtr reading(std::string_view pem) {
    return BioPtr(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
}

// The first block with this label, decoded, before anything of it is parsed. Nobody is asked for a
// passphrase: a block that says it is encrypted is an error, not a prompt on the daemon's terminal.
Result<DerPtr> read_pem(const std::string& pem, const char* label, const std::string& what, long& bytes) {
    const auto no_passphrase = [](char*, int, int, void*) { return -1; };
    auto bio = reading(pem);
    unsigned char* der = nullptr;
    if (PEM_bytes_read_bio(&der, &bytes, nullptr, label, bio.get(), no_passphrase, nullptr) != 1)
        return openssl_failed(Errc::bad_certificate, what + " that does not parse");
    return DerPtr(der);
}

Bytes bytes_of(const DerPtr& der, long bytes) {
    return std::as_bytes(std::span(der.get(), static_cast<size_t>(bytes)));
}

Result<Digest> key_hash(X509_PUBKEY* key) {
    unsigned char* der = nullptr;
    const int n = i2d_X509_PUBKEY(key, &der);
    if (n <= 0) return openssl_failed(Errc::bad_certificate, "encoding a public key");
    const Digest d = sha256(Bytes(reinterpret_cast<std::byte*>(der), static_cast<size_t>(n)));
    OPENSSL_free(der);
    return d;
}

Result<Digest> key_hash(EVP_PKEY* key) {
    X509_PUBKEY* spki = nullptr;
    if (X509_PUBKEY_set(&spki, key) != 1)
        return openssl_failed(Errc::bad_certificate, "encoding a public key");
    auto hash = key_hash(spki);
    X509_PUBKEY_free(spki);
    return hash;
}

NodeId node_id(const Digest& d) {
    NodeId id;
    id.bytes = d;
    return id;
}

bool add_extension(X509* to, X509* issuer, int nid, const char* value) {
    X509V3_CTX ctx;
    X509V3_set_ctx_nodb(&ctx);
    X509V3_set_ctx(&ctx, issuer, to, nullptr, nullptr, 0);
    ExtPtr extension(X509V3_EXT_conf_nid(nullptr, &ctx, nid, value));
    return extension && X509_add_ext(to, extension.get(), -1) == 1;
}

struct Profile {
    std::string common_name;
    const char* basic_constraints;
    const char* key_usage;
    WallSeconds seconds;
};
const char* const ca_usage = "critical,digitalSignature,keyCertSign,cRLSign";

// A certificate for `subject_key`, signed by `signer`; issuer null: self-signed.
Result<std::string> make_certificate(const Profile& profile, EVP_PKEY* subject_key, EVP_PKEY* signer,
                                     X509* issuer, WallSeconds now) {
    CertPtr cert(X509_new());
    X509* c = cert.get();
    uint8_t serial[16];
    random_bytes(serial);
    serial[0] &= 0x7f;  // positive
    BIGNUM* number = BN_bin2bn(serial, sizeof serial, nullptr);
    const bool serial_set = BN_to_ASN1_INTEGER(number, X509_get_serialNumber(c)) != nullptr;
    BN_free(number);
    NamePtr name(X509_NAME_new());
    const auto* cn = reinterpret_cast<const unsigned char*>(profile.common_name.c_str());
    X509* issuing = issuer ? issuer : c;
    const bool good =
        serial_set && X509_set_version(c, X509_VERSION_3) == 1 &&
        X509_NAME_add_entry_by_txt(name.get(), "CN", MBSTRING_UTF8, cn, -1, -1, 0) == 1 &&
        X509_set_subject_name(c, name.get()) == 1 &&
        X509_set_issuer_name(c, issuer ? X509_get_subject_name(issuer) : name.get()) == 1 &&
        ASN1_TIME_set(X509_getm_notBefore(c), static_cast<time_t>(now - backdate_seconds)) != nullptr &&
        ASN1_TIME_set(X509_getm_notAfter(c), static_cast<time_t>(now + profile.seconds)) != nullptr &&
        X509_set_pubkey(c, subject_key) == 1 &&
        add_extension(c, issuing, NID_basic_constraints, profile.basic_constraints) &&
        add_extension(c, issuing, NID_key_usage, profile.key_usage) &&
        add_extension(c, issuing, NID_subject_key_identifier, "hash") &&
        X509_sign(c, signer, EVP_sha256()) > 0;
    if (!good) return openssl_failed(Errc::bad_certificate, "making a certificate");
    return write_certificate(c);
}

std::string common_name_of(X509* c) {
    char text[128] = "";
    X509_NAME_get_text_by_NID(X509_get_subject_name(c), NID_commonName, text, sizeof text);
    return text;
}

Result<std::vector<CertPtr>> parse_chain(const DerChain& chain_der) {
    if (chain_der.empty())
        return fail(Errc::bad_certificate, "the peer showed no certificate; a member must show one");
    if (chain_der.size() > chain_length_max)
        return fail(Errc::bad_certificate, "the peer showed a chain of " + std::to_string(chain_der.size()) +
                                               " certificates; allowed: at most " +
                                               std::to_string(chain_length_max));
    std::vector<CertPtr> chain;
    for (const auto& der : chain_der) {
        NEXAR_TRY_VOID(check_certificate_key(der));
        const auto* p = reinterpret_cast<const unsigned char*>(der.data());
        chain.emplace_back(d2i_X509(nullptr, &p, static_cast<long>(der.size())));
        if (!chain.back()) return openssl_failed(Errc::bad_certificate, "a certificate that does not parse");
    }
    return chain;
}

// Path validation (RFC 5280 section 6) of chain[0] over chain[1..] to `root`, at time `now`.
Result<void> verify_path(const std::vector<CertPtr>& chain, X509* root, WallSeconds now) {
    StorePtr store(X509_STORE_new());
    X509_STORE_add_cert(store.get(), root);
    STACK_OF(X509)* others = sk_X509_new_null();
    for (size_t i = 1; i < chain.size(); ++i) sk_X509_push(others, chain[i].get());
    StoreCtxPtr ctx(X509_STORE_CTX_new());
    X509_STORE_CTX_init(ctx.get(), store.get(), chain[0].get(), others);
    X509_STORE_CTX_set_time(ctx.get(), 0, static_cast<time_t>(now));
    const int verified = X509_verify_cert(ctx.get());
    const int why = X509_STORE_CTX_get_error(ctx.get());
    sk_X509_free(others);
    ERR_clear_error();
    if (verified == 1) return {};
    return fail(Errc::bad_certificate, std::string("the certificate of '") + common_name_of(chain[0].get()) +
                                           "' is refused: " + X509_verify_cert_error_string(why));
}

}  // namespace

Digest sha256(Bytes data) {
    Digest d;
    NEXAR_CHECK(EVP_Digest(data.data(), data.size(), d.data(), nullptr, EVP_sha256(), nullptr) == 1);
    return d;
}

Digest hmac_sha256(Bytes key, Bytes data) {
    Digest d;
    unsigned int n = 0;
    NEXAR_CHECK(HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
                     reinterpret_cast<const unsigned char*>(data.data()), data.size(), d.data(),
                     &n) != nullptr);
    return d;
}

// One block: no more is needed.
SecretBytes<32> hkdf_sha256(Bytes secret, Bytes salt, Bytes info) {
    Digest extracted = hmac_sha256(salt, secret);
    std::vector<std::byte> block(info.begin(), info.end());
    block.push_back(std::byte{1});
    Digest made = hmac_sha256(std::as_bytes(std::span(extracted)), block);
    const SecretBytes<32> out(made);
    wipe(std::as_writable_bytes(std::span(extracted)));
    wipe(std::as_writable_bytes(std::span(made)));
    return out;
}

void random_bytes(std::span<uint8_t> out) {
    NEXAR_CHECK(RAND_bytes(out.data(), static_cast<int>(out.size())) == 1);
}

uint64_t random_u64() {
    uint64_t value = 0;
    random_bytes(std::span(reinterpret_cast<uint8_t*>(&value), sizeof value));
    return value;
}

Result<KeyPtr> read_key(const Secret& pem) {
    auto bio = reading(pem.text());
    KeyPtr key(PEM_read_bio_PrivateKey(bio.get(), nullptr, nullptr, nullptr));
    if (!key) return openssl_failed(Errc::bad_certificate, "a private key that does not parse");
    return key;
}

Result<CertPtr> read_certificate(const std::string& pem) {
    long bytes = 0;
    NEXAR_TRY(const DerPtr der, read_pem(pem, PEM_STRING_X509, "a certificate", bytes));
    NEXAR_TRY_VOID(check_certificate_key(bytes_of(der, bytes)));
    const unsigned char* at = der.get();
    CertPtr cert(d2i_X509(nullptr, &at, bytes));
    if (!cert) return openssl_failed(Errc::bad_certificate, "a certificate that does not parse");
    return cert;
}

Result<std::string> write_certificate(X509* certificate) {
    BioPtr bio(BIO_new(BIO_s_mem()));
    if (PEM_write_bio_X509(bio.get(), certificate) != 1)
        return openssl_failed(Errc::bad_certificate, "writing a certificate");
    return text_of(bio.get());
}

Result<Secret> make_key() {
    KeyPtr key(EVP_EC_gen("P-256"));
    BioPtr bio(BIO_new(BIO_s_mem()));
    if (!key || PEM_write_bio_PrivateKey(bio.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr) != 1)
        return openssl_failed(Errc::bad_certificate, "making a key");
    NEXAR_TRY(auto pem, text_of(bio.get()));
    return Secret::take(std::move(pem));
}

Result<NodeId> node_id_of_key(const Secret& key_pem) {
    NEXAR_TRY(auto key, read_key(key_pem));
    NEXAR_TRY(const Digest hash, key_hash(key.get()));
    return node_id(hash);
}

Result<Digest> key_hash_of_certificate(const std::string& certificate_pem) {
    NEXAR_TRY(auto cert, read_certificate(certificate_pem));
    return key_hash(X509_get_X509_PUBKEY(cert.get()));
}

Result<NodeId> node_id_of_certificate(const std::string& certificate_pem) {
    NEXAR_TRY(const Digest hash, key_hash_of_certificate(certificate_pem));
    return node_id(hash);
}

std::string common_name_of_certificate(const std::string& certificate_pem) {
    const auto cert = read_certificate(certificate_pem);
    return cert ? common_name_of(cert->get()) : std::string();
}

Result<WallSeconds> expiry_of_certificate(const std::string& certificate_pem) {
    NEXAR_TRY(auto cert, read_certificate(certificate_pem));
    int days = 0, seconds = 0;
    std::unique_ptr<ASN1_TIME, Free<ASN1_TIME_free>> epoch(ASN1_TIME_set(nullptr, 0));
    if (ASN1_TIME_diff(&days, &seconds, epoch.get(), X509_get0_notAfter(cert.get())) != 1)
        return openssl_failed(Errc::bad_certificate, "reading an expiry date");
    return WallSeconds{days} * 86400 + seconds;
}

ClusterId cluster_id_of(const Digest& root_key_hash) {
    ClusterId id;
    std::copy_n(root_key_hash.begin(), id.size(), id.begin());
    return id;
}

Result<std::string> make_root(const Secret& root_key, std::string_view cluster_name, WallSeconds now) {
    NEXAR_TRY(auto key, read_key(root_key));
    const Profile profile{"nexar root " + std::string(cluster_name), "critical,CA:TRUE,pathlen:1", ca_usage,
                          root_seconds};
    return make_certificate(profile, key.get(), key.get(), nullptr, now);
}

Result<std::string> make_issuer(const Secret& root_key, const std::string& root_certificate,
                                const Secret& issuer_key, WallSeconds now) {
    NEXAR_TRY(auto signer, read_key(root_key));
    NEXAR_TRY(auto root, read_certificate(root_certificate));
    NEXAR_TRY(auto key, read_key(issuer_key));
    NEXAR_TRY(const Digest hash, key_hash(key.get()));
    const Profile profile{"nexar issuer " + node_id(hash).short_hex(), "critical,CA:TRUE,pathlen:0", ca_usage,
                          issuer_seconds};
    return make_certificate(profile, key.get(), signer.get(), root.get(), now);
}

Result<std::string> make_csr(const Secret& node_key) {
    NEXAR_TRY(auto key, read_key(node_key));
    ReqPtr req(X509_REQ_new());
    BioPtr bio(BIO_new(BIO_s_mem()));
    const bool good = X509_REQ_set_version(req.get(), 0) == 1 &&
                      X509_REQ_set_pubkey(req.get(), key.get()) == 1 &&
                      X509_REQ_sign(req.get(), key.get(), EVP_sha256()) > 0 &&
                      PEM_write_bio_X509_REQ(bio.get(), req.get()) == 1;
    if (!good) return openssl_failed(Errc::bad_certificate, "making a certificate request");
    return text_of(bio.get());
}

namespace {

Result<ReqPtr> read_csr(const std::string& csr) {
    if (csr.size() > csr_bytes_max)
        return fail(Errc::bad_certificate, "a certificate request of " + std::to_string(csr.size()) +
                                               " bytes; at most " + std::to_string(csr_bytes_max) +
                                               " are allowed");
    long bytes = 0;
    NEXAR_TRY(const DerPtr der, read_pem(csr, PEM_STRING_X509_REQ, "a certificate request", bytes));
    NEXAR_TRY_VOID(check_request_key(bytes_of(der, bytes)));
    const unsigned char* at = der.get();
    ReqPtr req(d2i_X509_REQ(nullptr, &at, bytes));
    if (!req) return openssl_failed(Errc::bad_certificate, "a certificate request that does not parse");
    EVP_PKEY* key = X509_REQ_get0_pubkey(req.get());
    if (!key) return openssl_failed(Errc::bad_certificate, "a certificate request without a usable key");
    if (X509_REQ_verify(req.get(), key) != 1)
        return openssl_failed(Errc::bad_certificate, "a certificate request whose signature is wrong");
    return req;
}

}  // namespace

Result<NodeId> node_id_of_csr(const std::string& csr) {
    NEXAR_TRY(const auto req, read_csr(csr));
    NEXAR_TRY(const Digest hash, key_hash(X509_REQ_get0_pubkey(req.get())));
    return node_id(hash);
}

Result<std::string> sign_leaf(const Secret& issuer_key, const std::string& issuer_certificate,
                              const std::string& csr, WallSeconds now, WallSeconds lifetime) {
    NEXAR_TRY(auto signer, read_key(issuer_key));
    NEXAR_TRY(auto issuer, read_certificate(issuer_certificate));
    NEXAR_TRY(const auto req, read_csr(csr));
    EVP_PKEY* key = X509_REQ_get0_pubkey(req.get());
    NEXAR_TRY(const Digest hash, key_hash(key));
    // No later than the issuer's own expiry: after it, no peer would accept the leaf.
    NEXAR_TRY(const WallSeconds end, expiry_of_certificate(issuer_certificate));
    if (end <= now) return fail(Errc::bad_certificate, "the issuer's own certificate has expired");
    const Profile profile{node_id(hash).hex(), "critical,CA:FALSE", "critical,digitalSignature",
                          std::min(lifetime, end - now)};
    return make_certificate(profile, key, signer.get(), issuer.get(), now);
}

Result<std::vector<std::byte>> der_of_pem(const std::string& certificate_pem) {
    NEXAR_TRY(auto cert, read_certificate(certificate_pem));
    unsigned char* der = nullptr;
    const int n = i2d_X509(cert.get(), &der);
    if (n <= 0) return openssl_failed(Errc::bad_certificate, "encoding a certificate");
    const auto* begin = reinterpret_cast<std::byte*>(der);
    std::vector<std::byte> out(begin, begin + n);
    OPENSSL_free(der);
    return out;
}

Result<NodeId> verify_member(const DerChain& chain_der, const std::string& root_certificate,
                             WallSeconds now) {
    NEXAR_TRY(auto chain, parse_chain(chain_der));
    NEXAR_TRY(auto root, read_certificate(root_certificate));
    NEXAR_TRY_VOID(verify_path(chain, root.get(), now));
    X509* leaf = chain[0].get();
    if (X509_check_ca(leaf) != 0)
        return fail(Errc::bad_certificate,
                    "'" + common_name_of(leaf) + "' is an issuer's certificate, not a node's");
    NEXAR_TRY(const Digest hash, key_hash(X509_get_X509_PUBKEY(leaf)));
    const NodeId id = node_id(hash);
    if (common_name_of(leaf) != id.hex())
        return fail(Errc::bad_certificate, "a certificate named '" + common_name_of(leaf) +
                                               "' whose key belongs to node " + id.hex());
    return id;
}

Result<NodeId> verify_issuer(const DerChain& chain_der, const Digest& root_key_hash, WallSeconds now) {
    NEXAR_TRY(auto chain, parse_chain(chain_der));
    X509* root = chain.back().get();
    NEXAR_TRY(const Digest hash, key_hash(X509_get_X509_PUBKEY(root)));
    if (hash != root_key_hash)
        return fail(Errc::bad_certificate, "the issuer's root key is not the one that the token names");
    NEXAR_TRY_VOID(verify_path(chain, root, now));
    if (X509_check_ca(chain[0].get()) == 0 || chain.size() < 2)
        return fail(Errc::permission, "node " + common_name_of(chain[0].get()) +
                                          " is a member without issuer rights; only an issuer may admit");
    NEXAR_TRY(const Digest key, key_hash(X509_get_X509_PUBKEY(chain[0].get())));
    return node_id(key);
}

}  // namespace nexar::admission
