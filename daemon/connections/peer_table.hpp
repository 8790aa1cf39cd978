// Peer table: who is in the cluster, which control connection leads to whom, whom to dial. It decides about
// connections and incarnations of nodes; it never judges silence (failure_detector) or groups (arbiter).
// Rules and limits: docs/protocol/connections.md [P1]-[P7]. Sans-io. One thread.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "connections/carrier.hpp"
#include "connections/dial_schedule.hpp"
#include "connections/roster.hpp"
#include "core/features.hpp"
#include "core/ids.hpp"
#include "core/log.hpp"
#include "core/random.hpp"
#include "core/time.hpp"
#include "wire/messages.hpp"

namespace nexar::connections {

struct PeerTableConfig {
    wire::NodeRecord self;  // NodeId, hostname, advertised addresses
    Incarnation incarnation;
    std::array<uint8_t, 16> cluster{};
    Capabilities capabilities;
    uint16_t bulk_port = 0;
    uint16_t bulk_shards = 1;
    std::vector<std::string> seeds;  // addresses from the configuration, of unknown nodes
    Duration hello_timeout{3'000'000'000};
    Duration clone_window{300'000'000};
    Duration young{3'000'000'000};  // a connection that did not last so long is no reason for fast redials
    DialConfig dial;
    RosterConfig roster;
    size_t incarnations_max = 65536;  // incarnations met since our start; of one node a quarter of it
    size_t unidentified_max = 256;    // connections without an accepted HELLO
};

struct PeerInfo {
    PeerIndex peer;
    wire::NodeRecord record;
    Incarnation incarnation;
    uint16_t bulk_port = 0;
    uint16_t bulk_shards = 1;
    Agreed agreed;
};

// A connection whose preambles are exchanged.
struct NewConnection {
    ConnectionId id;
    NodeId certified;  // as its certificate proves
    bool outgoing = false;
    std::string remote;       // where it leads to: of an outgoing one exactly the address of its Dial
    uint32_t generation = 0;  // as both ends agreed [P8]
    Incarnation incarnation;  // as the peer's preamble says
    Agreed agreed;            // by both preambles
};

// Output.
struct Dial {  // answered by on_connected(outgoing) or on_dial_failed with the same address and expectation
    std::string address;
    NodeId expected;  // zero: any node (a seed)
};
struct CloseConnection {
    ConnectionId connection;
    std::string reason;
};
struct SendOn {
    ConnectionId connection;
    wire::Message message;
};
struct PeerUp {  // a connection of this incarnation is in use; a later one replaces it, with a higher
                 // generation
    PeerInfo info;
    ConnectionId connection;
    uint32_t generation = 0;
};
struct PeerDown {
    PeerIndex peer;
    NodeId node;
    Incarnation incarnation;
    std::string why;
    bool proof =
        false;  // true: this incarnation is over, its index is retired. false: suspicion, it may come back
};
struct RedialFailed {  // of an incarnation whose connection was lost
    PeerIndex peer;
};
struct NodeForgotten {  // it is in the roster no more [P7]; of its incarnation there was a PeerDown before,
                        // with proof
    NodeId node;
};
struct Note {  // for the log
    Level level;
    std::string_view event;
    std::vector<std::pair<std::string, std::string>> fields;
};
using TableAction =
    std::variant<Dial, CloseConnection, SendOn, PeerUp, PeerDown, RedialFailed, NodeForgotten, Note>;

class PeerTable {
  public:
    PeerTable(const PeerTableConfig& config, Random random, Time now);

    // Input.
    void on_connected(const NewConnection& connection, Time now);
    void on_dial_failed(const std::string& address, const NodeId& expected, const std::string& why, Time now);
    // `rtt`: as it was measured, for the pace of redials; zero: it was not.
    // The peer closed it with the code of a goodbye: on_closed() follows. A goodbye that was still in its
    // queue would not have come.
    void on_closed_with_goodbye(ConnectionId connection, const std::string& reason, Time now);
    void on_closed(ConnectionId connection, const std::string& why, Time now, Duration rtt = {});
    // Hello, RosterUpdate, Goodbye, and the ProbeReply to our own question [P3]. False: not for the table; it
    // may be used if peer_of(connection) names a peer.
    bool on_message(ConnectionId connection, const wire::Message& message, Time now);
    void on_time(Time now);
    // The polite end of this node: a Goodbye on every connection, no more dials.
    void say_goodbye(const std::string& reason);

    // Output.
    std::optional<TableAction> poll_action();
    Time wake_at() const;

    // Looking up.
    std::optional<PeerIndex> peer_of(ConnectionId connection) const;  // only the connection in use
    std::optional<NodeId> node_of(ConnectionId connection) const;     // of a connection in use
    std::optional<PeerIndex> index_of(
        const NodeId& node) const;  // of the present incarnation, connected or not
    std::optional<ConnectionId> connection_of(const NodeId& node) const;
    const PeerInfo* info_of(const NodeId& node) const;
    std::vector<NodeId> connected() const;
    std::string hostname_of(const NodeId& node) const;                          // "": not known
    std::vector<wire::NodeRecord> roster() const { return roster_.records(); }  // without self
    std::vector<wire::NodeRecord> present() const {
        return roster_.present();
    }  // of these, without the departed
    bool knows_below(const NodeId& node) const { return roster_.knows_below(node); }
    std::optional<Roster::Place> place_of(const NodeId& node) const { return roster_.place_of(node); }
    uint64_t nodes_walked() const { return nodes_walked_; }  // entries of the roster that turns have handled
    void check_invariants() const;

  private:
    struct Connection {
        NewConnection opened;
        std::optional<wire::Hello> hello;
        bool accepted = false;  // with a hello and not accepted: held back [P3]
    };
    struct Node {          // of everybody in the roster
        std::string seed;  // the seed's address that led to it; or empty
        std::optional<PeerInfo> peer;
        std::optional<ConnectionId> connection;  // of that incarnation, in use; none: it was lost
        Time connected_since;
        uint32_t generation = 0;  // of the last connection in use
        size_t incarnations = 0;  // how many there were
    };
    struct CloneQuestion {
        ConnectionId newcomer;
        ConnectionId old;
        uint64_t nonce = 0;
        Time deadline;
    };

    void on_hello(ConnectionId id, Connection& connection, const wire::Hello& hello, Time now);
    std::string fault_of(const Connection& connection, const wire::Hello& hello) const;
    std::string fault_of_incarnation(const Connection& connection) const;
    void take_incarnation(ConnectionId id, Time now);
    void use(ConnectionId id, Node& node, Time now);
    void ask_old_incarnation(ConnectionId newcomer, const Node& node, Time now);
    void end_incarnation(Node& node, const std::string& why);
    bool erase(ConnectionId id);
    void drop(ConnectionId id, const std::string& reason);
    void refuse(ConnectionId id, Level level, std::string_view event, const std::string& reason, Time now);
    void answer_question(ConnectionId old, Time now);
    void on_goodbye(ConnectionId id, const wire::Goodbye& goodbye, Time now);
    bool on_probe_reply(ConnectionId id, const wire::ProbeReply& reply, Time now);
    void on_closed_by_fault(ConnectionId id, const std::string& fault, Time now);
    void admit_newcomer(CloneQuestion question, Time now);
    void learn(const wire::NodeRecord& record, ConnectionId from, Time now);
    void drop_forgotten(Time now);
    void send_hello(ConnectionId id);
    void expire(Time now);
    void dial_due(Time now);
    void target_failed(const Target& target, Time now);
    std::vector<std::string> addresses_of(const NodeId& node) const;  // those that can be dialled
    bool is_own(const std::string& address) const;
    bool was_here(const wire::NodeRecord& record) const;

    PeerTableConfig config_;
    DialSchedule schedule_;
    Roster roster_;
    std::map<NodeId, Node> nodes_;  // the same as in the roster
    std::set<std::string> seeds_;   // that have not led to a node yet
    std::map<ConnectionId, Connection> connections_;
    size_t unidentified_ = 0;  // of these, not accepted
    std::deque<std::pair<Time, ConnectionId>>
        hellos_due_;  // in order; may hold connections that have sent it
    std::vector<CloneQuestion> questions_;
    std::deque<TableAction> actions_;
    uint32_t next_peer_ = 0;
    uint64_t next_nonce_;
    bool leaving_ = false;
    uint64_t nodes_walked_ = 0;
};

}  // namespace nexar::connections
