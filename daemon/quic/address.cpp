// Address: text and socket forms.
#include "quic/address.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>
#include <cstring>

namespace nexar::quic {

namespace {

std::unexpected<Error> bad_address(std::string_view text) {
    return fail(Errc::invalid_argument, "\"" + std::string(text) +
                                            "\" is not an address: give an IPv4 host and port like "
                                            "192.0.2.1:4433, or IPv6 like [2001:db8::1]:4433");
}

}  // namespace

Result<Address> Address::parse(std::string_view text) {
    const bool v6 = text.starts_with('[');
    const size_t host_end = v6 ? text.find(']') : text.rfind(':');
    if (host_end == std::string_view::npos) return bad_address(text);
    const std::string host_text(text.substr(v6 ? 1 : 0, host_end - (v6 ? 1 : 0)));
    std::string_view port_text = text.substr(host_end + (v6 ? 1 : 0));
    if (!port_text.starts_with(':')) return bad_address(text);
    port_text.remove_prefix(1);

    Address out;
    out.family = v6 ? 6 : 4;
    const auto [end, error] =
        std::from_chars(port_text.data(), port_text.data() + port_text.size(), out.port);
    if (error != std::errc{} || end != port_text.data() + port_text.size()) return bad_address(text);
    if (inet_pton(v6 ? AF_INET6 : AF_INET, host_text.c_str(), out.host.data()) != 1) return bad_address(text);
    return out;
}

Address Address::from_sockaddr(const sockaddr* from) {
    Address out;
    if (from->sa_family == AF_INET) {
        sockaddr_in in;
        std::memcpy(&in, from, sizeof in);
        out.family = 4;
        out.port = ntohs(in.sin_port);
        std::memcpy(out.host.data(), &in.sin_addr, 4);
    } else if (from->sa_family == AF_INET6) {
        sockaddr_in6 in;
        std::memcpy(&in, from, sizeof in);
        out.family = 6;
        out.port = ntohs(in.sin6_port);
        out.scope = in.sin6_scope_id;
        std::memcpy(out.host.data(), &in.sin6_addr, 16);
    }
    return out;
}

Address Address::any(uint8_t family, uint16_t port) {
    Address out;
    out.family = family;
    out.port = port;
    return out;
}

std::string Address::text() const {
    char host_text[INET6_ADDRSTRLEN] = "";
    if (family == 4) {
        inet_ntop(AF_INET, host.data(), host_text, sizeof host_text);
        return std::string(host_text) + ":" + std::to_string(port);
    }
    if (family == 6) {
        inet_ntop(AF_INET6, host.data(), host_text, sizeof host_text);
        return "[" + std::string(host_text) + "]:" + std::to_string(port);
    }
    return "no address";
}

bool Address::is_any_host() const {
    return host == std::array<uint8_t, 16>{};
}

bool Address::same_site(const Address& other) const {
    return family == other.family && std::equal(host.begin(), host.begin() + 8, other.host.begin());
}

SocketAddress::SocketAddress() : v6{} {}

SocketAddress::SocketAddress(const Address& from) : v6{} {
    if (from.family == 4) {
        v4 = {};
        v4.sin_family = AF_INET;
        v4.sin_port = htons(from.port);
        std::memcpy(&v4.sin_addr, from.host.data(), 4);
        size = sizeof v4;
    } else if (from.family == 6) {
        v6.sin6_family = AF_INET6;
        v6.sin6_port = htons(from.port);
        v6.sin6_scope_id = from.scope;
        std::memcpy(&v6.sin6_addr, from.host.data(), 16);
        size = sizeof v6;
    }
}

}  // namespace nexar::quic
