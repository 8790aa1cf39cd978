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

// Shared by an endpoint's handshakes. A renewed certificate replaces it as a whole; sessions that began with
// the old context keep it.
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
    ssl_ctx_st* server_ = nullptr;  // of accepted connections
    ssl_ctx_st* client_ = nullptr;  // of dialled connections
    Result<> keep_join_identity(const Identity& identity);

    Verifier verifier_;
    struct JoinIdentity;
    std::shared_ptr<const JoinIdentity> join_;  // shown to joiners; null: the same identity as to members
    std::vector<std::string> alpns_;            // protocols that this endpoint accepts
    std::function<WallSeconds()> wall_clock_;   // empty: the TLS library's clock
    bool has_certificate_ = false;              // false: it can only dial with alpn_join
};

// What one connection's handshake shows of the peer, over QUIC or over a byte stream (tcp/). The TLS library
// holds pointers to it: it does not move.
class TlsPeer {
  public:
    // `alpn` empty: the server side. `expected`: the dialled node, if its id is known.
    TlsPeer(std::shared_ptr<TlsContext> context, std::string alpn, std::optional<NodeId> expected);
    ~TlsPeer();
    TlsPeer(const TlsPeer&) = delete;

    // After the handshake: nothing, or why the connection must end although the TLS library accepted it.
    std::optional<std::string> objection() const;
    std::string_view alpn() const;
    const NodeId& peer() const {
        return peer_;
    }  // zero: the peer showed no certificate (alpn_join, server side)
    const PeerChain& peer_chain() const { return peer_chain_; }
    // The earliest expiry in the peer's chain; nothing: the peer showed no chain.
    std::optional<WallSeconds> peer_valid_until() const { return peer_valid_until_; }
    void set_peer_valid_until(std::optional<WallSeconds> end) { peer_valid_until_ = end; }
    const std::string& refusal() const {
        return refusal_;
    }  // why this side refused the peer; empty: it did not
    std::string_view cipher() const;
    Result<std::vector<std::byte>> export_keying_material(std::string_view label, Bytes context,
                                                          size_t bytes) const;

    // Called by the TLS library's callbacks.
    bool verify(PeerChain chain);
    void on_message(MutableBytes message);  // with its type and length; before the library parses it
    void refuse(std::string why);
    uint64_t message_bytes() const { return message_bytes_; }
    const TlsContext& context() const { return *context_; }
    bool we_dialled() const { return !dial_alpn_.empty(); }
    const std::string& dial_alpn() const { return dial_alpn_; }

  protected:
    ssl_st* ssl() const { return ssl_; }  // null: the TLS library failed
    void release();                       // frees it
    struct ConnRef* ref() const { return ref_.get(); }

  private:
    std::shared_ptr<TlsContext> context_;
    std::string dial_alpn_;                        // empty: the server side
    std::optional<NodeId> expected_;               // the node that was dialled; nothing: any
    ssl_st* ssl_ = nullptr;                        // null: the TLS library failed, or released
    std::unique_ptr<struct ConnRef> ref_;          // ssl_'s application data
    bool verified_ = false;                        // verify() accepted the peer
    NodeId peer_;                                  // zero until verified_
    PeerChain peer_chain_;                         // empty until verified_
    std::optional<WallSeconds> peer_valid_until_;  // see peer_valid_until()
    std::string refusal_;                          // the first reason; empty: not refused
    uint64_t message_bytes_ = 0;                   // of all that on_message() has seen
};

// The same, of a QUIC connection.
class TlsSession : public TlsPeer {
  public:
    TlsSession(std::shared_ptr<TlsContext> context, std::string alpn, std::optional<NodeId> expected);
    ~TlsSession();

    bool ok() const { return glue_ != nullptr; }
    void attach(ngtcp2_conn* conn);  // before the first packet
    void* native_handle() const { return glue_; }

    // Each byte of the peer's handshake belongs to one encryption level (RFC 9001 section 4.1.3): the one
    // that the TLS library reads when the byte arrives. `level`: ngtcp2's number of it. False: the peer broke
    // that rule, and the connection must end.
    bool take(int level, uint64_t bytes);  // before the library gets them
    bool change_level(int level);  // when the library has made the keys of the level that it reads next
    bool is_misplaced() const { return is_misplaced_; }

  private:
    bool refuse_level();  // returns false

    ngtcp2_crypto_ossl_ctx* glue_ = nullptr;  // ngtcp2's view of ssl(); null: not ok()
    int level_ = 0;                           // at which the library reads; 0: Initial
    uint64_t taken_bytes_ = 0;                // of the peer's handshake
    bool is_misplaced_ = false;               // some came at another level than theirs
};

// The TLS library's generator, as a RandomSource.
RandomSource secure_random();

constexpr uint8_t unexpected_message_alert = 10;  // RFC 8446 section 6

// The name of a TLS alert, for people ("bad_certificate").
std::string alert_text(uint8_t alert);

}  // namespace nexar::quic
