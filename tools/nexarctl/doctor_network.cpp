// Facts about the network: interfaces, and whether the kernel cuts and joins UDP datagrams for us.
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "nexarctl/doctor.hpp"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif

namespace nexarctl {

namespace {

constexpr int probe_timeout_ms = 500;
constexpr int segment_bytes = 1000;

int loopback_socket(sockaddr_in& address) {
    const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (fd >= 0 && ::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
        ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0)
        return fd;
    if (fd >= 0) ::close(fd);
    return -1;
}

// One datagram of three segments, to ourselves: sent whole only with GSO, and received whole only with GRO.
void probe_offloads(Facts& f) {
    sockaddr_in to{}, from{};
    const int receiver = loopback_socket(to);
    const int sender = loopback_socket(from);
    if (receiver >= 0 && sender >= 0) {
        const int on = 1;
        f.gro = ::setsockopt(receiver, IPPROTO_UDP, UDP_GRO, &on, sizeof on) == 0;
        f.gso = ::setsockopt(sender, IPPROTO_UDP, UDP_SEGMENT, &segment_bytes, sizeof segment_bytes) == 0;
        std::array<char, 3 * segment_bytes> bytes{};
        const ssize_t sent =
            ::sendto(sender, bytes.data(), bytes.size(), 0, reinterpret_cast<sockaddr*>(&to), sizeof to);
        pollfd watched{receiver, POLLIN, 0};
        if (*f.gso)
            f.gso = sent == static_cast<ssize_t>(bytes.size()) && ::poll(&watched, 1, probe_timeout_ms) == 1;
    }
    if (receiver >= 0) ::close(receiver);
    if (sender >= 0) ::close(sender);
}

int mtu_of(const std::string& name) {
    const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ifreq request{};
    std::strncpy(request.ifr_name, name.c_str(), sizeof request.ifr_name - 1);
    const bool got = fd >= 0 && ::ioctl(fd, SIOCGIFMTU, &request) == 0;
    if (fd >= 0) ::close(fd);
    return got ? request.ifr_mtu : 0;
}

std::string address_text(const sockaddr* address) {
    char text[INET6_ADDRSTRLEN] = "";
    if (address->sa_family == AF_INET)
        ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text, sizeof text);
    else if (address->sa_family == AF_INET6)
        ::inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, text, sizeof text);
    return text;
}

}  // namespace

void gather_network(Facts& f) {
    probe_offloads(f);
    ifaddrs* list = nullptr;
    if (::getifaddrs(&list) != 0) return;
    for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
        auto found = std::find_if(f.interfaces.begin(), f.interfaces.end(),
                                  [&](const InterfaceFact& i) { return i.name == entry->ifa_name; });
        if (found == f.interfaces.end()) {
            f.interfaces.push_back({entry->ifa_name,
                                    mtu_of(entry->ifa_name),
                                    (entry->ifa_flags & IFF_UP) != 0,
                                    (entry->ifa_flags & IFF_LOOPBACK) != 0,
                                    {}});
            found = f.interfaces.end() - 1;
        }
        if (entry->ifa_addr == nullptr) continue;
        const std::string text = address_text(entry->ifa_addr);
        if (!text.empty()) found->addresses.push_back(text);
    }
    ::freeifaddrs(list);
}

}  // namespace nexarctl
