// TcpSocket: a TCP socket that does not block, and TcpListener: one that accepts them. Thin: errors become
// states and texts. The kernel tunes the buffers' sizes; it takes few unsent bytes, so that what is urgent
// does not wait behind bulk that nothing can overtake any more.
//
// Thread: one at a time.
// Source: tcp(7) (TCP_NODELAY, TCP_NOTSENT_LOWAT, TCP_INFO).
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "core/result.hpp"
#include "core/time.hpp"
#include "quic/address.hpp"
#include "tcp/byte_wire.hpp"
#include "tcp/unsent.hpp"

namespace nexar::transport {

class TcpSocket final : public tcp::ByteWire {
  public:
    // `from`: its host is the source address, unless it is any.
    static Result<TcpSocket> connect(const quic::Address& from, const quic::Address& to);
    explicit TcpSocket(int fd);
    TcpSocket(TcpSocket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    TcpSocket& operator=(TcpSocket&&) = delete;
    ~TcpSocket();

    int fd() const { return fd_; }
    // After it became writable: nothing, or why the dial failed ("tcp refused").
    std::optional<std::string> connect_error() const;
    Moved receive(MutableBytes into) override;
    Moved receive_two(MutableBytes first, MutableBytes second) override;
    Moved send(Bytes bytes) override;
    // The last send() found no memory: epoll may call the socket writable all the same.
    bool is_short() const { return short_; }
    std::string why() const override;
    struct Peeked {
        State state = State::blocked;
        std::byte byte{};
    };
    Peeked peek() const;  // the next byte that will be received
    void end_sending();
    uint64_t limit_unsent();  // to what suits the rate that the kernel has measured (tcp/unsent.hpp)
    // What has come, about `most` bytes of it; none: the peer sends no more.
    std::optional<size_t> discard(size_t most);
    Duration rtt() const;  // zero: not measured

  private:
    Moved received(ssize_t bytes);

    int fd_;  // -1: moved away
    int error_ = 0;
    int unsent_limit_ = static_cast<int>(tcp::unsent_min);
    bool short_ = false;
};

class TcpListener {
  public:
    static Result<std::unique_ptr<TcpListener>> open(const quic::Address& local);
    ~TcpListener();
    TcpListener(const TcpListener&) = delete;

    int fd() const { return fd_; }
    struct Accepted {
        TcpSocket socket;
        quic::Address remote;
    };
    std::optional<Accepted> accept();         // none: nobody waits, or is_short()
    bool is_short() const { return short_; }  // the last accept() found no descriptor or no memory
    bool has_waiting() const;                 // in the kernel's queue; one that was reset waits there as well

  private:
    explicit TcpListener(int fd) : fd_(fd) {}
    int fd_;
    bool short_ = false;
};

}  // namespace nexar::transport
