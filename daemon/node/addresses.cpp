// See addresses.hpp.
#include "node/addresses.hpp"

#include <fnmatch.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>

namespace nexar::node {
namespace {

std::vector<std::string> split(const std::string& text) {
    std::vector<std::string> out;
    std::istringstream in(text);
    for (std::string item; std::getline(in, item, ',');) {
        const size_t begin = item.find_first_not_of(" \t");
        const size_t end = item.find_last_not_of(" \t");
        if (begin != std::string::npos) out.push_back(item.substr(begin, end - begin + 1));
    }
    return out;
}

std::string host_text(const quic::Address& address) {
    std::string text = address.text();
    text.resize(text.rfind(':'));
    if (text.starts_with('[')) text = text.substr(1, text.size() - 2);
    return text;
}

std::string with_port(quic::Address address, uint16_t port) {
    address.port = port;
    return address.text();
}

bool link_local(const quic::Address& a) {
    return a.family == 4 ? a.host[0] == 169 && a.host[1] == 254
                         : a.host[0] == 0xfe && (a.host[1] & 0xc0) == 0x80;
}

// Bridges and tunnels of containers and virtual machines: other hosts cannot reach them.
bool virtual_bridge(const std::string& name) {
    for (const char* pattern :
         {"docker*", "br-*", "virbr*", "veth*", "cni*", "flannel*", "cali*", "lxc*", "podman*"})
        if (fnmatch(pattern, name.c_str(), 0) == 0) return true;
    return false;
}

std::string reason_against(const Interface& i, uint8_t family) {
    if (!i.up) return "the interface is down";
    if (i.address.family != family) return "of another family than the listening socket";
    if (i.loopback) return "loopback: other hosts cannot reach it";
    if (link_local(i.address)) return "link-local";
    if (virtual_bridge(i.name)) return "looks like a bridge of containers or virtual machines";
    return {};
}

Result<AddressChoices> by_patterns(const quic::Address& listen, const std::vector<std::string>& items,
                                   const std::vector<Interface>& interfaces) {
    AddressChoices out;
    for (const std::string& item : items) {
        const size_t before = out.chosen.size();
        const bool v6 = std::count(item.begin(), item.end(), ':') > 1;
        const std::string port = ":" + std::to_string(listen.port);
        const bool pattern = item.find_first_of("*?") != std::string::npos;
        if (auto full = quic::Address::parse(item); !pattern && full) {
            out.chosen.push_back({full->text(), "configured"});
        } else if (auto host = quic::Address::parse((v6 && item[0] != '[' ? "[" + item + "]" : item) + port);
                   !pattern && host) {
            out.chosen.push_back({host->text(), "configured"});
        } else {
            for (const Interface& i : interfaces)
                if (i.address.family == listen.family &&  // the socket receives only its own family
                    (fnmatch(item.c_str(), i.name.c_str(), 0) == 0 ||
                     fnmatch(item.c_str(), host_text(i.address).c_str(), 0) == 0))
                    out.chosen.push_back(
                        {with_port(i.address, listen.port), "matches '" + item + "' (" + i.name + ")"});
        }
        if (out.chosen.size() == before)
            return fail(Errc::bad_config,
                        "advertise = '" + item +
                            "' is no address and matches no interface here; see `nexarctl doctor`");
    }
    return out;
}

}  // namespace

Result<AddressChoices> choose_addresses(const quic::Address& listen, const std::string& advertise,
                                        const std::vector<Interface>& interfaces) {
    if (const auto items = split(advertise); !items.empty()) return by_patterns(listen, items, interfaces);
    AddressChoices out;
    if (!listen.is_any_host()) {
        out.chosen.push_back({listen.text(), "the address that nexard listens on"});
        return out;
    }
    for (const Interface& i : interfaces) {
        const std::string why_not = reason_against(i, listen.family);
        const std::string text = with_port(i.address, listen.port);
        if (why_not.empty())
            out.chosen.push_back({text, "up, on " + i.name + ", MTU " + std::to_string(i.mtu)});
        else
            out.rejected.push_back({text, i.name + ": " + why_not});
    }
    if (out.chosen.empty())  // a host without a network is still a cluster of one node
        out.chosen.push_back({with_port(listen.family == 4 ? *quic::Address::parse("127.0.0.1:1")
                                                           : *quic::Address::parse("[::1]:1"),
                                        listen.port),
                              "no other interface is up"});
    return out;
}

std::vector<Interface> list_interfaces() {
    std::vector<Interface> out;
    ifaddrs* list = nullptr;
    if (getifaddrs(&list) != 0) return out;
    const int probe = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    for (const ifaddrs* i = list; i; i = i->ifa_next) {
        if (!i->ifa_addr || (i->ifa_addr->sa_family != AF_INET && i->ifa_addr->sa_family != AF_INET6))
            continue;
        Interface one;
        one.name = i->ifa_name;
        one.address = quic::Address::from_sockaddr(i->ifa_addr);
        one.address.port = 0;
        one.up = (i->ifa_flags & IFF_UP) != 0 && (i->ifa_flags & IFF_RUNNING) != 0;
        one.loopback = (i->ifa_flags & IFF_LOOPBACK) != 0;
        one.point_to_point = (i->ifa_flags & IFF_POINTOPOINT) != 0;
        ifreq request{};
        one.name.copy(request.ifr_name, IFNAMSIZ - 1);
        if (probe >= 0 && ioctl(probe, SIOCGIFMTU, &request) == 0) one.mtu = request.ifr_mtu;
        out.push_back(std::move(one));
    }
    if (probe >= 0) close(probe);
    freeifaddrs(list);
    return out;
}

std::string host_name() {
    char name[256] = "";
    gethostname(name, sizeof name - 1);
    return name;
}

}  // namespace nexar::node
