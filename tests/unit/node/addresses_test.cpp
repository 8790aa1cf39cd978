// The addresses that a node advertises: a table of hosts and settings.
#include "node/addresses.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace nexar;
using node::choose_addresses;
using node::Interface;

namespace {

Interface interface(const char* name, const char* address, bool up = true, bool loopback = false) {
    Interface i;
    i.name = name;
    i.address = *quic::Address::parse(address);
    i.address.port = 0;
    i.up = up;
    i.loopback = loopback;
    i.mtu = 1500;
    return i;
}
const std::vector<Interface> machine = {
    interface("lo", "127.0.0.1:1", true, true),
    interface("lo", "[::1]:1", true, true),
    interface("eth0", "10.0.0.5:1"),
    interface("eth0", "[2001:db8::5]:1"),
    interface("eth0", "[fe80::5]:1"),
    interface("eth1", "192.168.1.5:1"),
    interface("eth2", "10.9.0.5:1", false),
    interface("docker0", "172.17.0.1:1"),
    interface("br-12ab", "172.18.0.1:1"),
    interface("zeroconf", "169.254.3.4:1"),
};

struct Case {
    const char *what, *listen, *advertise;
    std::vector<std::string> chosen;  // empty: an error
};

}  // namespace

TEST_CASE("the advertised addresses follow from the host and the setting", "[node]") {
    const std::vector<Case> cases = {
        {"every usable one of the family", "0.0.0.0:7654", "", {"10.0.0.5:7654", "192.168.1.5:7654"}},
        {"IPv6 without link-local", "[::]:7654", "", {"[2001:db8::5]:7654"}},
        {"a socket on one address says that", "192.168.1.5:80", "", {"192.168.1.5:80"}},
        {"an address gets our port", "0.0.0.0:7654", "203.0.113.9", {"203.0.113.9:7654"}},
        {"or its own", "0.0.0.0:7654", "203.0.113.9:99", {"203.0.113.9:99"}},
        {"IPv6 in any spelling",
         "[::]:7",
         "2001:db8::9,[2001:db8::8],[2001:db8::7]:9",
         {"[2001:db8::9]:7", "[2001:db8::8]:7", "[2001:db8::7]:9"}},
        {"an interface by name, of our family", "0.0.0.0:7654", "eth0", {"10.0.0.5:7654"}},
        {"the same for IPv6", "[::]:7654", "eth0", {"[2001:db8::5]:7654", "[fe80::5]:7654"}},
        {"a pattern of names", "0.0.0.0:1", "eth[01]", {"10.0.0.5:1", "192.168.1.5:1"}},
        {"a pattern of addresses", "0.0.0.0:1", "192.168.*", {"192.168.1.5:1"}},
        {"what was asked for, bridge or not, in order",
         "0.0.0.0:1",
         " docker0 , eth1 ",
         {"172.17.0.1:1", "192.168.1.5:1"}},
        {"no such interface", "0.0.0.0:1", "ib0", {}},
        {"one of two matches nothing", "0.0.0.0:1", "eth1,ib*", {}},
        {"an interface without our family", "[::]:1", "eth1", {}},
        {"only commas are no setting", "192.168.1.5:80", " , ", {"192.168.1.5:80"}},
    };
    for (const Case& c : cases) {
        INFO(c.what);
        const auto got = choose_addresses(*quic::Address::parse(c.listen), c.advertise, machine);
        if (c.chosen.empty()) {
            REQUIRE_FALSE(got);
            CHECK(got.error().code == Errc::bad_config);
            CHECK(got.error().text.find("advertise") != std::string::npos);
            continue;
        }
        REQUIRE(got);
        std::vector<std::string> texts;
        for (const auto& choice : got->chosen) {
            texts.push_back(choice.address);
            CHECK_FALSE(choice.why.empty());
        }
        CHECK(texts == c.chosen);
    }
}

TEST_CASE("a rejected address is reported with its reason", "[node]") {
    const auto got = choose_addresses(*quic::Address::parse("0.0.0.0:1"), "", machine);
    REQUIRE(got);
    CHECK(got->chosen.size() + got->rejected.size() == machine.size());
    const auto why = [&](const std::string& address) {
        for (const auto& p : got->rejected)
            if (p.address == address) return p.why;
        return std::string("not there");
    };
    CHECK(why("127.0.0.1:1").find("loopback") != std::string::npos);
    CHECK(why("10.9.0.5:1").find("down") != std::string::npos);
    CHECK(why("172.17.0.1:1").find("bridge") != std::string::npos);
    CHECK(why("169.254.3.4:1").find("link-local") != std::string::npos);
    CHECK(why("[2001:db8::5]:1").find("family") != std::string::npos);
}

TEST_CASE("a machine without a network still makes a cluster of one", "[node]") {
    const std::vector<Interface> alone = {interface("lo", "127.0.0.1:1", true, true)};
    const auto v4 = choose_addresses(*quic::Address::parse("0.0.0.0:55"), "", alone);
    REQUIRE(v4);
    REQUIRE(v4->chosen.size() == 1);
    CHECK(v4->chosen[0].address == "127.0.0.1:55");
    CHECK(choose_addresses(*quic::Address::parse("[::]:55"), "", {})->chosen[0].address == "[::1]:55");
}

TEST_CASE("this machine's interfaces are listed, loopback among them", "[node]") {
    bool loopback = false;
    for (const auto& i : node::list_interfaces()) {
        CHECK_FALSE(i.name.empty());
        loopback = loopback || i.loopback;
    }
    CHECK(loopback);
    CHECK_FALSE(node::host_name().empty());
}
