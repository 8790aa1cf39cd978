// What the doctor thinks of the facts. Pure.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "nexarctl/doctor.hpp"
#include "nexarctl/table.hpp"
#include "nexarctl/units.hpp"

namespace nexarctl {

namespace {

constexpr unsigned kernel_major_min = 5, kernel_minor_min = 16;  // futex_waitv
constexpr uint64_t socket_buffer_wanted = 4 << 20;
constexpr uint64_t memlock_wanted = 64 << 20;
constexpr uint64_t nofile_wanted = 8192;
constexpr uint64_t nofile_least = 1024;
constexpr int mtu_least = 1280;  // RFC 9000 section 14: QUIC does not run below
constexpr int mtu_usual = 1500;
constexpr double rtt_high_ms = 50;

Check good(std::string name, std::string found) {
    return {std::move(name), Outcome::ok, std::move(found), ""};
}
Check judged(std::string name, bool fine, Outcome otherwise, std::string found, std::string advice) {
    return {std::move(name), fine ? Outcome::ok : otherwise, std::move(found), fine ? "" : std::move(advice)};
}

std::string limit_text(const std::optional<uint64_t>& value, bool bytes) {
    if (!value) return "unknown";
    if (*value == UINT64_MAX) return "unlimited";
    return bytes ? bytes_text(*value) : std::to_string(*value);
}

Check kernel(const Facts& f) {
    unsigned major = 0, minor = 0;
    const bool read = std::sscanf(f.kernel.c_str(), "%u.%u", &major, &minor) == 2;
    const bool fine =
        read && (major > kernel_major_min || (major == kernel_major_min && minor >= kernel_minor_min));
    return judged("kernel", fine, Outcome::fail, f.kernel,
                  "Linux 5.16 or later is needed; Debian 12 has 6.1");
}

Check feature(const std::string& name, const std::optional<bool>& there, Outcome otherwise,
              const std::string& advice) {
    if (!there) return {name, Outcome::warn, "could not be tried", advice};
    return judged(name, *there, otherwise, *there ? "available" : "not available", advice);
}

Check memlock(const Facts& f) {
    return judged(
        "locked memory", f.memlock_bytes.value_or(0) >= memlock_wanted, Outcome::warn,
        limit_text(f.memlock_bytes, true) + " for " + f.limits_of,
        "set LimitMEMLOCK=infinity (the unit does) or ulimit -l unlimited; RDMA memory will need it");
}

Check nofile(const Facts& f) {
    const uint64_t limit = f.nofile.value_or(0);
    return judged(
        "open files", limit >= nofile_wanted, limit < nofile_least ? Outcome::fail : Outcome::warn,
        limit_text(f.nofile, false) + " for " + f.limits_of,
        "set LimitNOFILE=65536 (the unit does) or ulimit -n 65536; each local process takes several");
}

Check socket_buffer(const std::string& name, const std::optional<uint64_t>& value) {
    return judged(name, value.value_or(0) >= socket_buffer_wanted, Outcome::warn, limit_text(value, true),
                  "sysctl -w " + name + "=" + std::to_string(socket_buffer_wanted * 4) +
                      " (and in /etc/sysctl.d); with CAP_NET_ADMIN, as in the unit, nexard does without");
}

Check interface(const InterfaceFact& i) {
    std::string found = "MTU " + std::to_string(i.mtu) + (i.up ? "" : ", down");
    for (const auto& address : i.addresses) found += ", " + address;
    const std::string name = "interface " + i.name;
    if (!i.up || i.loopback) return good(name, found);
    if (i.mtu < mtu_least)
        return {name, Outcome::fail, found, "QUIC needs 1280 bytes: ip link set " + i.name + " mtu 1500"};
    return judged(name, i.mtu >= mtu_usual, Outcome::warn, found,
                  "below 1500: a tunnel? Packets get smaller and transfers slower");
}

Check cpu(const Facts& f) {
    std::string found = std::string(f.aes ? "AES" : "no AES") + (f.vaes ? " VAES" : "") +
                        (f.avx2 ? " AVX2" : "") + (f.avx512f ? " AVX-512" : "");
    return judged("processor", f.aes, Outcome::warn, found,
                  "without AES instructions encryption limits bulk data to some hundred MB/s");
}

Check quota(const Facts& f) {
    char text[64];
    std::snprintf(text, sizeof text, f.cpu_quota ? "%u cores, limited to %.2f of them" : "%u cores, no limit",
                  f.cores, f.cpu_quota.value_or(0));
    return judged(
        "CPU time", !f.cpu_quota || *f.cpu_quota >= 2, Outcome::warn, text,
        "a cgroup quota below two cores stalls the daemon: raise CPUQuota= or the container's limit");
}

Check clock(const Facts& f) {
    if (!f.clock_synchronised) return {"wall clock", Outcome::warn, "unknown", "adjtimex has no answer"};
    return judged("wall clock", *f.clock_synchronised, Outcome::warn,
                  *f.clock_synchronised ? "synchronised" : "not synchronised",
                  "run an NTP client (systemd-timesyncd, chrony): certificates and tokens allow 10 minutes "
                  "of difference");
}

Check clock_source(const Facts& f) {
    const bool fine = f.clock_source == "tsc" || f.clock_source == "kvm-clock" ||
                      f.clock_source == "arch_sys_counter" || f.clock_source == "hyperv_clocksource_tsc_page";
    return judged("clock source", fine, Outcome::warn, f.clock_source.empty() ? "unknown" : f.clock_source,
                  "reading this clock is a system call; tsc or kvm-clock is faster");
}

// What is shown to administrators alone is no fault of the host.
Check admin_socket_of_others(const Facts& f) {
    return {"admin socket", Outcome::warn,
            f.admin_socket.path + (f.admin_socket.exists ? " is not for this user" : " is not there"),
            "a container has none, and needs none. On the host: sudo nexarctl doctor"};
}

Check socket(const std::string& name, const PathFact& p, bool daemon) {
    if (!p.exists)
        return {name, daemon ? Outcome::fail : Outcome::warn, p.path + " is not there",
                daemon ? "another socket is configured, or this one was removed: restart nexard"
                       : "systemctl start nexard (without systemd: nexard)"};
    if (!p.is_socket)
        return {name, Outcome::fail, p.path + " is not a socket", "remove it and restart nexard"};
    char mode[8];
    std::snprintf(mode, sizeof mode, "%04o", p.mode & 07777u);
    return judged(name, p.usable, Outcome::warn, p.path + " " + mode + " " + p.owner + ":" + p.group,
                  "you may not use it: be root, or " +
                      (p.group == "root" ? std::string("set socket_group to a group of yours")
                                         : "join the group (usermod -aG " + p.group + " USER)"));
}

Check membership(const Facts& f) {
    const bool member = f.state != "no cluster" && f.state != "joining";
    return judged(
        "cluster", member, Outcome::warn,
        member ? "a member"
               : f.state + ", local only: groups of this host's processes" +
                     (f.why_no_cluster.empty() ? "" : "; " + f.why_no_cluster),
        "for groups with other nodes: nexarctl cluster init on the first node, nexarctl cluster join - "
        "on the others");
}

Check certificate(const Facts& f) {
    const auto& c = *f.certificate;
    const std::string why = c.why.empty() ? "" : ": " + c.why;
    if (c.state == "expired")
        return {"certificate", Outcome::fail, "expired " + seconds_text(-c.expires_in_s) + " ago" + why,
                "check this host's clock. Other nodes refuse this one until it joins again: stop nexard, "
                "empty " +
                    f.state_dir + ", start it, nexarctl cluster join -"};
    std::string found = "expires in " + seconds_text(c.expires_in_s);
    if (c.state == "renewal failed")
        return {"certificate", Outcome::warn,
                found + ", renewal failed " + std::to_string(c.failures) + " times" + why,
                "the daemon tries again; the host where the cluster was made must be up and connected, its "
                "disk not full"};
    return good("certificate",
                found + (c.renewal_due_in_s > 0 ? ", renewed in " + seconds_text(c.renewal_due_in_s)
                                                : ", is being renewed"));
}

Check holes(const std::string& unguarded) {
    return judged(
        "holes in clients' memory", unguarded.empty(), Outcome::warn,
        unguarded.empty() ? "guarded" : "filled on the daemon's account: " + unguarded,
        "a hostile client can use up the daemon's memory. Let nexard call userfaultfd(2): allow it in "
        "the seccomp profile of its container (or the unit's SystemCallFilter), on a kernel with "
        "CONFIG_USERFAULTFD; a capability or vm.unprivileged_userfaultfd=1 is not needed");
}

Check peer(const Facts::Peer& p) {
    const std::string name = "peer " + p.name;
    const std::string rtt = p.rtt_ms ? ", round trip " + milliseconds_text(*p.rtt_ms) : "";
    const std::string where = p.state + " at " + (p.address.empty() ? "no address" : p.address) + rtt +
                              (p.why.empty() ? "" : ": " + p.why);
    if (p.state == "up")
        return judged(name, !p.rtt_ms || *p.rtt_ms < rtt_high_ms, Outcome::warn, where,
                      "a slow path for collectives; advertise chooses another network");
    if (p.state == "left") return good(name, where);
    return {name, Outcome::fail, where,
            "start nexard there, and let the firewall pass UDP both ways to that port"};
}

// What both firewalls have to let pass, for `consequence` to end.
std::string passing(const std::string& protocol, const std::string& address, const std::string& consequence) {
    return "let the firewalls of both hosts, and what is between them, pass " + protocol + " port " +
           address.substr(address.rfind(':') + 1) + " both ways (nft list ruleset): until then " +
           consequence;
}

// The control connection may be well while the port for bulk data is blocked.
Check bulk(const std::string& peer, const Facts::Bulk& b) {
    const std::string protocol = b.carrier == "tcp" ? "TCP" : !b.up && b.tcp ? "TCP and UDP" : "UDP";
    const std::string port = protocol + " " + b.address;
    return judged("bulk data, peer " + peer, b.up && b.answers, Outcome::fail,
                  port + (!b.up        ? ": no connection"
                          : !b.answers ? ": nothing comes back"
                                       : " answers"),
                  passing(protocol, b.address, "operations on large data end with LINK_LOST"));
}

// Both ends want it. Who does not dial does not know why it does not carry, but whether it answers from here.
Check bulk_over_tcp(const std::string& peer, const Facts::Bulk& b) {
    std::string found = "TCP " + b.address + (b.carrier == "tcp" ? " carries" : " does not carry");
    if (b.carrier != "tcp" && b.tcp_dialled) found += "; dialled from here it " + *b.tcp_dialled;
    if (b.carrier != "tcp" && !b.carrier_why.empty()) found += "; " + b.carrier_why;
    return judged("bulk data over TCP, peer " + peer, b.carrier == "tcp", Outcome::warn, found,
                  passing("TCP", b.address, "QUIC carries bulk data, more slowly") +
                      ". The node that dials knows more: nexarctl doctor there");
}

void add_bulk(const Facts::Peer& peer, std::vector<Check>& out) {
    for (const auto& b : peer.bulk) {
        out.push_back(bulk(peer.name, b));
        if (b.tcp && b.up) out.push_back(bulk_over_tcp(peer.name, b));
    }
}

void add_daemon(const Facts& f, std::vector<Check>& out) {
    if (!f.answers_on.empty())
        return out.push_back(
            {"daemon", Outcome::warn,
             "answers on " + f.answers_on + "; its addresses and peers are shown to administrators",
             "ask one of them for sudo nexarctl doctor on the host"});
    out.push_back(judged(
        "daemon", f.daemon, Outcome::fail, f.daemon ? "answers, listens on " + f.listen : f.daemon_problem,
        "repair this first: its addresses, peers and certificate cannot be checked without it. "
        "journalctl -u nexard has why it ended, or its state"));
    if (!f.state.empty()) out.push_back(membership(f));
    if (f.certificate) out.push_back(certificate(f));
    if (f.holes_unguarded) out.push_back(holes(*f.holes_unguarded));
    for (const auto& a : f.addresses)
        out.push_back(
            good(std::string(a.chosen ? "address chosen" : "address passed over"), a.address + ": " + a.why));
    const bool any_chosen =
        std::any_of(f.addresses.begin(), f.addresses.end(), [](const auto& a) { return a.chosen; });
    if (f.daemon && !f.addresses.empty() && !any_chosen)
        out.push_back(
            {"address", Outcome::fail, "none chosen", "other nodes cannot reach this one: set advertise"});
    for (const auto& p : f.peers) {
        out.push_back(peer(p));
        if (p.state == "up") add_bulk(p, out);
    }
}

}  // namespace

std::vector<Check> judge(const Facts& f) {
    std::vector<Check> out;
    out.push_back(kernel(f));
    out.push_back(
        feature("futex_waitv", f.futex_waitv, Outcome::fail, "Linux 5.16 and no seccomp filter against it"));
    out.push_back(feature("memfd seals", f.memfd_seals, Outcome::fail,
                          "shared memory needs memfd_create with sealing"));
    out.push_back(feature("pidfd", f.pidfd, Outcome::warn,
                          "without it only its socket shows that a process has failed"));
    out.push_back(memlock(f));
    out.push_back(nofile(f));
    out.push_back(socket_buffer("net.core.rmem_max", f.rmem_max));
    out.push_back(socket_buffer("net.core.wmem_max", f.wmem_max));
    out.push_back(feature("UDP send offload (GSO)", f.gso, Outcome::warn,
                          "more system calls per byte; Linux 4.18 has it"));
    out.push_back(feature("UDP receive offload (GRO)", f.gro, Outcome::warn,
                          "more system calls per byte; Linux 5.0 has it"));
    for (const auto& i : f.interfaces) out.push_back(interface(i));
    out.push_back(cpu(f));
    out.push_back(quota(f));
    out.push_back(clock(f));
    out.push_back(clock_source(f));
    const bool answers = f.daemon || !f.answers_on.empty();
    out.push_back(f.answers_on.empty() ? socket("admin socket", f.admin_socket, answers)
                                       : admin_socket_of_others(f));
    out.push_back(socket("session socket", f.session_socket, answers));
    add_daemon(f, out);
    return out;
}

Outcome worst(const std::vector<Check>& checks) {
    Outcome out = Outcome::ok;
    for (const auto& check : checks) out = std::max(out, check.outcome);
    return out;
}

std::string render_checks(const std::vector<Check>& checks) {
    static constexpr const char* words[] = {"ok", "WARN", "FAIL"};
    Table table({"", "CHECK", "FOUND"});
    size_t counts[3] = {};
    for (const auto& check : checks) {
        const auto outcome = static_cast<size_t>(check.outcome);
        ++counts[outcome];
        table.row({words[outcome], check.name, check.found});
        if (!check.advice.empty()) table.row({" ", " ", "-> " + check.advice});
    }
    return table.text() + "\n" + std::to_string(counts[0]) + " ok, " + std::to_string(counts[1]) +
           " to improve, " + std::to_string(counts[2]) + " to repair\n";
}

}  // namespace nexarctl
