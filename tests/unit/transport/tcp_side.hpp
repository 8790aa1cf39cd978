// One end of connections over TCP, and an unidentified peer of one: real sockets on loopback.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cerrno>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "loop/loop.hpp"
#include "support/test_certs.hpp"
#include "transport/tcp_carrier.hpp"

namespace nexar::test {

inline const CertificateAuthority& authority() {
    static const CertificateAuthority made("root");
    return made;
}

struct Side final : connections::CarrierEvents {
    Leaf leaf;
    std::unique_ptr<transport::TcpCarrier> carrier;
    std::map<connections::ConnectionId, connections::CarriedConnection*> open;
    std::vector<std::string> closed;
    std::function<void(connections::ConnectionId)> when_room;
    std::string address;

    Side(const std::string& name, uint16_t port, Duration handshake_share = {}, size_t turn_bytes = SIZE_MAX)
        : leaf(authority().issue(name)) {
        transport::TcpCarrier::Options options;
        options.handshake_share = handshake_share;
        options.turn_bytes = turn_bytes;
        address = "127.0.0.1:" + std::to_string(port);
        options.listen = *quic::Address::parse(address);
        options.self = leaf.id;
        options.incarnation = {1, port};
        const quic::Identity identity{leaf.certificate_pem, leaf.private_key_pem,
                                      authority().certificate_pem()};
        auto made = transport::TcpCarrier::open(
            options, identity,
            [](const quic::PeerChain& chain, std::string_view) { return node_id_of(chain.front()); });
        REQUIRE(made);
        carrier = std::move(*made);
    }
    void on_connected(Time, const Connected& c, connections::CarriedConnection& connection) override {
        open[c.id] = &connection;
    }
    void on_closed(Time, connections::ConnectionId id, const connections::ClosedBy& why) override {
        open.erase(id);
        closed.push_back(why.text());
    }
    void on_room(connections::ConnectionId id) override {
        if (when_room) when_room(id);
    }
    void on_received(connections::ConnectionId) override {}
    void turn(Time now = loop::Loop::now()) {
        carrier->receive(now, *this);
        carrier->flush(now, *this);
    }
};

inline uint16_t free_port() {
    static uint16_t next = static_cast<uint16_t>(20'000 + ::getpid() % 20'000);
    return next++;
}

inline transport::TcpCarrier::Peer peer(const NodeId& node, const Incarnation& incarnation, uint8_t key = 7) {
    transport::TcpCarrier::Peer out{node, incarnation, {}, false};
    out.key.fill(std::byte{key});
    return out;
}

// Connects from 127.0.1.SITE, and sends the first byte of a TLS handshake.
class Unidentified {
  public:
    Unidentified(uint8_t site, uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        sockaddr_in from{}, to{};
        from.sin_family = to.sin_family = AF_INET;
        from.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 256 + site - 1u);
        to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        to.sin_port = htons(port);
        REQUIRE(::bind(fd_, reinterpret_cast<const sockaddr*>(&from), sizeof from) == 0);
        REQUIRE(::connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0);
        REQUIRE(::send(fd_, "\x16", 1, 0) == 1);
    }
    Unidentified(Unidentified&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    int fd() const { return fd_; }
    bool is_closed() const {
        char byte = 0;
        const ssize_t n = ::recv(fd_, &byte, 1, MSG_DONTWAIT);
        return n == 0 || (n < 0 && errno != EAGAIN);
    }
    ~Unidentified() {
        if (fd_ >= 0) ::close(fd_);
    }

  private:
    int fd_;
};

}  // namespace nexar::test
