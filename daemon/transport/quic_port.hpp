// QuicPort: one UDP socket and the QUIC endpoint behind it. The owner polls fd() for readability (and for
// writability while wants_writable()), and has a timer at wake_at(). One turn: on_readable() when readable,
// on_time(), handle poll_event()s, flush(). A call moves at most a few batches of 64 KiB (25 µs each at 1452
// bytes per datagram), so that turns stay short; its result says whether to call again at once.
//
// Thread: its owner's.
#pragma once

#include <memory>
#include <optional>

#include "quic/endpoint.hpp"
#include "transport/udp_socket.hpp"

namespace nexar::transport {

class QuicPort {
  public:
    static constexpr size_t batches_per_turn = 4;

    struct Options {
        quic::Address listen;
        quic::Config quic;
        UdpSocket::Options socket;
        quic::RandomSource random = quic::secure_random();
        std::optional<std::array<std::byte, 32>> reset_secret;
    };
    static Result<std::unique_ptr<QuicPort>> open(Options options, const quic::Identity& identity,
                                                  quic::Verifier verifier);

    int fd() const { return socket_->fd(); }
    const quic::Address& local() const { return socket_->local(); }
    quic::Endpoint& endpoint() { return *endpoint_; }
    const SocketStats& socket_stats() const { return socket_->stats(); }

    Result<quic::ConnId> connect(Time now, const quic::Address& remote, std::string_view alpn,
                                 std::optional<NodeId> expected = std::nullopt) {
        return endpoint_->connect(now, socket_->local(), remote, alpn, expected);
    }

    // Ensures: when true, more datagrams may be waiting.
    bool on_readable(Time now, size_t batches = batches_per_turn);
    bool on_writable(Time now) { return flush(now); }
    void on_time(Time now) { endpoint_->on_time(now); }
    std::optional<quic::Event> poll_event() { return endpoint_->poll_event(); }
    // A peer that an ICMP message calls unreachable. A hint only: ICMP can be forged.
    std::optional<quic::Address> poll_unreachable() { return socket_->poll_unreachable(); }
    // Ensures: when true, there is more to send and the socket accepts it.
    bool flush(Time now, size_t batches = batches_per_turn);
    bool wants_writable() const { return full_; }
    // `never` while the socket is full: then writability, not time, makes progress possible.
    Time wake_at() const;

  private:
    QuicPort(std::unique_ptr<UdpSocket> socket, std::unique_ptr<quic::Endpoint> endpoint);
    bool send_pending();

    std::unique_ptr<UdpSocket> socket_;
    std::unique_ptr<quic::Endpoint> endpoint_;
    std::vector<std::byte> buffer_;  // the batch that was last written by the endpoint
    quic::SendBatch pending_;  // that batch's description; unsent: buffer_[pending_from_, pending_.bytes)
    size_t pending_from_ = 0;  // == pending_.bytes: nothing is left of the batch
    bool full_ = false;        // the last send() left a rest: wait until the socket is writable
};

}  // namespace nexar::transport
