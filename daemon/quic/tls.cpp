// TLS contexts and sessions over OpenSSL >= 3.5.
#include "quic/tls.hpp"

#include <ngtcp2/ngtcp2_crypto.h>
#include <ngtcp2/ngtcp2_crypto_ossl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <algorithm>
#include <cstring>
#include <ctime>

#include "core/check.hpp"
#include "core/key_form.hpp"

namespace nexar::quic {

// An SSL object's application data, for ngtcp2's glue and for this file's callbacks. The glue's part comes
// first, and is unused over a byte stream.
struct ConnRef {
    ngtcp2_crypto_conn_ref glue;
    ngtcp2_conn* conn;
    TlsPeer* session;
    bool is_quic = false;
};

namespace {

constexpr long peer_certificates_bytes_max = 8 * 1024;  // nexar's own chains have about 1 KiB
constexpr int chain_depth_max = 4;
constexpr size_t client_hello_bytes_max = 4 * 1024;      // nexar's own has about 250 bytes
constexpr unsigned transport_parameters_extension = 57;  // RFC 9001 section 8.2
constexpr size_t exported_bytes_max = 1024;

template <auto Free>
struct Deleter {
    template <class T>
    void operator()(T* p) const {
        Free(p);
    }
};
using Bio = std::unique_ptr<BIO, Deleter<BIO_free>>;
using Certificate = std::unique_ptr<X509, Deleter<X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Deleter<EVP_PKEY_free>>;

TlsPeer& session_of(SSL* ssl) {
    return *static_cast<ConnRef*>(SSL_get_app_data(ssl))->session;
}

std::string library_error() {
    const unsigned long code = ERR_peek_last_error();
    ERR_clear_error();
    if (code == 0) return "unknown error";
    char text[256];
    ERR_error_string_n(code, text, sizeof text);
    return text;
}

bool is_pem(std::string_view text) {
    return text.find("-----BEGIN") != std::string::npos;
}

Bio memory(std::string_view text) {
    return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

Result<std::vector<Certificate>> parse_certificates(const std::string& text, const char* what) {
    std::vector<Certificate> out;
    Bio bio = memory(text);
    if (!is_pem(text)) {
        Certificate one(d2i_X509_bio(bio.get(), nullptr));
        if (!one)
            return fail(Errc::bad_certificate, std::string(what) + ": neither PEM nor a DER certificate");
        out.push_back(std::move(one));
        return out;
    }
    while (X509* one = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)) out.emplace_back(one);
    const unsigned long end = ERR_peek_last_error();
    ERR_clear_error();
    if (ERR_GET_REASON(end) != PEM_R_NO_START_LINE || out.empty())
        return fail(Errc::bad_certificate, std::string(what) + ": a PEM certificate in it cannot be read");
    return out;
}

Result<Key> parse_key(const Secret& secret) {
    const std::string_view text = secret.text();
    Bio bio = memory(text);
    // No passphrase callback: an encrypted key is an error, not a prompt on the terminal.
    auto no_passphrase = [](char*, int, int, void*) { return -1; };
    Key key(is_pem(text) ? PEM_read_bio_PrivateKey(bio.get(), nullptr, no_passphrase, nullptr)
                         : d2i_PrivateKey_bio(bio.get(), nullptr));
    if (!key) return fail(Errc::bad_certificate, "private key: cannot be read: " + library_error());
    return key;
}

PeerChain to_der(STACK_OF(X509) * certificates) {
    PeerChain out;
    for (int i = 0; i < sk_X509_num(certificates); ++i) {
        unsigned char* der = nullptr;
        const int size = i2d_X509(sk_X509_value(certificates, i), &der);
        if (size <= 0) return {};
        const std::byte* begin = reinterpret_cast<std::byte*>(der);
        out.emplace_back(begin, begin + size);
        OPENSSL_free(der);
    }
    return out;
}

std::optional<WallSeconds> first_end(STACK_OF(X509) * certificates) {
    std::optional<WallSeconds> first;
    for (int i = 0; i < sk_X509_num(certificates); ++i) {
        tm end{};
        if (ASN1_TIME_to_tm(X509_get0_notAfter(sk_X509_value(certificates, i)), &end) != 1) return 0;
        const WallSeconds seconds = timegm(&end);
        first = std::min(first.value_or(seconds), seconds);
    }
    return first;
}

// Replaces the library's verification: first the chain to an anchor (not for a joiner, which has no anchor
// yet and knows the issuer by its key's hash), then the caller's verifier.
int verify_peer(X509_STORE_CTX* store, void*) {
    SSL* ssl = static_cast<SSL*>(X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx()));
    TlsPeer& session = session_of(ssl);
    // Decided by the protocol that was dialled, not by the peer's claim about its choice.
    const bool joining = session.dial_alpn() == alpn_join;
    if (!joining) {
        if (auto wall = session.context().wall_seconds()) X509_STORE_CTX_set_time(store, 0, *wall);
        if (X509_verify_cert(store) != 1) {
            session.refuse(std::string("the peer's certificate is not valid here: ") +
                           X509_verify_cert_error_string(X509_STORE_CTX_get_error(store)));
            return 0;
        }
    }
    STACK_OF(X509)* chain = joining ? X509_STORE_CTX_get0_untrusted(store) : X509_STORE_CTX_get0_chain(store);
    session.set_peer_valid_until(first_end(chain));
    if (session.verify(to_der(chain))) return 1;
    X509_STORE_CTX_set_error(store, X509_V_ERR_APPLICATION_VERIFICATION);
    return 0;
}

// Why a message of the peer's handshake is not to be parsed; `body`: without its type and length.
std::optional<std::string> objection_to(int type, Bytes body, bool is_quic) {
    if (type == SSL3_MT_CLIENT_HELLO && body.size() > client_hello_bytes_max)
        return "the dialler's handshake begins with " + std::to_string(body.size()) + " bytes; at most " +
               std::to_string(client_hello_bytes_max) + " are allowed";
    if (type == SSL3_MT_COMPRESSED_CERTIFICATE)
        return "the peer shows compressed certificates, which are not allowed";
    if (type == SSL3_MT_NEWSESSION_TICKET && is_quic)  // over a byte stream tcp/ refuses them
        return "the peer sends session tickets, which are not allowed";
    if (type != SSL3_MT_CERTIFICATE) return std::nullopt;
    const auto checked = check_certificate_message(body);
    if (checked) return std::nullopt;
    return "the peer shows " + checked.error().text;
}

// A message of the peer's handshake, whole, in the library's own buffer, which it parses after this.
void on_message(int is_written, int, int content, const void* bytes, size_t size, SSL* ssl, void*) {
    if (is_written == 0 && content == SSL3_RT_HANDSHAKE)
        session_of(ssl).on_message(MutableBytes(static_cast<std::byte*>(const_cast<void*>(bytes)), size));
}

// The library takes a ClientHello without QUIC's parameters for a good one; ngtcp2 goes on without them to a
// failed assertion of its own.
int on_client_hello(SSL* ssl, int* alert, void*) {
    const unsigned char* bytes = nullptr;
    size_t size = 0;
    if (!static_cast<ConnRef*>(SSL_get_app_data(ssl))->is_quic ||
        SSL_client_hello_get0_ext(ssl, transport_parameters_extension, &bytes, &size) == 1)
        return SSL_CLIENT_HELLO_SUCCESS;
    session_of(ssl).refuse("the dialler's handshake has no transport parameters, which QUIC needs");
    *alert = SSL_AD_MISSING_EXTENSION;
    return SSL_CLIENT_HELLO_ERROR;
}

// The text for the operators of both nodes: what is wrong and what helps. `offered`: the dialler's first
// names.
std::string no_common_protocol(const std::vector<std::string>& offered,
                               const std::vector<std::string>& accepted) {
    std::string theirs, ours;
    for (const std::string& name : offered) theirs += (theirs.empty() ? "" : ", ") + name;
    for (const std::string& name : accepted) ours += (ours.empty() ? "" : ", ") + name;
    const bool version = !offered.empty() && offered.front().starts_with("nexar/");
    const bool newer =
        version && (offered.front().size() > alpn_nexar.size() || offered.front() > alpn_nexar);
    return "the dialler speaks " + (theirs.empty() ? std::string("nothing known") : theirs) +
           "; this daemon speaks " + ours +
           (!version ? ""
            : newer  ? ": upgrade this one"
                     : ": upgrade the dialler");
}

// Picks the dialler's first name that this endpoint accepts, and requires no certificate of a joiner. It runs
// before the CertificateRequest is written.
int select_alpn(SSL* ssl, const unsigned char** out, unsigned char* out_size, const unsigned char* in,
                unsigned int in_size, void*) {
    TlsPeer& session = session_of(ssl);
    std::vector<std::string> offered;
    for (unsigned int at = 0; at < in_size; at += 1u + in[at]) {
        if (at + 1u + in[at] > in_size) break;
        const std::string_view name(reinterpret_cast<const char*>(in + at + 1), in[at]);
        if (session.context().accepts_alpn(name)) {
            *out = in + at + 1;
            *out_size = in[at];
            if (name != alpn_join) return SSL_TLSEXT_ERR_OK;
            SSL_set_verify(ssl, SSL_VERIFY_NONE, nullptr);
            return session.context().show_join_identity(ssl) ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_ALERT_FATAL;
        }
        if (offered.size() < 4) offered.emplace_back(name.substr(0, 32));
    }
    session.refuse(no_common_protocol(offered, session.context().alpns()));
    return SSL_TLSEXT_ERR_ALERT_FATAL;
}

Result<> use_identity(SSL_CTX* ctx, const std::vector<Certificate>& chain, EVP_PKEY* key) {
    if (SSL_CTX_use_certificate(ctx, chain.front().get()) != 1)
        return fail(Errc::bad_certificate, "certificate: refused by the TLS library: " + library_error());
    for (size_t i = 1; i < chain.size(); ++i) SSL_CTX_add1_chain_cert(ctx, chain[i].get());
    if (SSL_CTX_use_PrivateKey(ctx, key) != 1 || SSL_CTX_check_private_key(ctx) != 1)
        return fail(Errc::bad_certificate,
                    "private key: does not belong to the certificate: " + library_error());
    return {};
}

void configure(SSL_CTX* ctx) {
    SSL_CTX_set_min_proto_version(ctx, TLS1_3_VERSION);
    SSL_CTX_set_max_proto_version(ctx, TLS1_3_VERSION);
    // AES-128-GCM first: 18 Gbit/s per core against 8 for ChaCha20 where the CPU has AES instructions.
    const int suites = SSL_CTX_set_ciphersuites(
        ctx, "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256:TLS_AES_256_GCM_SHA384");
    NEXAR_CHECK(suites == 1 && SSL_CTX_set1_groups_list(ctx, "X25519") == 1);
    // No resumption in any form, and so no early data: every connection proves both identities again.
    // A compressed certificate is one that on_message() cannot read.
    SSL_CTX_set_options(ctx, SSL_OP_NO_TICKET | SSL_OP_CIPHER_SERVER_PREFERENCE |
                                 SSL_OP_NO_RX_CERTIFICATE_COMPRESSION | SSL_OP_NO_TX_CERTIFICATE_COMPRESSION);
    SSL_CTX_set_num_tickets(ctx, 0);
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_max_cert_list(ctx, peer_certificates_bytes_max);
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
    SSL_CTX_set_verify_depth(ctx, chain_depth_max);
    SSL_CTX_set_cert_verify_callback(ctx, verify_peer, nullptr);
    SSL_CTX_set_msg_callback(ctx, on_message);
}

Result<> add_anchors(SSL_CTX* ctx, const std::vector<Certificate>& anchors) {
    X509_STORE* store = SSL_CTX_get_cert_store(ctx);
    for (const Certificate& anchor : anchors)
        if (X509_STORE_add_cert(store, anchor.get()) != 1)
            return fail(Errc::bad_certificate,
                        "trust anchors: refused by the TLS library: " + library_error());
    return {};
}

}  // namespace

Result<std::shared_ptr<TlsContext>> TlsContext::make(const Identity& identity, const Config& config,
                                                     Verifier verifier) {
    // Prefetches the ciphers; otherwise each packet's encryption looks them up.
    static const int prefetched = ngtcp2_crypto_ossl_init();
    NEXAR_CHECK(prefetched == 0);

    std::shared_ptr<TlsContext> out(new TlsContext);
    out->verifier_ = std::move(verifier);
    out->alpns_ = config.alpns;
    if (config.accept_join) out->alpns_.emplace_back(alpn_join);
    out->wall_clock_ = config.wall_clock;
    out->server_ = SSL_CTX_new(TLS_server_method());
    out->client_ = SSL_CTX_new(TLS_client_method());
    NEXAR_CHECK(out->server_ && out->client_);

    std::vector<Certificate> anchors;
    if (!identity.trust_anchors.empty()) {
        NEXAR_TRY(anchors, parse_certificates(identity.trust_anchors, "trust anchors"));
    }
    out->has_certificate_ = !identity.certificate_chain.empty();
    std::vector<Certificate> chain;
    Key key;
    if (out->has_certificate_) {
        NEXAR_TRY(chain, parse_certificates(identity.certificate_chain, "certificate"));
        NEXAR_TRY(key, parse_key(identity.private_key));
    }
    for (SSL_CTX* ctx : {out->server_, out->client_}) {
        configure(ctx);
        NEXAR_TRY_VOID(add_anchors(ctx, anchors));
        if (out->has_certificate_) NEXAR_TRY_VOID(use_identity(ctx, chain, key.get()));
    }
    SSL_CTX_set_client_hello_cb(out->server_, on_client_hello, nullptr);
    SSL_CTX_set_alpn_select_cb(out->server_, select_alpn, nullptr);
    NEXAR_TRY_VOID(out->keep_join_identity(identity));
    return out;
}

struct TlsContext::JoinIdentity {
    std::vector<Certificate> chain;
    Key key;
};

Result<> TlsContext::keep_join_identity(const Identity& identity) {
    if (identity.join_certificate_chain.empty()) return {};
    auto join = std::make_shared<JoinIdentity>();
    NEXAR_TRY(join->chain, parse_certificates(identity.join_certificate_chain, "join certificate"));
    NEXAR_TRY(join->key, parse_key(identity.join_private_key));
    join_ = std::move(join);
    return {};
}

// The protocol is chosen before the certificate is written, so the certificate can still be replaced.
bool TlsContext::show_join_identity(SSL* ssl) const {
    if (!join_) return true;
    STACK_OF(X509)* issuers = sk_X509_new_null();
    for (size_t i = 1; i < join_->chain.size(); ++i) sk_X509_push(issuers, join_->chain[i].get());
    const int used = SSL_use_cert_and_key(ssl, join_->chain.front().get(), join_->key.get(), issuers, 1);
    sk_X509_free(issuers);
    return used == 1;
}

TlsContext::~TlsContext() {
    SSL_CTX_free(server_);
    SSL_CTX_free(client_);
}

bool TlsContext::accepts_alpn(std::string_view alpn) const {
    return std::find(alpns_.begin(), alpns_.end(), alpn) != alpns_.end();
}

std::optional<WallSeconds> TlsContext::wall_seconds() const {
    if (!wall_clock_) return std::nullopt;
    return wall_clock_();
}

TlsPeer::TlsPeer(std::shared_ptr<TlsContext> context, std::string alpn, std::optional<NodeId> expected)
    : context_(std::move(context)),
      dial_alpn_(std::move(alpn)),
      expected_(expected),
      ref_(std::make_unique<ConnRef>()) {
    ssl_ = SSL_new(we_dialled() ? context_->client() : context_->server());
    if (!ssl_) return;
    ref_->session = this;
    SSL_set_app_data(ssl_, ref_.get());
    if (!we_dialled()) {
        SSL_set_accept_state(ssl_);
        return;
    }
    SSL_set_connect_state(ssl_);
    std::string wire(1, static_cast<char>(dial_alpn_.size()));
    wire += dial_alpn_;
    if (SSL_set_alpn_protos(ssl_, reinterpret_cast<const unsigned char*>(wire.data()),
                            static_cast<unsigned>(wire.size())) != 0)
        release();
}

TlsPeer::~TlsPeer() {
    release();
}

void TlsPeer::release() {
    if (!ssl_) return;
    SSL_set_app_data(ssl_, nullptr);
    SSL_free(std::exchange(ssl_, nullptr));
}

TlsSession::TlsSession(std::shared_ptr<TlsContext> context, std::string alpn, std::optional<NodeId> expected)
    : TlsPeer(std::move(context), std::move(alpn), expected) {
    if (!ssl()) return;
    ref()->is_quic = true;
    ref()->glue.get_conn = [](ngtcp2_crypto_conn_ref* r) { return reinterpret_cast<ConnRef*>(r)->conn; };
    // A dialler with alpn_join shows no certificate, or one that does not matter.
    const int failed = we_dialled() ? ngtcp2_crypto_ossl_configure_client_session(ssl())
                                    : ngtcp2_crypto_ossl_configure_server_session(ssl());
    if (failed != 0 || ngtcp2_crypto_ossl_ctx_new(&glue_, ssl()) != 0) glue_ = nullptr;
}

TlsSession::~TlsSession() {
    release();  // the ngtcp2_conn is deleted by now
    if (glue_) ngtcp2_crypto_ossl_ctx_del(glue_);
}

bool TlsSession::take(int level, uint64_t bytes) {
    taken_bytes_ += bytes;
    return level == level_ || refuse_level();
}

// Bytes behind the message that changed the level belong to the level before. The library sees them only if
// they are in the message's own buffer of the glue; others it would read as the next level's.
bool TlsSession::change_level(int level) {
    level_ = level;
    return taken_bytes_ == message_bytes() || refuse_level();
}

bool TlsSession::refuse_level() {
    refuse("the peer sent bytes of its handshake at another encryption level than theirs");
    is_misplaced_ = true;
    return false;
}

void TlsSession::attach(ngtcp2_conn* conn) {
    ref()->conn = conn;
}

// The library parses every certificate before verify_peer() is called, and a key of a form that the peer
// chooses can take it seconds; it compares all key shares of a ClientHello with all groups, which of 64 KiB
// takes 30 ms; and it makes a session of each ticket. It has no callback that could refuse a message before,
// but it shows each one in the buffer that it will parse: what is refused is overwritten there, so that its
// parser fails at the first bytes. Of a Certificate message these are then a context longer than all, which
// must be empty here; of a compressed one an algorithm that does not exist; of a ClientHello a session id
// that is too long; of a ticket lengths beyond its end (RFC 8446 sections 4.4.2, 4.1.2 and 4.6.1, RFC 8879
// section 4).
void TlsPeer::on_message(MutableBytes message) {
    constexpr size_t header_bytes = 4;
    message_bytes_ += message.size();
    if (message.size() < header_bytes) return;
    const MutableBytes body = message.subspan(header_bytes);
    auto why = objection_to(std::to_integer<int>(message[0]), body, ref_->is_quic);
    if (!why) return;
    refuse(std::move(*why));
    std::ranges::fill(body, std::byte{0xff});
}

bool TlsPeer::verify(PeerChain chain) {
    if (chain.empty()) {
        refuse("the peer showed no certificate");
        return false;
    }
    Result<NodeId> node = context_->verifier()(chain, we_dialled() ? std::string_view(dial_alpn_) : alpn());
    if (!node) {
        refuse(node.error().text);
        return false;
    }
    if (expected_ && *expected_ != *node) {
        refuse("node " + expected_->short_hex() + " was expected at this address, but node " +
               node->short_hex() + " answered");
        return false;
    }
    peer_ = *node;
    peer_chain_ = std::move(chain);
    verified_ = true;
    return true;
}

void TlsPeer::refuse(std::string why) {
    if (refusal_.empty()) refusal_ = std::move(why);
}

std::optional<std::string> TlsPeer::objection() const {
    const std::string_view name = alpn();
    if (we_dialled() ? name != dial_alpn_ : !context_->accepts_alpn(name)) return "no common protocol (ALPN)";
    if (!verified_ && (we_dialled() || name != alpn_join)) return "the peer showed no certificate";
    return std::nullopt;
}

std::string_view TlsPeer::alpn() const {
    const unsigned char* name = nullptr;
    unsigned int size = 0;
    SSL_get0_alpn_selected(ssl_, &name, &size);
    return {reinterpret_cast<const char*>(name), size};
}

std::string_view TlsPeer::cipher() const {
    return SSL_get_cipher_name(ssl_);
}

Result<std::vector<std::byte>> TlsPeer::export_keying_material(std::string_view label, Bytes context,
                                                               size_t bytes) const {
    if (bytes == 0 || bytes > exported_bytes_max)
        return fail(Errc::invalid_argument, "exported keying material: " + std::to_string(bytes) +
                                                " bytes asked; allowed are 1 to " +
                                                std::to_string(exported_bytes_max));
    std::vector<std::byte> out(bytes);
    if (SSL_export_keying_material(ssl_, reinterpret_cast<unsigned char*>(out.data()), bytes, label.data(),
                                   label.size(), reinterpret_cast<const unsigned char*>(context.data()),
                                   context.size(), 1) != 1)
        return fail(Errc::bad_state, "exported keying material: the handshake is not finished");
    return out;
}

RandomSource secure_random() {
    return [](MutableBytes out) {
        NEXAR_CHECK(RAND_bytes(reinterpret_cast<unsigned char*>(out.data()), static_cast<int>(out.size())) ==
                    1);
    };
}

std::string alert_text(uint8_t alert) {
    // Both of TLS 1.3 (RFC 8446 section 6); the library's list lacks them.
    if (alert == SSL_AD_CERTIFICATE_REQUIRED) return "certificate_required";
    if (alert == SSL_AD_MISSING_EXTENSION) return "missing_extension";
    std::string text = SSL_alert_desc_string_long(alert);
    if (text == "unknown") return "alert_" + std::to_string(alert);
    std::replace(text.begin(), text.end(), ' ', '_');
    return text;
}

}  // namespace nexar::quic
