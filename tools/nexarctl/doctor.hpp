// The doctor: facts are gathered by system calls (doctor_facts.cpp, doctor_network.cpp), and judged by pure
// functions (doctor_checks.cpp) with an advice for each.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace nexarctl {

struct InterfaceFact {
    std::string name;
    int mtu = 0;
    bool up = false, loopback = false;
    std::vector<std::string> addresses;
};

struct PathFact {
    std::string path;
    bool exists = false, is_socket = false;
    uint32_t mode = 0;
    std::string owner, group;
    bool usable = false;  // by the user who runs the doctor
};

// What is unknown is empty.
struct Facts {
    std::string kernel;  // "6.1.0-18-amd64"
    std::optional<bool> futex_waitv, memfd_seals, gso, gro, pidfd;
    std::optional<uint64_t> memlock_bytes, nofile;  // UINT64_MAX: unlimited
    std::string limits_of;                          // "nexard (pid 412)" or "this shell"
    std::optional<uint64_t> rmem_max, wmem_max;
    std::vector<InterfaceFact> interfaces;
    bool aes = false, avx2 = false, avx512f = false, vaes = false;
    std::optional<bool> clock_synchronised;
    std::string clock_source;
    std::optional<double> cpu_quota;  // cores; none: no limit
    unsigned cores = 0;
    uint64_t shm_free_bytes = 0;  // of /dev/shm's kind of memory: what is available
    PathFact admin_socket, session_socket;

    // From the daemon; empty when there is none.
    bool daemon = false;
    std::string daemon_problem;  // why there is no answer
    // To one who may not use the admin socket, or does not have it: the status socket that answers. The rest
    // is empty then.
    std::string answers_on;
    struct Bulk {
        std::string address;
        bool up = false, answers = false;
        std::string carrier{}, carrier_why{};
        bool tcp = false;  // both ends carry bulk data over TCP
        std::optional<std::string>
            tcp_dialled{};  // from here, where TCP does not carry: "answers", "is refused"
    };
    struct Peer {
        std::string name, state, address, why;
        std::optional<double> rtt_ms, received_ago_ms;
        std::vector<Bulk> bulk{};
    };
    std::vector<Peer> peers;
    struct Address {
        std::string address, why;
        bool chosen = false;
    };
    std::vector<Address> addresses;
    std::string listen, state_dir;
    std::string state;  // "running", "no cluster", ...; empty: an older daemon
    std::string why_no_cluster;
    std::optional<std::string> holes_unguarded;  // the reason; empty: they are guarded; none: an older daemon
    struct Certificate {
        std::string state, why;
        double expires_in_s = 0, renewal_due_in_s = 0;
        uint64_t failures = 0;
    };
    std::optional<Certificate> certificate;
};

enum class Outcome { ok, warn, fail };

struct Check {
    std::string name;
    Outcome outcome = Outcome::ok;
    std::string found;
    std::string advice;  // empty when ok
};

std::vector<Check> judge(const Facts& facts);
Outcome worst(const std::vector<Check>& checks);
std::string render_checks(const std::vector<Check>& checks);

void gather_machine(Facts& facts, uint32_t limits_pid);  // 0: this process's limits
void gather_network(Facts& facts);
void dial_tcp(Facts& facts);  // requires: read_daemon()
void read_daemon(Facts& facts, const nlohmann::ordered_json& doctor);

}  // namespace nexarctl
