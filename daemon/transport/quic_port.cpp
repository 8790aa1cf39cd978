// See quic_port.hpp.
#include "transport/quic_port.hpp"

namespace nexar::transport {

Result<std::unique_ptr<QuicPort>> QuicPort::open(Options options, const quic::Identity& identity,
                                                 quic::Verifier verifier) {
    NEXAR_TRY(auto socket, UdpSocket::open(options.listen, options.socket));
    NEXAR_TRY(auto endpoint, quic::Endpoint::make(std::move(options.quic), identity, std::move(verifier),
                                                  std::move(options.random), options.reset_secret));
    return std::unique_ptr<QuicPort>(new QuicPort(std::move(socket), std::move(endpoint)));
}

QuicPort::QuicPort(std::unique_ptr<UdpSocket> socket, std::unique_ptr<quic::Endpoint> endpoint)
    : socket_(std::move(socket)),
      endpoint_(std::move(endpoint)),
      buffer_(quic::Endpoint::send_buffer_bytes) {}

bool QuicPort::on_readable(Time now, size_t batches) {
    std::array<UdpSocket::Received, UdpSocket::messages_per_receive> received;
    for (size_t read = 0; read < batches;) {
        const size_t n = socket_->receive(received);
        if (n == 0) return false;
        for (size_t i = 0; i < n; ++i) {
            const UdpSocket::Received& r = received[i];
            endpoint_->on_datagram(now, r.local, r.remote, r.bytes, r.ecn, r.segment);
        }
        read += n;
        if (n < UdpSocket::messages_per_receive) return false;
    }
    return true;
}

bool QuicPort::send_pending() {
    const Bytes rest = Bytes(buffer_).subspan(pending_from_, pending_.bytes - pending_from_);
    pending_from_ += socket_->send(pending_, rest);
    full_ = pending_from_ < pending_.bytes;
    return !full_;
}

bool QuicPort::flush(Time now, size_t batches) {
    if (pending_from_ < pending_.bytes && !send_pending()) return false;
    for (size_t i = 0; i < batches; ++i) {
        std::optional<quic::SendBatch> batch = endpoint_->poll_send(now, buffer_);
        if (!batch) return false;
        pending_ = *batch;
        pending_from_ = 0;
        if (!send_pending()) return false;
    }
    return true;
}

Time QuicPort::wake_at() const {
    return full_ ? never : endpoint_->wake_at();
}

}  // namespace nexar::transport
