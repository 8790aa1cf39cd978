// TlsStream: TLS 1.3 over a ByteWire, with the node's certificates at both ends (docs/protocol/tcp.md [B1]).
// The contexts, the verification and what is refused are those of QUIC (quic/tls.hpp); only the ALPN differs.
#pragma once

#include "quic/tls.hpp"
#include "tcp/stream.hpp"

namespace nexar::tcp {

constexpr std::string_view alpn_bulk = "nexar-bulk/2";

class TlsStream final : public Stream, private quic::TlsPeer {
  public:
    // `dials`: the client's side.
    TlsStream(ByteWire& wire, std::shared_ptr<quic::TlsContext> context, bool dials,
              std::optional<NodeId> expected);

    Step open() override;
    std::optional<NodeId> peer() const override { return quic::TlsPeer::peer(); }
    std::optional<WallSeconds> peer_valid_until() const override { return quic::TlsPeer::peer_valid_until(); }
    std::vector<std::byte> binding() const override { return binding_; }
    Step read(MutableBytes into, size_t& filled) override;
    Step write(Bytes record) override;

  private:
    struct Bio;  // the TLS library's view of the wire
    friend struct Bio;
    Step failed();
    // [B4]: what the library would handle by itself, for as long as bytes come.
    void on_handshake_message(uint8_t type);

    // How many of `bytes` may be read now, by the handshake in particular; [B5] [B9].
    size_t allowance(size_t bytes);
    void took_of_handshake(size_t bytes);

    std::vector<std::byte> binding_;   // when open
    size_t handshake_bytes_ = 0;       // received before
    size_t handshake_bytes_left_ = 0;  // in this call of open()
    uint64_t records_ = 0;             // written with the present key
    uint64_t received_ = 0;            // bytes of records
    uint64_t key_updates_ = 0;         // of the peer's
    std::string broken_rule_;          // by the peer; empty: none
    bool wire_ended_ = false;          // the library was notified
    bool wire_broken_ = false;
};

}  // namespace nexar::tcp
