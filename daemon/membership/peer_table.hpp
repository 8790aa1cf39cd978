// Peer table: who is in the cluster, which connection leads to whom, whom to dial. It decides about
// connections and lives of nodes; it never judges silence (failure_detector) or groups (arbiter). Sans-io.
// One thread.
//
// The rules, cited as [P..]:
//   [P1] A connection counts once its HELLO is accepted: version N or N-1, the NodeId of its certificate, our
//        cluster. Without a HELLO in hello_timeout it is closed.
//   [P2] A PeerIndex is one life (NodeId, incarnation) and is never used again. A later connection of the
//   same life
//        keeps the index, with a higher generation. At most lives_max lives, a quarter of them of one node.
//   [P3] Another life of a connected node is held back while the old one is asked over its own connection. It
//        answers: the state directory was cloned, the newcomer is refused, naming both addresses. It does not
//        answer in clone_window, or its connection closes: a higher incarnation proves the old life dead. A
//        lower counter is refused as long as we remember a higher one: an old copy of a state directory.
//   [P4] Simultaneous dials: of two young connections of one life opened by different ends the one opened by
//   the
//        lower NodeId stays. Otherwise the newer stays: its opener knows that the older is dead.
//   [P5] Every known node without a connection is dialled, address by address, with exponential backoff and
//   jitter;
//        after a loss the first fast_redials go out quickly. At most dials_max dials at a time, a quarter of
//        it only for fast redials; the others take turns, the longest due first.
//   [P6] The roster is gossip: whoever learns a node it did not know passes it on once. What a node says
//   about itself
//        wins. At most nodes_max nodes.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "core/ids.hpp"
#include "core/log.hpp"
#include "core/random.hpp"
#include "core/time.hpp"
#include "wire/messages.hpp"

namespace nexar::membership {

// A connection, as the transport numbers it; never reused.
using ConnectionId = Id<struct ConnectionTag, uint64_t>;

struct PeerTableConfig {
    wire::NodeRecord self;  // NodeId, hostname, advertised addresses
    Incarnation incarnation;
    std::array<uint8_t, 16> cluster{};
    uint32_t protocol = wire::protocol_version;  // highest spoken; one less is accepted,
    uint32_t protocol_min = 2;                   // but not below this: 1 was another
    uint16_t bulk_port = 0;
    uint16_t bulk_shards = 1;
    std::vector<std::string> seeds;  // addresses from the configuration, whoever lives there
    Duration hello_timeout{3'000'000'000};
    Duration dial_timeout{3'000'000'000};  // the transport has said neither yes nor no
    Duration clone_window{300'000'000};
    Duration young{3'000'000'000};  // [P4]
    Duration backoff_min{50'000'000};
    Duration backoff_max{2'000'000'000};
    Duration fast_redial{20'000'000};
    unsigned fast_redials = 3;
    size_t nodes_max = 4096;
    size_t lives_max = 65536;  // met since our start; of one node a quarter of it
    size_t dials_max = 16;
    size_t strangers_max = 256;  // connections without an accepted HELLO
};

struct PeerInfo {
    PeerIndex peer;
    wire::NodeRecord record;
    Incarnation incarnation;
    uint16_t bulk_port = 0;
    uint16_t bulk_shards = 1;
    uint32_t protocol = wire::protocol_version;  // agreed
};

// What the table wants or tells.
struct Dial {  // answered by on_connected(outgoing) or on_dial_failed with the same address and expectation
    std::string address;
    NodeId expected;  // zero: whoever answers (a seed)
};
struct CloseConnection {
    ConnectionId connection;
    std::string reason;
};
struct SendOn {
    ConnectionId connection;
    wire::Message message;
};
struct PeerUp {  // a connection of this life stands; a later one replaces it, with a higher generation
    PeerInfo info;
    ConnectionId connection;
    uint32_t generation = 1;
};
struct PeerDown {
    PeerIndex peer;
    NodeId node;
    Incarnation incarnation;
    std::string why;
    bool proof = false;  // true: this life is over, its index is retired. false: suspicion, it may come back
};
struct RedialFailed {  // of a life whose connection was lost
    PeerIndex peer;
};
struct Note {  // for the log
    Level level;
    std::string_view event;
    std::vector<std::pair<std::string, std::string>> fields;
};
using TableAction = std::variant<Dial, CloseConnection, SendOn, PeerUp, PeerDown, RedialFailed, Note>;

class PeerTable {
  public:
    PeerTable(const PeerTableConfig& config, Random random, Time now);

    // Input.
    // `remote` is where it leads to: for an outgoing one exactly the address of the Dial.
    void on_connected(ConnectionId connection, const NodeId& certified, bool outgoing,
                      const std::string& remote, Time now);
    void on_dial_failed(const std::string& address, const NodeId& expected, const std::string& why, Time now);
    void on_closed(ConnectionId connection, const std::string& why, Time now);
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
    std::optional<PeerIndex> index_of(const NodeId& node) const;      // of the present life, connected or not
    std::optional<ConnectionId> connection_of(const NodeId& node) const;
    const PeerInfo* info_of(const NodeId& node) const;
    std::vector<NodeId> connected() const;
    std::string hostname_of(const NodeId& node) const;  // "": not known
    std::vector<wire::NodeRecord> roster() const;       // everybody known, without self
    uint64_t nodes_walked() const {
        return nodes_walked_;
    }  // entries of the roster that turns have looked at

  private:
    struct Connection {
        NodeId certified;
        bool outgoing = false;
        std::string remote;
        Time since;
        std::optional<wire::Hello> hello;
        bool accepted = false;  // with a hello and not accepted: held back [P3]
    };
    struct Dialling {
        size_t address = 0;     // which one is next
        unsigned rounds = 0;    // all addresses failed so often
        unsigned fast = 0;      // fast redials left
        Time next;              // when to dial
        Time gives_up = never;  // a dial is in flight until then
    };
    struct Node {
        wire::NodeRecord record;
        bool own_words = false;  // the record came from the node itself
        std::string seed;        // where we found it, if that was by a seed's address
        Dialling dialling;
        std::optional<PeerInfo> life;
        std::optional<ConnectionId> connection;
        Time connected_since;
        uint32_t generation = 0;
        bool lost = false;  // this life's connection closed, and no other stands
        uint64_t highest_counter = 0;
        size_t lives = 0;  // how many there were
    };
    struct CloneQuestion {
        ConnectionId newcomer;
        ConnectionId old;
        uint64_t nonce = 0;
        Time deadline;
    };

    void on_hello(ConnectionId id, Connection& connection, const wire::Hello& hello, Time now);
    std::string fault_of(const Connection& connection, const wire::Hello& hello) const;
    void take_life(ConnectionId id, Time now);
    bool keeps_older(const Connection& older, const Connection& newer, const Node& node, Time now) const;
    void ask_old_life(ConnectionId newcomer, const Node& node, Time now);
    void end_life(Node& node, const std::string& why);
    void drop(ConnectionId id, const std::string& reason);
    void refuse(ConnectionId id, Level level, std::string_view event, const std::string& reason);
    void on_goodbye(ConnectionId id, const wire::Goodbye& goodbye, Time now);
    bool on_probe_reply(ConnectionId id, const wire::ProbeReply& reply, Time now);
    void on_closed_by_fault(ConnectionId id, const std::string& fault, Time now);
    void admit_newcomer(CloneQuestion question, Time now);
    void learn(const wire::NodeRecord& record, ConnectionId from, bool own_words, Time now);
    void send_hello(ConnectionId id);
    void expire(Time now);
    void dial_due(Time now);
    void dial_failed(Dialling& dialling, size_t addresses, Time now);
    void node_dial_failed(Node& node, Time now);
    Duration jittered(Duration base);
    size_t dials_in_flight() const;
    size_t dials_max_for(const Dialling& dialling) const;
    size_t strangers() const;

    PeerTableConfig config_;
    Random random_;
    std::map<NodeId, Node> nodes_;
    std::map<std::string, Dialling> seeds_;
    std::map<ConnectionId, Connection> connections_;
    std::vector<CloneQuestion> questions_;
    std::deque<TableAction> actions_;
    uint32_t next_peer_ = 0;
    uint64_t next_nonce_;
    bool leaving_ = false;
    mutable uint64_t nodes_walked_ = 0;
};

}  // namespace nexar::membership
