// choose_addresses: the addresses that this node advertises, and the reason for each choice. `nexarctl
// doctor` prints the reasons, because a wrong choice makes the node unreachable.
#pragma once

#include <string>
#include <vector>

#include "core/result.hpp"
#include "quic/address.hpp"

namespace nexar::node {

struct Interface {
    std::string name;
    quic::Address address;  // port 0
    bool up = false, loopback = false, point_to_point = false;
    int mtu = 0;
};
struct AddressChoice {
    std::string address;  // "10.0.0.1:7654"
    std::string why;
};
struct AddressChoices {
    std::vector<AddressChoice> chosen;  // advertised, best first
    std::vector<AddressChoice> rejected;
};

// A pure function. `advertise`: comma-separated; each item is an address, or a pattern (fnmatch(3)) for
// interface names or addresses. Empty: chosen by the interfaces' properties.
Result<AddressChoices> choose_addresses(const quic::Address& listen, const std::string& advertise,
                                        const std::vector<Interface>& interfaces);
std::vector<Interface> list_interfaces();
std::string host_name();

}  // namespace nexar::node
