// Which public keys are let through to the TLS library, and that nothing is read outside of what was given.
#include "core/key_form.hpp"

#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <catch2/catch_test_macros.hpp>
#include <memory>
#include <string>

#include "admission/certificates.hpp"
#include "core/random.hpp"
#include "support/der.hpp"
#include "support/processor_time.hpp"

using namespace nexar;
using namespace nexar::admission;
using nexar::test::Der;
using nexar::test::element;
using nexar::test::unhex;

namespace {

constexpr WallSeconds now = 1'800'000'000;

Der public_key_of(EVP_PKEY* key) {
    unsigned char* der = nullptr;
    const int size = i2d_PUBKEY(key, &der);
    REQUIRE(size > 0);
    const auto* begin = reinterpret_cast<std::byte*>(der);
    Der out(begin, begin + size);
    OPENSSL_free(der);
    EVP_PKEY_free(key);
    return out;
}

Der p256() {
    return public_key_of(EVP_EC_gen("P-256"));
}

Der p256_set(const char* parameter, const char* value) {
    EVP_PKEY* key = EVP_EC_gen("P-256");
    REQUIRE(EVP_PKEY_set_utf8_string_param(key, parameter, value) == 1);
    return public_key_of(key);
}

// Exactly as many bytes as are given, so that the address sanitizer reports the first one after them.
bool passes(Result<> check(Bytes), Bytes der) {
    const auto copy = std::make_unique<std::byte[]>(der.size());
    std::copy(der.begin(), der.end(), copy.get());
    const auto checked = check(Bytes(copy.get(), der.size()));
    if (!checked) CHECK(checked.error().code == Errc::bad_certificate);
    return checked.has_value();
}

void refuses_every_beginning(Result<> check(Bytes), const Der& der) {
    REQUIRE(passes(check, der));
    for (size_t n = 0; n < der.size(); ++n) REQUIRE_FALSE(passes(check, Bytes(der).first(n)));
    Der longer = der;
    longer.push_back(std::byte{0});
    REQUIRE_FALSE(passes(check, longer));
}

// A Certificate message's body (RFC 8446 section 4.4.2).
Der message_of(std::initializer_list<Der> certificates) {
    Der list;
    const auto put = [&](size_t value, int bytes, Der& to) {
        for (int i = bytes - 1; i >= 0; --i) to.push_back(static_cast<std::byte>(value >> (8 * i)));
    };
    for (const Der& one : certificates) {
        put(one.size(), 3, list);
        list.insert(list.end(), one.begin(), one.end());
        put(0, 2, list);
    }
    Der out{std::byte{0}};
    put(list.size(), 3, out);
    out.insert(out.end(), list.begin(), list.end());
    return out;
}

struct Cluster {
    Secret root_key = make_key().value(), issuer_key = make_key().value(), node_key = make_key().value();
    std::string root = make_root(root_key, "test", now).value();
    std::string issuer = make_issuer(root_key, root, issuer_key, now).value();
    std::string csr = make_csr(node_key).value();
    std::string leaf = sign_leaf(issuer_key, issuer, csr, now).value();
};

Der der_of_request(const std::string& pem) {
    const std::unique_ptr<BIO, decltype(&BIO_free_all)> bio(
        BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())), BIO_free_all);
    X509_REQ* request = PEM_read_bio_X509_REQ(bio.get(), nullptr, nullptr, nullptr);
    unsigned char* der = nullptr;
    const int size = i2d_X509_REQ(request, &der);
    REQUIRE(size > 0);
    const auto* begin = reinterpret_cast<std::byte*>(der);
    Der out(begin, begin + size);
    OPENSSL_free(der);
    X509_REQ_free(request);
    return out;
}

}  // namespace

TEST_CASE("nexar's own certificates and requests pass, whole and only whole", "[admission][A13]") {
    const Cluster c;
    for (const std::string* pem : {&c.root, &c.issuer, &c.leaf})
        refuses_every_beginning(check_certificate_key, der_of_pem(*pem).value());
    refuses_every_beginning(check_request_key, der_of_request(c.csr));
    CHECK_FALSE(passes(check_request_key, der_of_pem(c.leaf).value()));
    CHECK_FALSE(passes(check_certificate_key, der_of_request(c.csr)));
}

TEST_CASE("a key of any other form is refused, and the error says which is allowed", "[admission][A13]") {
    const struct {
        const char* name;
        Der key;
    } others[] = {
        {"RSA", public_key_of(EVP_RSA_gen(2048))},
        {"Ed25519", public_key_of(EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519"))},
        {"P-384", public_key_of(EVP_EC_gen("P-384"))},
        {"secp256k1", public_key_of(EVP_EC_gen("secp256k1"))},
        {"a compressed point", p256_set("point-format", "compressed")},
        {"a hybrid point", p256_set("point-format", "hybrid")},
        {"P-256 by explicit parameters", p256_set("encoding", "explicit")},
        {"a slow curve", test::slow_public_key()},
    };
    for (const auto& other : others) {
        INFO(other.name);
        CHECK_FALSE(passes(check_certificate_key, test::certificate_of(other.key)));
        CHECK_FALSE(passes(check_request_key, test::request_of(other.key)));
        const auto checked = check_request_key(test::request_of(other.key));
        CHECK(checked.error().text.find("P-256") != std::string::npos);
    }
    CHECK(passes(check_certificate_key, test::certificate_of(p256())));
    CHECK(passes(check_request_key, test::request_of(p256())));
}

TEST_CASE("a length that is indefinite, or longer than it need be, is refused", "[admission][A13]") {
    const Der good = test::certificate_of(p256());
    REQUIRE(good[1] == std::byte{0x81});
    REQUIRE(passes(check_certificate_key, good));
    const Bytes contents = Bytes(good).subspan(3);
    for (const char* length : {"80", "8200", "830000", "84000000", "ff", "85ffffffff"}) {
        INFO(length);
        Der bent = unhex("30");
        const Der begin = unhex(length);
        bent.insert(bent.end(), begin.begin(), begin.end());
        if (length[1] >= '2' && length[1] <= '4') bent.push_back(good[2]);
        bent.insert(bent.end(), contents.begin(), contents.end());
        if (length[1] == '0') bent.insert(bent.end(), 2, std::byte{0});
        CHECK_FALSE(passes(check_certificate_key, bent));
    }
    // A short element with a long form of its length.
    const Der key = p256();
    Der longer = unhex("308159");
    longer.insert(longer.end(), key.begin() + 2, key.end());
    CHECK_FALSE(passes(check_request_key, test::request_of(longer)));
}

TEST_CASE("whatever passes has for the TLS library the key that was checked", "[admission][A13]") {
    const Cluster c;
    Random random(3);
    const Der leaf = der_of_pem(c.leaf).value();
    const Der good = message_of({leaf, der_of_pem(c.issuer).value()});
    int parsed_keys = 0;
    for (int i = 0; i < 20'000; ++i) {
        Der bent = good;
        for (uint64_t changes = 1 + random.below(3); changes > 0; --changes)
            bent[random.below(random.below(2) == 0 ? 64 : bent.size())] =
                static_cast<std::byte>(random.below(256));
        (void)passes(check_certificate_message, bent);
        (void)passes(check_request_key, Bytes(bent).subspan(random.below(bent.size())));
        const Bytes certificate = Bytes(bent).subspan(7, leaf.size());
        if (!passes(check_certificate_key, certificate)) continue;
        const auto* at = reinterpret_cast<const unsigned char*>(certificate.data());
        X509* parsed = d2i_X509(nullptr, &at, static_cast<long>(certificate.size()));
        if (!parsed) continue;
        EVP_PKEY* key = X509_get0_pubkey(parsed);
        char group[32] = "";
        if (key) {
            ++parsed_keys;
            REQUIRE(EVP_PKEY_get_group_name(key, group, sizeof group, nullptr) == 1);
            REQUIRE(std::string(group) == "prime256v1");
            REQUIRE(EVP_PKEY_get_ec_point_conv_form(key) == POINT_CONVERSION_UNCOMPRESSED);
        }
        X509_free(parsed);
    }
    CHECK(parsed_keys > 100);
}

TEST_CASE("each certificate of a message is checked, and their number", "[admission][A13]") {
    const Der good = test::certificate_of(p256()), bad = test::certificate_of(test::slow_public_key());
    CHECK(passes(check_certificate_message, message_of({})));
    refuses_every_beginning(check_certificate_message, message_of({good, good}));
    CHECK(passes(check_certificate_message, message_of({good, good, good, good})));
    CHECK_FALSE(passes(check_certificate_message, message_of({good, good, good, good, good})));
    CHECK_FALSE(passes(check_certificate_message, message_of({bad})));
    CHECK_FALSE(passes(check_certificate_message, message_of({good, good, good, bad})));
}

// The limit is a sixth of what the TLS library takes for one, on this machine and in this build.
TEST_CASE("a slow key costs nothing in a request, a certificate or a chain", "[admission][A13]") {
    const Der certificate = test::certificate_of(test::slow_public_key());
    const Duration begin = test::processor_time();
    const auto* at = reinterpret_cast<const unsigned char*>(certificate.data());
    X509_free(d2i_X509(nullptr, &at, static_cast<long>(certificate.size())));
    const Duration parsed = test::processor_time();
    const std::string csr = test::pem_of(test::request_of(test::slow_public_key()), "CERTIFICATE REQUEST");
    const Cluster c;
    const Duration before = test::processor_time();
    CHECK_FALSE(node_id_of_csr(csr));
    CHECK_FALSE(sign_leaf(c.issuer_key, c.issuer, csr, now));
    CHECK_FALSE(node_id_of_certificate(test::pem_of(certificate, "CERTIFICATE")));
    CHECK_FALSE(verify_member({certificate, certificate}, c.root, now));
    CHECK_FALSE(verify_issuer({certificate, certificate}, key_hash_of_certificate(c.root).value(), now));
    const Duration took = test::processor_time() - before;
    INFO("the library " << (parsed - begin).count() << " ns, nexar " << took.count() << " ns");
    CHECK(took < (parsed - begin) / 6);
    CHECK(node_id_of_csr(csr).error().text.find("only ECDSA P-256") != std::string::npos);
}

TEST_CASE("of PEM the first block with the right label counts, and an encrypted one is refused",
          "[admission][A13]") {
    const Cluster c;
    const auto id = node_id_of_csr(c.csr).value();
    CHECK(node_id_of_csr(c.leaf + c.csr).value() == id);
    CHECK(node_id_of_csr(c.csr + make_csr(c.issuer_key).value()).value() == id);
    CHECK_FALSE(node_id_of_csr(c.leaf));
    CHECK_FALSE(node_id_of_certificate(c.csr));
    std::string encrypted = c.csr;
    encrypted.insert(encrypted.find('\n') + 1,
                     "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,000102030405060708090A0B0C0D0E0F\n\n");
    CHECK_FALSE(node_id_of_csr(encrypted));
}
