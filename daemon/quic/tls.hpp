// TLS 1.3 for QUIC: contexts from an identity, one session per connection. With tls.cpp, the only file of
// this module that knows the TLS library; ngtcp2's glue drives the handshake itself (RFC 9001).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "quic/config.hpp"

struct ssl_st;
struct ssl_ctx_st;
struct ngtcp2_conn;
struct ngtcp2_crypto_ossl_ctx;

namespace nexar::quic {

// What an endpoint's handshakes share. Replaced as a whole when the certificate is renewed; sessions that
// began with the old one keep it.
class TlsContext {
  public:
    static Result<std::shared_ptr<TlsContext>> make(const Identity& identity, const Config& config,
                                                    Verifier verifier);
    ~TlsContext();
    TlsContext(const TlsContext&) = delete;

    ssl_ctx_st* server() const { return server_; }
    ssl_ctx_st* client() const { return client_; }
    const Verifier& verifier() const { return verifier_; }
    bool has_certificate() const { return has_certificate_; }
    bool show_join_identity(ssl_st* ssl) const;  // false: the TLS library refused
    bool accepts_alpn(std::string_view alpn) const;
    const std::vector<std::string>& alpns() const { return alpns_; }
    std::optional<WallSeconds> wall_seconds() const;

  private:
    TlsContext() = default;
    ssl_ctx_st* server_ = nullptr;
    ssl_ctx_st* client_ = nullptr;
    Result<> keep_join_identity(const Identity& identity);

    Verifier verifier_;
    struct JoinIdentity;
    std::shared_ptr<const JoinIdentity> join_;
    std::vector<std::string> alpns_;
    std::function<WallSeconds()> wall_clock_;
    bool has_certificate_ = false;
};

// One connection's handshake. The library holds pointers to it: it does not move.
class TlsSession {
  public:
    // `alpn` empty: the server side. `expected`: the dialled node, if its id is known.
    TlsSession(std::shared_ptr<TlsContext> context, std::string alpn, std::optional<NodeId> expected);
    ~TlsSession();
    TlsSession(const TlsSession&) = delete;

    bool ok() const { return glue_ != nullptr; }
    void attach(ngtcp2_conn* conn);  // before the first packet
    void* native_handle() const { return glue_; }

    // After the handshake: none, or why this connection must not live although the TLS library is content.
    std::optional<std::string> objection() const;
    std::string_view alpn() const;
    const NodeId& peer() const { return peer_; }  // zero: it showed no certificate (alpn_join, server side)
    const PeerChain& peer_chain() const { return peer_chain_; }
    // The first end of a certificate in its chain; none: it showed none.
    std::optional<WallSeconds> peer_valid_until() const { return peer_valid_until_; }
    void set_peer_valid_until(std::optional<WallSeconds> end) { peer_valid_until_ = end; }
    const std::string& refusal() const { return refusal_; }  // why we refused the peer; empty: we did not
    std::string_view cipher() const;
    Result<std::vector<std::byte>> export_keying_material(std::string_view label, Bytes context,
                                                          size_t bytes) const;

    // Called back by the TLS library.
    bool judge(PeerChain chain);
    void refuse(std::string why);
    const TlsContext& context() const { return *context_; }
    bool we_dialled() const { return !dial_alpn_.empty(); }
    const std::string& dial_alpn() const { return dial_alpn_; }

  private:
    std::shared_ptr<TlsContext> context_;
    std::string dial_alpn_;
    std::optional<NodeId> expected_;
    ssl_st* ssl_ = nullptr;
    ngtcp2_crypto_ossl_ctx* glue_ = nullptr;
    std::unique_ptr<struct ConnRef> ref_;
    bool judged_ = false;
    NodeId peer_;
    PeerChain peer_chain_;
    std::optional<WallSeconds> peer_valid_until_;
    std::string refusal_;
};

// The TLS library's generator, as a RandomSource.
RandomSource secure_random();

// The name of a TLS alert, for people ("bad_certificate").
std::string alert_text(uint8_t alert);

}  // namespace nexar::quic
