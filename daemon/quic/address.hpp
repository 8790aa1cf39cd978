// A UDP address as a value: IPv4 or IPv6 host, port, and the scope of a link-local IPv6 host.
// It converts to and from the socket interface's form, and uses no socket.
#pragma once

#include <netinet/in.h>

#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/result.hpp"

namespace nexar::quic {

struct Address {
    uint8_t family = 0;  // 4, 6, or 0: none
    uint16_t port = 0;
    uint32_t scope = 0;
    std::array<uint8_t, 16> host{};  // IPv4: the first four

    auto operator<=>(const Address&) const = default;

    // "192.0.2.1:4433" or "[2001:db8::1]:4433"; numbers only, no names.
    static Result<Address> parse(std::string_view text);
    static Address from_sockaddr(const sockaddr* from);
    static Address any(uint8_t family, uint16_t port);

    std::string text() const;
    bool is_any_host() const;  // 0.0.0.0 or ::
    // Both are in what one party is likely to own: one IPv4 host, or the /64 network of an IPv6 host.
    bool same_site(const Address& other) const;
};

// The socket interface's form. `size` is 0 for an address without a family.
struct SocketAddress {
    union {
        sockaddr base;
        sockaddr_in v4;
        sockaddr_in6 v6;
    };
    socklen_t size = 0;

    SocketAddress();
    explicit SocketAddress(const Address& from);
};

}  // namespace nexar::quic
