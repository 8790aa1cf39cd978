// Channels: turns the connections of one carrier into channels of one mesh. It exchanges preambles, reports
// each opened connection to its owner, which accepts or refuses it, and feeds what arrives to the mesh. Used
// by the control connections and by each shard's bulk connections, with one carrier and one mesh each.
// (docs/protocol/connections.md [P8] [P9] [P10])
//
// What a connection may cost before it is accepted: its flow control windows, for opening_patience, and
// opening_per_node_max times that for one node.
//
// Thread: its owner's. No call is made back into the owner, which collects by the poll functions.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "connections/carrier.hpp"
#include "connections/opening.hpp"
#include "link/mesh.hpp"

namespace nexar::connections {

struct Opened {  // both preambles are known: adopt() or refuse() it
    ConnectionId id;
    NodeId node;  // as its certificate proves
    Preamble theirs;
    std::string remote;
    bool we_dialled = false;
    uint32_t generation = 0;  // as both ends agreed [P8]
    CarrierKind kind = CarrierKind::quic;
    std::optional<Agreed> agreed;  // none: no version is in both ranges, and adopt() is not allowed [V1]
};
struct Closed {
    ConnectionId id;
    NodeId node;                          // zero: a dial of an unknown node that was not answered
    std::optional<link::PeerIndex> peer;  // none: it was not in use
    bool we_dialled = false;
    Duration rtt{};  // zero: not measured
    ClosedBy why;
    Moved moved;  // over TCP only
};

class Channels final : public CarrierEvents {
  public:
    static constexpr uint64_t close_refused = 16;
    static constexpr uint64_t close_garbage = 17;
    static constexpr uint64_t close_goodbye = 18;
    static constexpr uint64_t close_replaced = 19;
    static constexpr uint64_t close_silent = 20;
    static constexpr Duration opening_patience{5'000'000'000};  // from connected to adopt()
    static constexpr size_t opening_per_node_max = 4;           // of those that the node dialled

    Channels(Carrier& carrier, link::Mesh& mesh, const NodeId& self, const Preamble& ours);
    ~Channels();
    Channels(const Channels&) = delete;
    Channels& operator=(const Channels&) = delete;

    // `expected` none: a node that is not known yet (an address from the configuration).
    // `over` null: the carrier of the constructor.
    Result<ConnectionId> dial(Time now, const std::string& address, const std::optional<NodeId>& expected,
                              Carrier* over = nullptr);
    // A dial that is not needed any more, since another connection is in use: if it is answered after all, it
    // is closed before the peer has seen a preamble. One that has been answered is closed if its generation
    // is lower; a higher one goes its way, since the peer keeps that one [P4].
    void abandon(ConnectionId dial);
    // A dial without an answer in time. Connected later, it is closed before the peer has seen a preamble.
    // One whose preamble has gone out the peer may have adopted, and closed what was in use before: it goes
    // its way, for opening_patience, and is used if no higher generation is [P4].
    void give_up(ConnectionId dial);
    // A message before the connection is adopted by its receiver; afterwards it goes through the mesh.
    void greet(ConnectionId id, Bytes message);
    // The peer's mesh channel is this connection from now on; an older one of the same peer is closed. False:
    // the connection has ended, or one with a higher generation was in use and this one is closed [P4].
    bool adopt(ConnectionId id, link::PeerIndex peer);
    void refuse(ConnectionId id, uint64_t code, const std::string& reason);
    void close(link::PeerIndex peer, uint64_t code, const std::string& reason);
    void forget(const NodeId& node);  // both ends agree on a generation anew

    // CarrierEvents
    void on_connected(Time now, const Connected& connected, CarriedConnection& connection) override;
    void on_closed(Time now, ConnectionId id, const ClosedBy& why) override;
    void on_room(ConnectionId id) override;
    void on_received(ConnectionId id) override;

    void on_time(Time now);
    Time wake_at() const { return openings_.empty() ? never : openings_.front().first; }
    std::optional<Opened> poll_opened();
    std::optional<Closed> poll_closed();
    std::optional<std::pair<ConnectionId, std::vector<std::byte>>> poll_greeting();
    struct Received {
        link::PeerIndex peer;
        Duration rtt{};  // zero: not measured
    };
    bool has_events() const {  // for poll_opened(), _closed(), _greeting() and _received()
        return !opened_.empty() || !greetings_.empty() || !closed_.empty() || !received_.empty();
    }
    std::optional<Received> poll_received();  // peers in use of which something authentic arrived
    std::optional<link::PeerIndex>
    poll_written();  // peers to which something was written since the last poll

    std::optional<ConnectionId> conn_of(link::PeerIndex peer) const;
    std::optional<link::PeerIndex> peer_of(ConnectionId id) const;  // none: not in use
    // Of the connection in use; zeros: none is.
    Progress progress(link::PeerIndex peer, Class cls) const;
    std::optional<Moved> moved_over_tcp(link::PeerIndex peer) const;  // none: none is in use, or it is QUIC
    std::string remote_of(ConnectionId id) const;
    // Why an opened connection without a common version is refused: both ranges, and what helps.
    std::string no_common_version(const Opened& opened) const;
    void check_invariants() const;

  private:
    struct Conn;
    Conn* find(ConnectionId id) const;
    uint32_t next_generation(const NodeId& node, bool we_dial) const;
    void received(Conn& c);
    void opened(Conn& c);
    void feed(Conn& c);
    void identified(Conn& c);

    Carrier* carrier_;
    link::Mesh* mesh_;
    NodeId self_;
    Preamble ours_;
    std::map<ConnectionId, std::unique_ptr<Conn>> conns_;
    std::map<link::PeerIndex, Conn*> peers_;  // in use
    std::map<NodeId, uint32_t> generations_;  // of the last connection in use of each node; they only grow
    std::map<NodeId, uint32_t> proposed_;     // above that: of our last dial of each node
    std::map<NodeId, size_t> unidentified_;   // that the node dialled and that are not in use yet
    // When the patience with each connection ends, in order. May hold what is in use or has ended.
    std::deque<std::pair<Time, ConnectionId>> openings_;
    std::deque<std::pair<ConnectionId, std::vector<std::byte>>> greetings_;
    std::deque<Opened> opened_;
    std::deque<Closed> closed_;
    std::deque<Received> received_;
    std::deque<link::PeerIndex> written_;
};

}  // namespace nexar::connections
