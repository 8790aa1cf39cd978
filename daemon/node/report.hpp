// The JSON of nexarctl's answers: pure functions from plain copies of the daemon's state.
// docs/protocol/control.md documents keys and units. Also the checks of the arguments of nexarctl's commands.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "collectives/layout.hpp"
#include "collectives/plan.hpp"
#include "collectives/tuning.hpp"
#include "config/config.hpp"
#include "core/features.hpp"
#include "core/ids.hpp"
#include "core/result.hpp"
#include "core/secret.hpp"
#include "core/tenant.hpp"
#include "core/time.hpp"
#include "engine/snapshot.hpp"
#include "link/traffic.hpp"
#include "wire/messages.hpp"

namespace nexar::node::report {

// A node without an entry is shown by its id only.
using HostNames = std::map<NodeId, std::string>;

struct Bulk {  // a connection for bulk data, of one shard
    std::string address;
    bool up = false;
    std::optional<bool> answers{};  // the doctor asks
    std::string carrier{};          // "quic", "tcp"; empty: not up
    bool encrypted = true;
    std::string carrier_why{};  // of QUIC: why not TCP; of none: why
    bool tcp = false;           // both ends carry bulk data over TCP
};

struct Peer {
    wire::NodeRecord record;
    Incarnation incarnation;
    std::string state;    // "up", "suspected", "down", "lost", "left", "connecting"
    std::string address;  // the one in use, or the last one tried
    std::optional<Duration> rtt;
    std::optional<Duration> received_ago;
    std::string why;                               // when not up: the last reason
    Agreed agreed{};                               // version 0: it was never connected
    std::optional<Duration> forgotten_in{};        // of one that is no member now, and does not come back
    std::optional<link::TrafficCounts> traffic{};  // none: no incarnation of it is a peer now
    std::vector<Bulk> bulk{};                      // by shard
};

struct Address {
    std::string address;
    bool chosen = false;
    std::string why;
};

struct Certificate {  // this node's leaf
    WallSeconds now = 0;
    WallSeconds expires = 0;
    WallSeconds renewal_due = 0;
    unsigned failures = 0;  // failed renewals since the renewal was due
    std::string why;        // the reason of the last failure
};

// What tenants have in use: a copy, which is printed on another thread.
struct UserUse {
    TenantName name;
    std::array<uint64_t, resource_count> used{};
    uint64_t log_lines_left_out = 0;
};
struct Use {
    TenantLimits limits;
    std::array<uint64_t, resource_count> used{};  // of all together
    std::vector<UserUse> users;                   // by name, at most users_shown_max
};
// Of those without sessions the ones who have something, or had lines left out.
Use use_of(const Tenants& tenants);
Use use_of(const Tenants& tenants, const TenantName& only);  // with one row, also if he has nothing

struct Status {
    NodeId node;
    std::string host;
    Incarnation incarnation;
    std::string cluster;  // hex; empty: in no cluster yet
    std::string cluster_name;
    std::string version;
    std::string state;  // "running", "no cluster", "joining", "draining"
    // Why the configuration does not bring it into a cluster; empty: nothing to say.
    std::string why_no_cluster;
    uint32_t pid = 0;
    Duration uptime{0};
    std::optional<Certificate> certificate;  // none: in no cluster yet
    std::string listen;
    std::vector<Address> addresses;
    std::vector<Peer> peers;
    size_t sessions = 0;
    uint64_t session_memory_bytes = 0;
    size_t groups = 0, ops_in_flight = 0;
    link::TrafficCounts traffic{};  // with all peers since the start
    size_t shards = 0, workers = 0;
    bool bulk_may_be_plain = false;  // encrypt_bulk is false, and TCP is there
    std::string holes_unguarded;     // Server::holes_unguarded()
    std::optional<Use> use{};        // none yet
};
std::string status(const Status& status);

// `group`: a name or an id; empty: all. not_found when there is none of that name.
Result<std::string> groups(const engine::Snapshot& snapshot, const HostNames& hosts,
                           const std::string& group = {});
Result<std::string> ops(const engine::Snapshot& snapshot, const HostNames& hosts,
                        const std::string& group = {});

// The input of plan() for a group, for nexarctl: the layout and the thresholds.
Result<std::string> plan(const engine::Snapshot& snapshot, const HostNames& hosts, const std::string& group);

// Of groups that this node creates.
struct Tuned {
    collectives::Tuning model, before;
    bool is_tuned = false, was_tuned = false;  // not: the model is the built-in one
};
std::string tuned(const Tuned& tuned);

struct Doctor {
    uint32_t pid = 0;                   // nexarctl reads this process's limits
    std::string state, why_no_cluster;  // as in Status
    std::optional<Certificate> certificate;
    std::string listen;
    std::vector<Address> addresses;
    std::vector<Peer> peers;
    std::optional<bool> gso, gro;
    uint64_t send_buffer_bytes = 0,
             receive_buffer_bytes = 0;  // of the UDP sockets, as the kernel granted them
    std::string state_dir, socket, admin_socket;
    std::string holes_unguarded;  // as in Status
};
std::string doctor(const Doctor& doctor);

struct Cluster {
    std::string name;
    std::string cluster;  // hex; empty: in no cluster yet
    std::string root_key_hash;
    NodeId self;
    bool issuer = false;
    WallSeconds certificate_expires = 0;
    std::vector<wire::NodeRecord> members;  // with self
};
std::string cluster(const Cluster& cluster);
std::string left(const NodeId& node, const std::string& cluster, const std::string& set_aside);

struct Token {
    std::string id;  // hex
    WallSeconds expires = 0;
    uint32_t uses_left = 0;
};
std::string tokens(const std::vector<Token>& tokens);
std::string token_created(const Token& token, const Secret& secret);

std::string config(const config::Config& config);

// ---- Arguments. invalid_argument names what is wrong and what is allowed; unknown keys are refused. ----

// Limits of the lists in one answer; the answer has the full counts.
constexpr size_t ranks_shown_max = 4096;
constexpr size_t groups_shown_max = 1024;
constexpr size_t ops_shown_max = 1024;
constexpr size_t missing_shown_max = 64;
constexpr size_t users_shown_max = 1024;
constexpr size_t sessions_shown_max = 1024;

struct TokenWish {
    uint32_t uses = 1;
    WallSeconds lifetime = 3600;
};
constexpr uint32_t token_uses_max = 10000;
constexpr WallSeconds token_lifetime_max = 30 * 86400;
constexpr size_t text_bytes_max = 4096;  // of an argument
struct Trial {
    std::string group;
    uint64_t doubling_bytes_max = 0;
};
struct TuneWish {
    std::optional<collectives::Tuning> model;  // none: a question, unless another one is set
    bool forget = false;
    std::optional<Trial> trial;
};
Result<TuneWish> tune_wish(const std::string& arguments);
Result<TokenWish> token_wish(const std::string& arguments);

// The text argument of a command ("group", "id", "name", "token"). Empty when it is missing and not required.
Result<std::string> text_argument(const std::string& arguments, const std::string& key, bool required);
Result<bool> flag_argument(const std::string& arguments, const std::string& key);  // absent: false
Result<void> no_arguments(const std::string& arguments);

}  // namespace nexar::node::report
