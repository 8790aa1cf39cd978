// The daemon's configuration: one TOML file; every key is also an environment variable and a flag.
// Precedence: flag, environment, file, default. Ensures: a loaded configuration is valid; a bad value is an
// error with its key, its value, its place and the allowed values. Pure: the caller reads the file and the
// environment. docs/adding.md has the steps for a new key.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/session_socket.hpp"
#include "core/result.hpp"
#include "core/time.hpp"

namespace nexar::config {

struct Config {
    // Where
    std::string socket = "/run/nexar/nexard.sock";
    std::string admin_socket = "/run/nexar/admin.sock";
    std::string status_socket;                   // empty: status.sock beside admin_socket; "off": none
    std::vector<SessionSocket> session_sockets;  // beside `socket`
    std::string socket_group;                    // empty: leave the group of the sockets as it is
    std::string state_dir = "/var/lib/nexar";
    std::string listen = "0.0.0.0:7654";
    std::string
        advertise;  // addresses or interface patterns ("10.1.*", "eth*"), comma-separated; empty: probe
    std::string log_level = "info";
    std::string join_token;
    bool init_cluster = false;
    std::string cluster_name = "nexar";
    uint64_t certificate_lifetime = 30 * 86400;  // seconds, of the leaves that this node signs

    // Time, in seconds in all outer forms
    double collective_timeout = 30;
    double barrier_timeout = 30;
    double rpc_timeout = 30;
    double heartbeat_interval = 1;
    double heartbeat_timeout = 5;
    double drain_timeout = 10;

    // The plan (agreed per group; the group's creator decides)
    uint64_t small_message_bytes = 256 * 1024;
    uint64_t pipeline_segment_bytes = 4 << 20;
    uint64_t large_message_bytes = 0;  // 0, and ring_max_world's: the cost model decides (planning.md)
    uint64_t ring_max_world = 0;
    std::string algorithms = "automatic";

    // Threads and limits
    uint64_t bulk_shards = 0;  // 0: bulk_shards_of()
    uint64_t workers = 0;      // 0: cores - 1, at least 1
    uint64_t sessions_max = 2000;
    uint64_t regions_max = 32768;
    uint64_t region_bytes_max = uint64_t{64} << 40;
    uint64_t groups_max = 65536;
    uint64_t scratch_bytes_max = uint64_t{1} << 30;
    uint64_t requests_max = 524288;
    uint64_t user_share_percent = 30;
    uint64_t session_memory_max_bytes = uint64_t{64} << 30;
    bool tcp_bulk = true;      // bulk data over TCP where both ends have it, QUIC where it is blocked
    bool encrypt_bulk = true;  // false: TCP without encryption, with nodes whose configuration says the same
    bool memfds_in_place = false;    // clients may make the daemon's mmap() wait then [S19]
    double yield_microseconds = 50;  // how long the loop looks again before it sleeps (Lookout)
};

// How many shards there are: where the key leaves it open, one for four usable cores, at most 4. One core
// encrypts about 1 GB/s each way.
uint64_t bulk_shards_of(const Config& config);

// One row of the table behind parsing, flags, help and `nexarctl config`.
struct Key {
    const char* name;         // in the file, "heartbeat_timeout"; as flag, "--heartbeat-timeout"
    const char* environment;  // "NEXAR_HEARTBEAT_TIMEOUT_SECS"
    const char* allowed;      // for people: "0.05 to 3600 seconds"
    const char* help;
    std::function<bool(Config&, std::string_view)> set;  // false: the value is not allowed
    std::function<std::string(const Config&)> get;
    bool secret = false;   // never printed
    bool is_text = false;  // quoted in a file also when it looks like a number
};
const std::vector<Key>& keys();

// A certificate's common name has at most 64 characters (RFC 5280, ub-common-name), 11 of them "nexar root ".
constexpr size_t cluster_name_bytes_max = 53;
constexpr const char* cluster_name_allowed = "1 to 53 bytes without control characters";
bool is_cluster_name(std::string_view name);

struct Sources {
    std::string file_path;                 // for messages
    std::optional<std::string> file_text;  // none: no file
    std::map<std::string, std::string> environment;
    std::map<std::string, std::string> flags;  // by key name
};
Result<Config> load(const Sources& sources);
// Overwrites the join token, after its use, in what was loaded and in what it was loaded from.
void wipe_token(Sources& sources, Config& config);

// Variables that begin with NEXAR_ and are neither a daemon's nor an application's: most likely misspelt.
std::vector<std::string> unknown_variables(const std::map<std::string, std::string>& environment);

// The whole effective configuration as a TOML file, secrets left out.
std::string to_toml(const Config& config);

// Where users may ask for what they have: paths with the labels of those users.
std::vector<std::pair<std::string, std::string>> status_sockets(const Config& config);

inline Duration seconds(double s) {
    return Duration(static_cast<int64_t>(s * 1e9));
}

}  // namespace nexar::config
