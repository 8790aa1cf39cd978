// Control connections: this node's connections to all other daemons, as one machine: the peer table, which
// decides whom to dial and whom to admit, and the channels that carry out what it decides. Sans-io: it runs
// over any carrier, on the control loop and in the simulator. (docs/protocol/connections.md)
//
// How it is driven: the carrier reports to events(); messages of peers in use go to on_message() first; then
// on_time(), once per turn and at wake_at(), and poll_event() until there is none.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>

#include "connections/channels.hpp"
#include "connections/peer_table.hpp"
#include "core/queue.hpp"
#include "core/random.hpp"

namespace nexar::connections {

// What happened, for the owner to pass on.
struct PeerIsUp {
    PeerInfo info;
    std::string remote;  // where its connection leads to
};
struct PeerIsDown {
    PeerIndex peer;
    std::string why;
    bool proof = false;
};
struct PeerReceived {
    PeerIndex peer;
    Duration rtt{};  // zero: not measured
};
using ControlEvent = std::variant<PeerIsUp, PeerIsDown, PeerReceived, RedialFailed, Note>;

class ControlConnections {
  public:
    ControlConnections(const PeerTableConfig& config, Carrier& carrier, link::Mesh& mesh, uint64_t seed,
                       Time now);

    CarrierEvents& events() { return channels_; }
    // Of a peer in use. False: it is not about connections.
    bool on_message(PeerIndex from, const wire::Message& message, Time now);
    void on_garbage(PeerIndex from, const std::string& what);  // what it sent breaks the protocol
    void on_time(Time now);
    // Between two calls of on_time(): carries out what the channels and the table have decided since.
    void settle(Time now);

    // To a node in use; to another it is dropped.
    void send(const NodeId& to, const wire::Message& message);
    // Every connection in use is replaced by a new one, at some moment before now + within: what they show at
    // their handshake has changed.
    void replace_all(Time now, Duration within);
    void say_goodbye(const std::string& reason);  // then on_time() sends it

    std::optional<ControlEvent> poll_event();
    // Peers to which something was written since the last poll: they need no heartbeat [F2].
    std::optional<PeerIndex> poll_sent() { return channels_.poll_written(); }
    Time wake_at() const;

    const PeerTable& table() const { return table_; }
    std::optional<ConnectionId> conn_of(PeerIndex peer) const { return channels_.conn_of(peer); }
    std::string dial_failure(const NodeId& node) const;  // empty: none since it was connected
    void check_invariants() const;

  private:
    void read_channels(Time now);
    void on_opened(const Opened& opened, Time now);
    void refuse_version(const Opened& opened);
    void on_closed(const Closed& closed, Time now);
    void act(Time now);
    void act(Time now, TableAction action);
    void dial(Time now, const Dial& order);
    void dial_failed(const Dial& order, const std::string& why, Time now);
    void send_on(ConnectionId id, const wire::Message& message);
    void replace_due(Time now);

    link::Mesh* mesh_;
    Channels channels_;
    PeerTable table_;
    Random random_;
    std::map<ConnectionId, Dial> dials_;                    // not answered yet
    std::map<NodeId, std::string> dial_failures_;           // of nodes in the roster; none of those in use
    std::set<std::pair<Time, ConnectionId>> replacements_;  // when each is replaced; may have ended
    std::set<PeerIndex> reported_;                          // as up, and not as down with proof since
    Queue<ControlEvent> events_;
};

}  // namespace nexar::connections
