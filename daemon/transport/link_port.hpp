// LinkPort: turns the QUIC connections of one endpoint into channels of one mesh. It exchanges preambles,
// asks its owner whom a new connection belongs to, attaches it, and feeds what arrives to the mesh. Used
// twice: by the control loop and by each bulk shard, with one endpoint and one mesh each.
//
// What a connection may cost before it is adopted: its flow control windows, for opening_patience, and
// opening_per_node_max times that for one node.
//
// Thread: its owner's. No call is made back into the owner; it collects openings and closings with the poll
// functions.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "connections/opening.hpp"
#include "link/mesh.hpp"
#include "quic/endpoint.hpp"

namespace nexar::transport {

struct Opened {  // both preambles are known: adopt() or refuse() it
    quic::ConnId conn;
    NodeId node;  // as its certificate proves
    connections::Preamble theirs;
    quic::Address remote;
    bool we_dialled = false;
    uint32_t generation = 0;  // as both ends agreed
};
struct Closed {
    quic::ConnId conn;
    NodeId node;                          // zero: the handshake never got that far
    std::optional<link::PeerIndex> peer;  // none: never adopted
    quic::Address remote;
    bool we_dialled = false;
    quic::CloseInfo why;
};

class LinkPort {
  public:
    static constexpr uint64_t close_refused = 16;
    static constexpr uint64_t close_garbage = 17;
    static constexpr uint64_t close_goodbye = 18;
    static constexpr uint64_t close_replaced = 19;
    static constexpr Duration opening_patience{5'000'000'000};  // from the handshake to adopt()
    static constexpr size_t opening_per_node_max = 4;           // of those that the node dialled

    LinkPort(quic::Endpoint& endpoint, link::Mesh& mesh, const NodeId& self, connections::Preamble ours);
    ~LinkPort();
    LinkPort(const LinkPort&) = delete;
    LinkPort& operator=(const LinkPort&) = delete;

    // `expected` none: whoever answers (an address from the configuration).
    Result<quic::ConnId> dial(Time now, const quic::Address& local, const quic::Address& remote,
                              const std::optional<NodeId>& expected);
    // A message before the connection is adopted by its receiver; afterwards it goes through the mesh.
    void greet(quic::ConnId conn, Bytes message);
    // The peer's mesh channel is this connection from now on; an older one of the same peer is closed. False:
    // the connection has ended, or a newer one of this life is in use and this one is closed.
    bool adopt(quic::ConnId conn, link::PeerIndex peer);
    void refuse(quic::ConnId conn, uint64_t code, const std::string& reason);
    void close(link::PeerIndex peer, uint64_t code, const std::string& reason);

    // Every event of the endpoint about a member connection (ALPN nexar/1) goes here.
    void on_event(Time now, const quic::Event& event);
    void on_time(Time now);
    Time wake_at() const { return openings_.empty() ? never : openings_.front().first; }
    std::optional<Opened> poll_opened();
    std::optional<Closed> poll_closed();
    std::optional<std::pair<quic::ConnId, std::vector<std::byte>>> poll_greeting();
    std::optional<link::PeerIndex> poll_heard();  // adopted peers from whom something authentic came
    std::optional<quic::ConnectionStats> stats(link::PeerIndex peer) const;
    std::optional<quic::Address> remote_of(link::PeerIndex peer) const;
    std::optional<quic::ConnId> conn_of(link::PeerIndex peer) const;
    std::optional<link::PeerIndex> peer_of(quic::ConnId conn) const;  // none: not adopted
    quic::Address address_of(quic::ConnId conn) const;

  private:
    struct Conn;
    Conn* find(quic::ConnId id);
    uint32_t next_generation(const NodeId& node, bool we_dial) const;
    void received(Conn& c);
    void opened(Conn& c);
    void feed(Conn& c);
    void connected(Time now, const quic::Event& event);
    size_t openings_of(const NodeId& node);

    quic::Endpoint* endpoint_;
    link::Mesh* mesh_;
    connections::Preamble ours_;
    std::map<quic::ConnId, std::unique_ptr<Conn>> conns_;
    std::map<link::PeerIndex, Conn*> peers_;
    std::map<NodeId, uint32_t> generations_;  // the last one of each node that we ever met; they only grow
    // Connections whose handshake is done, with the end of their patience, in order. The adopted ones are
    // dropped when they come to the front.
    std::deque<std::pair<Time, quic::ConnId>> openings_;
    NodeId self_;
    std::deque<std::pair<quic::ConnId, std::vector<std::byte>>> greetings_;
    std::deque<Opened> opened_;
    std::deque<Closed> closed_;
    std::deque<link::PeerIndex> heard_;
};

}  // namespace nexar::transport
