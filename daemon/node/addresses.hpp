// Which addresses this node tells the others, and why: for a wrong choice here is what users of every other
// system curse first. `nexarctl doctor` prints the reasons.
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
    std::vector<AddressChoice> chosen;  // best first; told to other nodes
    std::vector<AddressChoice> rejected;
};

// Pure. `advertise`: comma-separated; each item an address, or a pattern (fnmatch) for interface names or
// addresses.
Result<AddressChoices> choose_addresses(const quic::Address& listen, const std::string& advertise,
                                        const std::vector<Interface>& interfaces);
std::vector<Interface> list_interfaces();
std::string host_name();

}  // namespace nexar::node
