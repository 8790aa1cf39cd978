// UdpSocket: a UDP socket as QUIC needs it: non-blocking, large buffers, one system call for up to 64 KiB of
// datagrams in each direction (UDP_SEGMENT, UDP_GRO), no fragmentation, ECN, the local address of each
// datagram, and ICMP errors as hints. An offload that the kernel refuses is switched off; the stats show it.
//
// Thread: one at a time.
// Source: udp(7), ip(7) (IP_RECVERR, IP_MTU_DISCOVER, IP_PKTINFO).
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
    uint64_t too_big = 0;               // EMSGSIZE: path probes, and datagrams in flight when a path shrinks
    uint64_t unreachable = 0;           // ICMP errors; forgeable, so a reason to probe and nothing more
    uint64_t send_errors = 0;           // other errors; the datagrams count as lost
    uint64_t segmentation_refused = 0;  // batches that were sent datagram by datagram instead
    bool segmentation = true, coalescing = true;  // UDP_SEGMENT, UDP_GRO are in use
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

    // Returns the bytes that were sent, or dropped because of an error that counts as loss. Fewer than all:
    // the socket is full; wait until it is writable and send the rest.
    size_t send(const quic::SendBatch& batch, Bytes bytes);

    struct Received {
        quic::Address local, remote;
        Bytes bytes;  // valid until the next receive()
        uint8_t ecn = 0;
        size_t segment = 0;  // 0: one datagram
    };
    // Returns how many messages it received; 0: none is waiting.
    size_t receive(std::array<Received, messages_per_receive>& out);
    // Peers that ICMP reported as unreachable; at most unreachable_kept_max wait here, each once.
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
    quic::Address local_;  // as bound: with the port that the kernel chose
    SocketStats stats_;
    unsigned refused_in_a_row_ = 0;          // batches refused by UDP_SEGMENT since one was accepted
    unsigned empty_receives_ = 0;            // in all; it wraps
    std::unique_ptr<Buffers> buffers_;       // what receive() reads into
    std::deque<quic::Address> unreachable_;  // not polled yet; at most unreachable_kept_max
};

}  // namespace nexar::transport
