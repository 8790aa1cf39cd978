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
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

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
constexpr int dial_timeout_ms = 1000;
constexpr size_t dials_max = 64;

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

// "10.0.0.2:7655", "[fe80::1]:7655" to an address; false: neither.
bool parse(const std::string& text, sockaddr_storage& out, socklen_t& size) {
    const size_t colon = text.rfind(':');
    if (colon == std::string::npos) return false;
    const auto port = htons(static_cast<uint16_t>(std::strtoul(text.c_str() + colon + 1, nullptr, 10)));
    std::string host = text.substr(0, colon);
    if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
    auto* v4 = reinterpret_cast<sockaddr_in*>(&out);
    auto* v6 = reinterpret_cast<sockaddr_in6*>(&out);
    out = {};
    if (::inet_pton(AF_INET, host.c_str(), &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = port;
        size = sizeof *v4;
    } else if (::inet_pton(AF_INET6, host.c_str(), &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = port;
        size = sizeof *v6;
    } else {
        return false;
    }
    return true;
}

std::string dial_text(int error) {
    if (error == 0) return "answers";
    return error == ECONNREFUSED ? "is refused" : std::string("fails: ") + std::strerror(error);
}

// -1: no descriptor, no address, or it has failed at once.
int begin_dial(Facts::Bulk& b) {
    sockaddr_storage to{};
    socklen_t size = 0;
    if (!parse(b.address, to, size)) return -1;
    const int fd = ::socket(to.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -1;
    if (::connect(fd, reinterpret_cast<const sockaddr*>(&to), size) == 0 || errno == EINPROGRESS) return fd;
    b.tcp_dialled = dial_text(errno);
    ::close(fd);
    return -1;
}

std::string end_dial(int fd) {
    int error = 0;
    socklen_t size = sizeof error;
    ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
    ::close(fd);
    return dial_text(error);
}

}  // namespace

// All at once: one wait for all that do not answer.
void dial_tcp(Facts& f) {
    std::vector<Facts::Bulk*> dialled;
    std::vector<pollfd> waiting;
    for (auto& peer : f.peers)
        for (auto& b : peer.bulk) {
            if (!b.tcp || !b.up || b.carrier == "tcp" || waiting.size() >= dials_max) continue;
            const int fd = begin_dial(b);
            if (fd < 0) continue;
            dialled.push_back(&b);
            waiting.push_back({fd, POLLOUT, 0});
        }
    const auto begin = std::chrono::steady_clock::now();
    for (size_t left = waiting.size(); left > 0;) {
        const auto spent = std::chrono::steady_clock::now() - begin;
        const auto rest = std::chrono::milliseconds(dial_timeout_ms) -
                          std::chrono::duration_cast<std::chrono::milliseconds>(spent);
        if (rest.count() <= 0 || ::poll(waiting.data(), waiting.size(), static_cast<int>(rest.count())) <= 0)
            break;
        for (size_t i = 0; i < waiting.size(); ++i)
            if (waiting[i].fd >= 0 && waiting[i].revents != 0) {
                dialled[i]->tcp_dialled = end_dial(std::exchange(waiting[i].fd, -1));
                --left;
            }
    }
    for (size_t i = 0; i < waiting.size(); ++i) {
        if (waiting[i].fd < 0) continue;
        ::close(waiting[i].fd);
        dialled[i]->tcp_dialled = "does not answer";
    }
}

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
