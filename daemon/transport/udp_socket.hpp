// A UDP socket as QUIC wants it: non-blocking, large buffers, one system call for up to 64 KiB of datagrams
// in each direction (UDP_SEGMENT, UDP_GRO), no fragmentation, ECN, the local address of each datagram, and
// ICMP errors as hints. What the kernel refuses is done without and shown in the stats.
//
// Thread: one at a time.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>

#include "core/bytes.hpp"
#include "core/result.hpp"
#include "quic/endpoint.hpp"

namespace nexar::transport {

struct SocketStats {
    uint64_t sends = 0, datagrams_sent = 0, bytes_sent = 0;
    uint64_t receives = 0, datagrams_received = 0, bytes_received = 0;
    uint64_t too_big = 0;               // EMSGSIZE: path probes, and what is on its way when a path shrinks
    uint64_t unreachable = 0;           // ICMP said so; forgeable, so only a reason to ask
    uint64_t send_errors = 0;           // other; the datagrams count as lost
    uint64_t segmentation_refused = 0;  // batches that went out datagram by datagram instead
    bool segmentation = true, coalescing = true;  // UDP_SEGMENT, UDP_GRO: in use
    size_t send_buffer = 0, receive_buffer = 0;   // as the kernel granted them
};

class UdpSocket {
  public:
    static constexpr size_t message_bytes_max = 64 * 1024;
    static constexpr size_t messages_per_receive = 4;
    static constexpr size_t unreachable_kept_max = 16;

    struct Options {
        size_t buffer_bytes = 16u << 20;  // beyond net.core.{r,w}mem_max only with CAP_NET_ADMIN
        bool segmentation = true, coalescing = true;
    };
    // Host may be 0.0.0.0 or :: (IPv6 only), port may be 0.
    static Result<std::unique_ptr<UdpSocket>> open(const quic::Address& local, const Options& options);
    ~UdpSocket();
    UdpSocket(const UdpSocket&) = delete;
    UdpSocket& operator=(const UdpSocket&) = delete;

    int fd() const { return fd_; }
    const quic::Address& local() const { return local_; }
    const SocketStats& stats() const { return stats_; }

    // Bytes done with: sent, or dropped for an error that is like loss. Less than all: the socket is full;
    // wait until it is writable and send the rest.
    size_t send(const quic::SendBatch& batch, Bytes bytes);

    struct Received {
        quic::Address local, remote;
        Bytes bytes;  // valid until the next receive()
        uint8_t ecn = 0;
        size_t segment = 0;  // 0: one datagram
    };
    // Up to messages_per_receive of them; 0: nothing is there.
    size_t receive(std::array<Received, messages_per_receive>& out);
    // Peers about which ICMP said unreachable, each once per occurrence, at most unreachable_kept_max.
    std::optional<quic::Address> poll_unreachable();

  private:
    struct Buffers;
    UdpSocket();
    Result<> configure(const Options& options);
    void set_buffer(int force, int plain, size_t bytes);
    int send_some(const quic::SendBatch& batch, Bytes bytes);
    void drain_errors();
    Received parse(msghdr& message, Bytes bytes) const;

    int fd_ = -1;
    quic::Address local_;
    SocketStats stats_;
    unsigned refused_in_a_row_ = 0;
    std::unique_ptr<Buffers> buffers_;
    std::deque<quic::Address> unreachable_;
};

}  // namespace nexar::transport
