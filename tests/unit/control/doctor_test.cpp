// The doctor's judgement of given facts.
#include "nexarctl/doctor.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

using namespace nexarctl;

namespace {

Facts healthy() {
    Facts f;
    f.kernel = "6.1.0-18-amd64";
    f.futex_waitv = f.memfd_seals = f.gso = f.gro = f.pidfd = true;
    f.memlock_bytes = UINT64_MAX;
    f.nofile = 65536;
    f.limits_of = "nexard (pid 412)";
    f.rmem_max = f.wmem_max = 16 << 20;
    f.interfaces = {{"lo", 65536, true, true, {"127.0.0.1"}}, {"eth0", 9000, true, false, {"10.0.0.1"}}};
    f.aes = f.avx2 = true;
    f.clock_synchronised = true;
    f.clock_source = "tsc";
    f.cores = 8;
    f.admin_socket = {"/run/nexar/admin.sock", true, true, 0660, "nexar", "nexar", true};
    f.session_socket = {"/run/nexar/nexard.sock", true, true, 0666, "nexar", "nexar", true};
    f.daemon = true;
    f.listen = "0.0.0.0:7654";
    f.state = "running";
    f.state_dir = "/var/lib/nexar";
    f.certificate = {"valid", "", 30 * 86400, 20 * 86400, 0};
    f.addresses = {{"10.0.0.1:7654", "the only one", true}};
    f.holes_unguarded = "";
    f.peers = {{"beta", "up", "10.0.0.2:7654", "", 0.2, 10, {{"10.0.0.2:7655", true, true}}}};
    return f;
}

const Check& of(const std::vector<Check>& checks, const std::string& name) {
    const auto found =
        std::find_if(checks.begin(), checks.end(), [&](const Check& c) { return c.name == name; });
    REQUIRE(found != checks.end());
    return *found;
}

// Both ends carry bulk data over TCP.
void carry(Facts& f, const char* carrier, bool answers) {
    Facts::Bulk& bulk = f.peers[0].bulk[0];
    bulk.tcp = true;
    bulk.carrier = carrier;
    bulk.answers = answers;
}

}  // namespace

TEST_CASE("a healthy host is all ok and gets no advice") {
    const auto checks = judge(healthy());
    for (const auto& check : checks) {
        CAPTURE(check.name, check.found);
        REQUIRE(check.outcome == Outcome::ok);
        REQUIRE(check.advice.empty());
    }
    REQUIRE(worst(checks) == Outcome::ok);
}

TEST_CASE("each ailment has its outcome and its advice") {
    struct Case {
        const char* name;
        void (*hurt)(Facts&);
        Outcome outcome;
        const char* advice;
    };
    const Case cases[] = {
        {"kernel", [](Facts& f) { f.kernel = "5.10.0"; }, Outcome::fail, "5.16"},
        {"kernel", [](Facts& f) { f.kernel = "?"; }, Outcome::fail, "5.16"},
        {"futex_waitv", [](Facts& f) { f.futex_waitv = false; }, Outcome::fail, "seccomp"},
        {"memfd seals", [](Facts& f) { f.memfd_seals = false; }, Outcome::fail, "memfd_create"},
        {"pidfd", [](Facts& f) { f.pidfd = false; }, Outcome::warn, "socket"},
        {"locked memory", [](Facts& f) { f.memlock_bytes = 65536; }, Outcome::warn, "LimitMEMLOCK"},
        {"open files", [](Facts& f) { f.nofile = 4096; }, Outcome::warn, "LimitNOFILE"},
        {"open files", [](Facts& f) { f.nofile = 256; }, Outcome::fail, "LimitNOFILE"},
        {"net.core.rmem_max", [](Facts& f) { f.rmem_max = 212992; }, Outcome::warn,
         "sysctl -w net.core.rmem_max="},
        {"net.core.wmem_max", [](Facts& f) { f.wmem_max.reset(); }, Outcome::warn,
         "sysctl -w net.core.wmem_max="},
        {"UDP send offload (GSO)", [](Facts& f) { f.gso.reset(); }, Outcome::warn, "system calls"},
        {"UDP receive offload (GRO)", [](Facts& f) { f.gro = false; }, Outcome::warn, "system calls"},
        {"interface eth0", [](Facts& f) { f.interfaces[1].mtu = 1400; }, Outcome::warn, "tunnel"},
        {"interface eth0", [](Facts& f) { f.interfaces[1].mtu = 576; }, Outcome::fail, "mtu 1500"},
        {"processor", [](Facts& f) { f.aes = false; }, Outcome::warn, "encryption"},
        {"CPU time", [](Facts& f) { f.cpu_quota = 0.5; }, Outcome::warn, "CPUQuota"},
        {"wall clock", [](Facts& f) { f.clock_synchronised = false; }, Outcome::warn, "NTP"},
        {"clock source", [](Facts& f) { f.clock_source = "acpi_pm"; }, Outcome::warn, "system call"},
        {"admin socket", [](Facts& f) { f.admin_socket.exists = false; }, Outcome::fail, "restart nexard"},
        {"admin socket", [](Facts& f) { f.admin_socket.is_socket = false; }, Outcome::fail, "remove it"},
        {"session socket", [](Facts& f) { f.session_socket.usable = false; }, Outcome::warn,
         "usermod -aG nexar"},
        {"admin socket", [](Facts& f) { f.admin_socket.usable = false, f.admin_socket.group = "root"; },
         Outcome::warn, "be root, or set socket_group"},  // no advice is to join the group root
        {"peer beta", [](Facts& f) { f.peers[0].state = "down"; }, Outcome::fail, "firewall"},
        {"peer beta", [](Facts& f) { f.peers[0].rtt_ms = 80; }, Outcome::warn, "slow path"},
        {"bulk data, peer beta", [](Facts& f) { f.peers[0].bulk[0].answers = false; }, Outcome::fail,
         "UDP port 7655 both ways"},
        {"bulk data, peer beta", [](Facts& f) { f.peers[0].bulk[0].up = false; }, Outcome::fail,
         "UDP port 7655 both ways"},
        {"bulk data over TCP, peer beta", [](Facts& f) { carry(f, "quic", true); }, Outcome::warn,
         "pass TCP port 7655 both ways"},
        {"bulk data, peer beta", [](Facts& f) { carry(f, "tcp", false); }, Outcome::fail,
         "TCP port 7655 both ways"},
        {"holes in clients' memory", [](Facts& f) { f.holes_unguarded = "userfaultfd is not allowed"; },
         Outcome::warn, "seccomp profile"},
        {"address", [](Facts& f) { f.addresses[0].chosen = false; }, Outcome::fail, "set advertise"},
        {"cluster", [](Facts& f) { f.state = "no cluster"; }, Outcome::warn, "cluster join -"},
        {"certificate", [](Facts& f) { f.certificate = {"renewal failed", "no issuer", 86400, -864000, 7}; },
         Outcome::warn, "disk not full"},
        {"certificate", [](Facts& f) { f.certificate = {"expired", "no issuer", -60, -864000, 9}; },
         Outcome::fail, "empty /var/lib/nexar, start it, nexarctl cluster join -"},
        {"daemon", [](Facts& f) { f.daemon = false; }, Outcome::fail, "cannot be checked"},  // [U13]
    };
    for (const Case& c : cases) {
        CAPTURE(c.name, c.advice);
        Facts facts = healthy();
        c.hurt(facts);
        const auto checks = judge(facts);
        REQUIRE(of(checks, c.name).outcome == c.outcome);
        REQUIRE(of(checks, c.name).advice.find(c.advice) != std::string::npos);
        REQUIRE(worst(checks) >= c.outcome);
    }
}

TEST_CASE("the certificate's remaining validity and its renewal are shown") {
    Facts facts = healthy();
    REQUIRE(of(judge(facts), "certificate").found == "expires in 30 d, renewed in 20 d");
    facts.certificate = {"renewing", "", 10 * 86400, -1, 0};
    REQUIRE(of(judge(facts), "certificate").found == "expires in 10 d, is being renewed");
    facts.certificate = {"renewal failed", "the issuer's disk is full", 9 * 86400, -86400, 12};
    REQUIRE(of(judge(facts), "certificate").found ==
            "expires in 9 d, renewal failed 12 times: the issuer's disk is full");
    facts.certificate = {"expired", "no issuer is up", -90, -86400, 40};
    REQUIRE(of(judge(facts), "certificate").found == "expired 1 min 30 s ago: no issuer is up");
    REQUIRE(worst(judge(facts)) == Outcome::fail);
}

TEST_CASE("a daemon in no cluster yet serves local groups: it is asked to join one, not to be repaired",
          "[U20]") {
    Facts facts = healthy();
    facts.state = "no cluster";
    facts.certificate.reset();
    facts.addresses.clear();
    facts.peers.clear();
    REQUIRE(worst(judge(facts)) == Outcome::warn);
    REQUIRE(of(judge(facts), "cluster").found.find("local only") != std::string::npos);
    REQUIRE(of(judge(facts), "session socket").outcome == Outcome::ok);
    facts.session_socket = {"/run/nexar/nexard.sock", false, false, 0, "", "", false};
    REQUIRE(of(judge(facts), "session socket").outcome == Outcome::fail);
}

TEST_CASE("to one without the admin socket a daemon that answers elsewhere is no fault", "[U13]") {
    Facts facts = healthy();
    facts.daemon = false;
    facts.daemon_problem = "no daemon listens on /run/nexar/admin.sock";
    facts.answers_on = "/run/nexar/status.sock";
    facts.admin_socket = {"/run/nexar/admin.sock", false, false, 0, "", "", false};
    REQUIRE(worst(judge(facts)) == Outcome::warn);
    REQUIRE(of(judge(facts), "daemon").found.find("answers on /run/nexar/status.sock") != std::string::npos);
    REQUIRE(of(judge(facts), "admin socket").advice.find("systemctl") == std::string::npos);
    facts.session_socket.exists = false;
    REQUIRE(of(judge(facts), "session socket").outcome == Outcome::fail);
}

TEST_CASE("an interface that is down or loopback may have any MTU") {
    Facts facts = healthy();
    facts.interfaces[1] = {"ifb0", 600, false, false, {}};
    REQUIRE(worst(judge(facts)) == Outcome::ok);
}

TEST_CASE("the daemon's answer becomes facts; a strange one becomes none") {
    Facts facts;
    read_daemon(facts, nlohmann::ordered_json::parse(
                           R"({"listen": "0.0.0.0:1", "addresses": [{"address": "a", "chosen":
        true, "why": "w"}], "peers": [{"host": "beta", "node": "0123456789abcdef", "state": "up", "rtt_ms": 1.5,
        "received_ago_ms": null, "bulk": [{"address": "b:7655", "up": true, "answers": false}]}], "socket": "/tmp/s", "state": "running", "state_dir": "/d", "certificate": {"state":
        "renewal failed", "expires_in_s": 50, "renewal_due_in_s": -7, "renewal_failures": 3, "why": "w"}})"));
    REQUIRE(facts.daemon);
    REQUIRE(facts.peers[0].name == "beta (0123456789ab)");
    REQUIRE(facts.peers[0].rtt_ms == 1.5);
    REQUIRE_FALSE(facts.peers[0].received_ago_ms);
    REQUIRE(facts.peers[0].bulk.size() == 1);
    REQUIRE((facts.peers[0].bulk[0].address == "b:7655" && facts.peers[0].bulk[0].up));
    REQUIRE_FALSE(facts.peers[0].bulk[0].answers);
    REQUIRE(facts.session_socket.path == "/tmp/s");
    REQUIRE((facts.state == "running" && facts.state_dir == "/d"));
    REQUIRE((facts.certificate->expires_in_s == 50 && facts.certificate->renewal_due_in_s == -7));
    REQUIRE((facts.certificate->failures == 3 && facts.certificate->why == "w"));

    Facts strange;
    read_daemon(strange,
                nlohmann::ordered_json::parse(
                    R"({"peers": {"a": 1}, "addresses": [7, null], "listen": [], "certificate": 7})"));
    REQUIRE(strange.peers.empty());
    REQUIRE_NOTHROW(render_checks(judge(strange)));
}

TEST_CASE("the facts of this machine can be gathered, whatever they are") {
    Facts facts;
    gather_machine(facts, 0);
    gather_network(facts);
    REQUIRE_FALSE(facts.kernel.empty());
    REQUIRE(facts.memfd_seals.has_value());
    REQUIRE(facts.nofile.value_or(0) > 0);
    REQUIRE(facts.gso.has_value());
    REQUIRE(facts.limits_of == "this shell");
    REQUIRE(render_checks(judge(facts)).find("futex_waitv") != std::string::npos);
}
