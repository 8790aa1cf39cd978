// Certificates for tests.
#include "support/test_certs.hpp"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/sha.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <atomic>
#include <stdexcept>

namespace nexar::test {

namespace {

void must(bool ok) {
    if (!ok) throw std::runtime_error("test certificates: the TLS library failed");
}

std::string text_of(BIO* bio) {
    char* data = nullptr;
    const long size = BIO_get_mem_data(bio, &data);
    std::string out(data, static_cast<size_t>(size));
    BIO_free(bio);
    return out;
}

std::string pem_of(X509* certificate) {
    BIO* bio = BIO_new(BIO_s_mem());
    must(PEM_write_bio_X509(bio, certificate) == 1);
    return text_of(bio);
}

void add_extension(X509* certificate, X509* issuer, int nid, const char* value) {
    X509V3_CTX context;
    X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
    X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, nid, value);
    must(extension && X509_add_ext(certificate, extension, -1) == 1);
    X509_EXTENSION_free(extension);
}

X509* make(EVP_PKEY* key, const std::string& name, X509* issuer, EVP_PKEY* issuer_key, long from_s,
           long to_s) {
    static std::atomic<long> serial = 1;
    X509* certificate = X509_new();
    X509_set_version(certificate, X509_VERSION_3);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate), serial++);
    X509_gmtime_adj(X509_getm_notBefore(certificate), from_s);
    X509_gmtime_adj(X509_getm_notAfter(certificate), to_s);
    X509_NAME* subject = X509_get_subject_name(certificate);
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8,
                               reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
    X509_set_issuer_name(certificate, issuer ? X509_get_subject_name(issuer) : subject);
    X509_set_pubkey(certificate, key);
    X509* signer = issuer ? issuer : certificate;
    add_extension(certificate, signer, NID_basic_constraints,
                  issuer ? "critical,CA:FALSE" : "critical,CA:TRUE");
    add_extension(certificate, signer, NID_key_usage,
                  issuer ? "critical,digitalSignature" : "critical,keyCertSign");
    if (issuer) add_extension(certificate, signer, NID_ext_key_usage, "serverAuth,clientAuth");
    must(X509_sign(certificate, issuer_key, EVP_sha256()) > 0);
    return certificate;
}

NodeId id_of(X509* certificate) {
    unsigned char* der = nullptr;
    const int size = i2d_X509_PUBKEY(X509_get_X509_PUBKEY(certificate), &der);
    must(size > 0);
    NodeId id;
    SHA256(der, static_cast<size_t>(size), id.bytes.data());
    OPENSSL_free(der);
    return id;
}

}  // namespace

struct CertificateAuthority::Impl {
    EVP_PKEY* key = nullptr;
    X509* certificate = nullptr;
    ~Impl() {
        X509_free(certificate);
        EVP_PKEY_free(key);
    }
};

CertificateAuthority::CertificateAuthority(const std::string& name) : impl_(std::make_unique<Impl>()) {
    impl_->key = EVP_EC_gen("P-256");
    must(impl_->key != nullptr);
    impl_->certificate = make(impl_->key, name, nullptr, impl_->key, -3600, 86400);
    pem_ = pem_of(impl_->certificate);
}

CertificateAuthority::~CertificateAuthority() = default;

Leaf CertificateAuthority::issue(const std::string& name, long from_s, long to_s) const {
    EVP_PKEY* key = EVP_EC_gen("P-256");
    must(key != nullptr);
    X509* certificate = make(key, name, impl_->certificate, impl_->key, from_s, to_s);
    BIO* bio = BIO_new(BIO_s_mem());
    must(PEM_write_bio_PrivateKey(bio, key, nullptr, nullptr, 0, nullptr, nullptr) == 1);
    Leaf leaf{pem_of(certificate), Secret(text_of(bio)), id_of(certificate)};
    X509_free(certificate);
    EVP_PKEY_free(key);
    return leaf;
}

Result<NodeId> node_id_of(const std::vector<std::byte>& certificate_der) {
    const auto* at = reinterpret_cast<const unsigned char*>(certificate_der.data());
    X509* certificate = d2i_X509(nullptr, &at, static_cast<long>(certificate_der.size()));
    if (!certificate) return fail(Errc::bad_certificate, "not a DER certificate");
    const NodeId id = id_of(certificate);
    X509_free(certificate);
    return id;
}

}  // namespace nexar::test
