// The table of keys: names, ranges, and the conversion of a text to a value.
#include <arpa/inet.h>

#include <cctype>
#include <charconv>
#include <cmath>

#include "config/config.hpp"

namespace nexar::config {
namespace {

std::string lower(std::string_view text) {
    std::string out;
    for (const char c : text) out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return out;
}

Key text(const char* name, const char* environment, std::string Config::* field, const char* help,
         bool secret = false) {
    return {name,
            environment,
            "any text of up to 4096 characters",
            help,
            [field](Config& c, std::string_view v) {
                if (v.size() > 4096) return false;
                c.*field = std::string(v);
                return true;
            },
            [field](const Config& c) { return c.*field; },
            secret,
            true};
}

Key path(const char* name, const char* environment, std::string Config::* field, const char* help) {
    return {name,
            environment,
            "an absolute path of up to 107 characters",
            help,
            [field](Config& c, std::string_view v) {
                // 107: the capacity of sun_path; one limit for all paths is easier to remember than two.
                if (v.empty() || v[0] != '/' || v.size() > 107) return false;
                c.*field = std::string(v);
                return true;
            },
            [field](const Config& c) { return c.*field; }};
}

// "192.0.2.1:7654" or "[2001:db8::1]:7654". Host names are not resolved: a daemon starts before the resolver.
bool is_listen_address(std::string_view v) {
    const bool v6 = v.starts_with('[');
    const size_t colon = v.rfind(':');
    if (colon == std::string_view::npos || colon < (v6 ? 2u : 0u) || (v6 && v[colon - 1] != ']'))
        return false;
    const std::string host(v6 ? v.substr(1, colon - 2) : v.substr(0, colon));
    const std::string_view digits = v.substr(colon + 1);
    uint16_t port = 0;
    const auto r = std::from_chars(digits.data(), digits.data() + digits.size(), port);
    in6_addr ignored{};
    return r.ec == std::errc{} && r.ptr == digits.data() + digits.size() && port != 0 &&
           inet_pton(v6 ? AF_INET6 : AF_INET, host.c_str(), &ignored) == 1;
}

Key listen_address(const char* name, const char* environment, std::string Config::* field, const char* help) {
    return {name,
            environment,
            "ADDRESS:PORT or [IPV6]:PORT in digits, like 0.0.0.0:7654",
            help,
            [field](Config& c, std::string_view v) {
                if (!is_listen_address(v)) return false;
                c.*field = std::string(v);
                return true;
            },
            [field](const Config& c) { return c.*field; },
            false,
            true};
}

// The name becomes part of the root certificate's name.
Key cluster_name(const char* name, const char* environment, std::string Config::* field, const char* help) {
    return {name,
            environment,
            cluster_name_allowed,
            help,
            [field](Config& c, std::string_view v) {
                if (!is_cluster_name(v)) return false;
                c.*field = std::string(v);
                return true;
            },
            [field](const Config& c) { return c.*field; },
            false,
            true};
}

bool read_number(std::string_view v, double& out) {
    const auto r = std::from_chars(v.data(), v.data() + v.size(), out);
    return r.ec == std::errc{} && r.ptr == v.data() + v.size() && std::isfinite(out);
}

Key number(const char* name, const char* environment, double Config::* field, double least, double most,
           const char* allowed, const char* help) {
    return {name,
            environment,
            allowed,
            help,
            [=](Config& c, std::string_view v) {
                double value = 0;
                if (!read_number(v, value) || value < least || value > most) return false;
                c.*field = value;
                return true;
            },
            [field](const Config& c) {
                std::string s = std::to_string(c.*field);
                while (s.ends_with('0')) s.pop_back();
                return s.ends_with('.') ? s + "0" : s;
            }};
}

bool read_count(std::string_view v, uint64_t& out) {
    const auto r = std::from_chars(v.data(), v.data() + v.size(), out);
    return r.ec == std::errc{} && r.ptr == v.data() + v.size();
}

Key count(const char* name, const char* environment, uint64_t Config::* field, uint64_t least, uint64_t most,
          const char* allowed, const char* help, uint64_t multiple = 1) {
    return {name,
            environment,
            allowed,
            help,
            [=](Config& c, std::string_view v) {
                uint64_t value = 0;
                if (!read_count(v, value) || value < least || value > most || value % multiple != 0)
                    return false;
                c.*field = value;
                return true;
            },
            [field](const Config& c) { return std::to_string(c.*field); }};
}

// At least `least`, or 0: none is given.
Key count_or_none(const char* name, const char* environment, uint64_t Config::* field, uint64_t least,
                  uint64_t most, const char* allowed, const char* help) {
    Key key = count(name, environment, field, 0, most, allowed, help);
    key.set = [set = key.set, field, least](Config& c, std::string_view v) {
        Config trial = c;
        if (!set(trial, v) || (trial.*field > 0 && trial.*field < least)) return false;
        c = trial;
        return true;
    };
    return key;
}

std::optional<bool> read_flag(std::string_view v) {
    const std::string s = lower(v);
    if (s == "true" || s == "yes" || s == "on" || s == "1") return true;
    if (s == "false" || s == "no" || s == "off" || s == "0") return false;
    return {};
}

Key flag(const char* name, const char* environment, bool Config::* field, const char* help) {
    return {name,
            environment,
            "true, false, yes, no, on, off, 1 or 0",
            help,
            [field](Config& c, std::string_view v) {
                const auto value = read_flag(v);
                if (value) c.*field = *value;
                return value.has_value();
            },
            [field](const Config& c) { return std::string(c.*field ? "true" : "false"); }};
}

Key choice(const char* name, const char* environment, std::string Config::* field,
           std::vector<std::string> values, const char* allowed, const char* help) {
    return {name,
            environment,
            allowed,
            help,
            [field, values](Config& c, std::string_view v) {
                const std::string s = lower(v);
                for (const auto& one : values) {
                    if (s != one) continue;
                    c.*field = s == "auto" ? "automatic" : s;
                    return true;
                }
                return false;
            },
            [field](const Config& c) { return c.*field; }};
}

// At least 50 ms, or 0: no timeout.
Key seconds_or_none(const char* name, const char* environment, double Config::* field, const char* help) {
    Key key = number(name, environment, field, 0, 86400, "0 (none), or 0.05 to 86400 seconds", help);
    key.set = [set = key.set, field](Config& c, std::string_view v) {
        Config trial = c;
        if (!set(trial, v) || (trial.*field > 0 && trial.*field < 0.05)) return false;
        c = trial;
        return true;
    };
    return key;
}

Key seconds(const char* name, const char* environment, double Config::* field, const char* help) {
    return number(name, environment, field, 0.05, 86400, "0.05 to 86400 seconds", help);
}

Key status_socket(const char* name, const char* environment, const char* help) {
    return {name,
            environment,
            "nothing (status.sock beside admin_socket), off, or an absolute path of up to 107 characters",
            help,
            [](Config& c, std::string_view v) {
                const bool is_off = lower(v) == "off";
                if (!v.empty() && !is_off && (v[0] != '/' || v.size() > 107)) return false;
                c.status_socket = is_off ? "off" : std::string(v);
                return true;
            },
            [](const Config& c) { return c.status_socket; },
            false,
            true};
}

Key session_sockets(const char* name, const char* environment, const char* help) {
    return {name,
            environment,
            session_sockets_allowed,
            help,
            [](Config& c, std::string_view v) {
                auto sockets = session_sockets_from(v);
                if (sockets) c.session_sockets = std::move(*sockets);
                return sockets.has_value();
            },
            [](const Config& c) { return text_of(c.session_sockets); },
            false,
            true};
}

// Whether `text` is a spelling of `value`.
bool is_same(std::string_view text, std::string_view value) {
    if (value == "true" || value == "false") return read_flag(text) == (value == "true");
    double x = 0, y = 0;
    return read_number(value, x) ? read_number(text, y) && x == y : lower(text) == value;
}

// A key without a field: it has no effect, so only the value that describes the daemon as it is is accepted.
Key waiting(const char* name, const char* environment, const char* value, const char* allowed,
            const char* help) {
    return {name,
            environment,
            allowed,
            help,
            [value](Config&, std::string_view v) { return is_same(v, value); },
            [value](const Config&) { return std::string(value); }};
}

using C = Config;

// Sockets, addresses, the state directory, and the cluster.
std::vector<Key> place_keys() {
    return {
        path("socket", "NEXAR_SOCKET", &C::socket, "where applications connect"),
        session_sockets("session_sockets", "NEXAR_SESSION_SOCKETS",
                        "further sockets for applications; their users are others than those of `socket`"),
        path("admin_socket", "NEXAR_ADMIN_SOCKET", &C::admin_socket, "where nexarctl connects"),
        status_socket("status_socket", "NEXAR_STATUS_SOCKET",
                      "where nexarctl shows every user of the host what is his own"),
        text("socket_group", "NEXAR_SOCKET_GROUP", &C::socket_group, "group that may use the admin socket"),
        path("state_dir", "NEXAR_STATE_DIR", &C::state_dir, "identity, certificates, tokens; mode 0700"),
        listen_address(
            "listen", "NEXAR_LISTEN", &C::listen,
            "address for other nodes (UDP); bulk data takes the next port, or ports (UDP and TCP)"),
        text("advertise", "NEXAR_ADVERTISE", &C::advertise,
             "addresses or interface patterns that other nodes dial"),
        choice("log_level", "NEXAR_LOG_LEVEL", &C::log_level, {"debug", "info", "warn", "error"},
               "debug, info, warn or error", "least severe event that is printed"),
        text("join_token", "NEXAR_CLUSTER_TOKEN", &C::join_token,
             "token to join a cluster with, at first start; not again after cluster leave", true),
        flag("init_cluster", "NEXAR_INIT_CLUSTER", &C::init_cluster,
             "make a new cluster at first start; not again after cluster leave"),
        cluster_name("cluster_name", "NEXAR_CLUSTER_NAME", &C::cluster_name,
                     "name of the cluster that init makes"),
        count("certificate_lifetime", "NEXAR_CERTIFICATE_LIFETIME_SECS", &C::certificate_lifetime, 10,
              uint64_t{5} * 365 * 86400, "10 to 157680000 seconds",
              "validity of the certificates that this node signs, if it is an issuer"),
    };
}

// Deadlines.
std::vector<Key> time_keys() {
    return {
        seconds_or_none("collective_timeout", "NEXAR_COLLECTIVE_TIMEOUT_SECS", &C::collective_timeout,
                        "longest a collective may take, unless the call has a timeout"),
        seconds_or_none("barrier_timeout", "NEXAR_BARRIER_TIMEOUT_SECS", &C::barrier_timeout,
                        "the same for a barrier"),
        seconds("rpc_timeout", "NEXAR_RPC_TIMEOUT_SECS", &C::rpc_timeout,
                "agreed by the ranks of a group; there are no remote calls yet"),
        seconds("heartbeat_interval", "NEXAR_HEARTBEAT_INTERVAL_SECS", &C::heartbeat_interval,
                "how often an idle connection sends a heartbeat"),
        seconds("heartbeat_timeout", "NEXAR_HEARTBEAT_TIMEOUT_SECS", &C::heartbeat_timeout,
                "silence after which a node is suspected"),
        number("drain_timeout", "NEXAR_DRAIN_TIMEOUT_SECS", &C::drain_timeout, 0, 3600, "0 to 3600 seconds",
               "how long SIGTERM waits for operations in flight"),
    };
}

// Sizes, threads and limits.
std::vector<Key> size_keys() {
    return {
        count("small_message_bytes", "NEXAR_SMALL_MSG_BYTES", &C::small_message_bytes, 0, 256 * 1024,
              "0 to 262144", "up to this size data travels with control, for latency"),
        count("pipeline_segment_bytes", "NEXAR_PIPELINE_SEGMENT_BYTES", &C::pipeline_segment_bytes, 65536,
              uint64_t{1} << 30, "65536 to 1073741824, a multiple of 64", "size of one segment", 64),
        count_or_none(
            "large_message_bytes", "NEXAR_LARGE_MSG_BYTES", &C::large_message_bytes, 64, uint64_t{1} << 40,
            "0 (by the cost model), or 64 to 1099511627776",
            "operations of so many bytes or more are pipelined: ring, chain or direct, by the shards"),
        count("ring_max_world", "NEXAR_RING_MAX_WORLD", &C::ring_max_world, 0, 65536,
              "0 (by the cost model) to 65536",
              "all_reduce of one segment: a ring on up to so many nodes, and no ring on more"),
        choice("algorithms", "NEXAR_ALGORITHMS", &C::algorithms, {"automatic", "doubling", "halving", "ring"},
               "automatic, doubling, halving or ring",
               "what the cost model chooses from: all, the fewest steps, few steps and few bytes, the fewest "
               "bytes"),
        count("bulk_shards", "NEXAR_BULK_SHARDS", &C::bulk_shards, 0, 64, "0 (by cores) to 64",
              "threads for bulk data"),
        flag("tcp_bulk", "NEXAR_ENABLE_TCP_BULK_SIDECAR", &C::tcp_bulk,
             "bulk data over TCP where both nodes have it on and the network lets it pass; else over QUIC"),
        flag("encrypt_bulk", "NEXAR_ENCRYPT_BULK_TRANSPORT", &C::encrypt_bulk,
             "false: bulk data over TCP is NOT encrypted with nodes that have false as well"),
        count("workers", "NEXAR_WORKERS", &C::workers, 0, 256, "0 (by cores) to 256",
              "threads for local reductions"),
        // The kernel walks at most 2048 robust words when a thread ends; each session has one.
        count("sessions_max", "NEXAR_SESSIONS_MAX", &C::sessions_max, 1, 2000, "1 to 2000",
              "local sessions at once"),
        count("regions_max", "NEXAR_REGIONS_MAX", &C::regions_max, 1, 57344,
              "1 to 57344 (the kernel's vm.max_map_count is above it)", "registered regions at once"),
        count("region_bytes_max", "NEXAR_REGION_BYTES_MAX", &C::region_bytes_max, 1 << 20, uint64_t{1} << 46,
              "1048576 to 70368744177664", "bytes of all regions"),
        count("groups_max", "NEXAR_GROUPS_MAX", &C::groups_max, 1, 1 << 20, "1 to 1048576",
              "local ranks that have a group, or wait for one, summed over all groups"),
        count("scratch_bytes_max", "NEXAR_SCRATCH_BYTES_MAX", &C::scratch_bytes_max, 1 << 20,
              uint64_t{1} << 46, "1048576 to 70368744177664",
              "memory that the daemon's own part of collectives takes"),
        count("requests_max", "NEXAR_REQUESTS_MAX", &C::requests_max, 1 << 12, 1 << 26, "4096 to 67108864",
              "messages in flight, and local ranks of the collectives in flight"),
        count("user_share_percent", "NEXAR_USER_SHARE_PERCENT", &C::user_share_percent, 1, 100, "1 to 100",
              "how much of each of these limits one user may have"),
        count("session_memory_max_bytes", "NEXAR_SESSION_MEMORY_MAX_BYTES", &C::session_memory_max_bytes,
              1 << 20, uint64_t{1} << 46, "1048576 to 70368744177664", "shared memory of one session"),
        flag("memfds_in_place", "NEXAR_MEMFDS_IN_PLACE", &C::memfds_in_place,
             "use memory of nexar_register_memfd without copies; only where local users trust each other"),
        number("yield_microseconds", "NEXAR_YIELD_MICROSECONDS", &C::yield_microseconds, 0, 10000,
               "0 to 10000", "how long the loop polls before it sleeps; four times that while it pays"),
    };
}

// Keys of what is to come: each has the one value that says what the daemon does today.
std::vector<Key> waiting_keys() {
    return {
        waiting("topology", "NEXAR_TOPOLOGY", "full_mesh", "full_mesh (others wait for sparse meshes)",
                "which nodes are connected: all"),
        waiting("compressed_all_reduce_max_bytes", "NEXAR_COMPRESSED_ALLREDUCE_MAX_BYTES", "0",
                "0 (others wait for compression)", "memory of a compressed all_reduce: there is none"),
        waiting("elastic_enabled", "NEXAR_ELASTIC_ENABLED", "false", "false (true waits for elastic groups)",
                "let groups grow and shrink: they do not"),
        waiting("elastic_min_world_size", "NEXAR_ELASTIC_MIN_WORLD_SIZE", "1",
                "1 (others wait for elastic groups)", "an elastic group does not shrink below this"),
        waiting("elastic_max_world_size", "NEXAR_ELASTIC_MAX_WORLD_SIZE", "0",
                "0 (others wait for elastic groups)", "nor grow above this"),
        waiting("elastic_checkpoint_timeout", "NEXAR_ELASTIC_CHECKPOINT_TIMEOUT_SECS", "0",
                "0 (others wait for elastic groups)", "longest wait at an elastic checkpoint"),
        waiting("recovery_policy", "NEXAR_RECOVERY_POLICY", "abort",
                "abort (automatic and manual wait for recovery)",
                "what happens to a group that lost a rank: it ends"),
        waiting("recovery_timeout", "NEXAR_RECOVERY_TIMEOUT_SECS", "0", "0 (others wait for recovery)",
                "longest wait for a vote"),
    };
}

std::vector<Key> make_keys() {
    std::vector<Key> all;
    for (auto part : {place_keys, time_keys, size_keys, waiting_keys}) {
        for (Key& key : part()) all.push_back(std::move(key));
    }
    return all;
}

}  // namespace

bool is_cluster_name(std::string_view name) {
    if (name.empty() || name.size() > cluster_name_bytes_max) return false;
    for (const char c : name)
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) return false;
    return true;
}

const std::vector<Key>& keys() {
    static const std::vector<Key> table = make_keys();
    return table;
}

}  // namespace nexar::config
