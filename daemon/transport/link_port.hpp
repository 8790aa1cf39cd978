// LinkPort: turns the QUIC connections of one endpoint into channels of one mesh. It exchanges preambles, asks its
// owner whom a new connection belongs to, attaches it, and feeds what arrives to the mesh. Used twice: by the control
// loop and by each bulk shard, with one endpoint and one mesh each.
//
// Thread: its owner's. No call is made back into the owner; it collects openings and closings with the poll functions.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "link/mesh.hpp"
#include "quic/endpoint.hpp"
#include "transport/opening.hpp"

namespace nexar::transport {

struct Opened {  // both preambles are known: adopt() or refuse() it
    quic::ConnId conn;
    NodeId node;  // as its certificate proves
    Preamble theirs;
    quic::Address remote;
    bool we_dialled = false;
};
struct Closed {
    quic::ConnId conn;
    NodeId node;                           // zero: the handshake never got that far
    std::optional<link::PeerIndex> peer;   // none: never adopted
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

    LinkPort(quic::Endpoint& endpoint, link::Mesh& mesh, Preamble ours);
    ~LinkPort();
    LinkPort(const LinkPort&) = delete;
    LinkPort& operator=(const LinkPort&) = delete;

    Result<quic::ConnId> dial(Time now, const quic::Address& local, const quic::Address& remote, const NodeId& expected,
                              uint32_t generation);
    // The peer's mesh channel is this connection from now on; an older one of the same peer is closed. False: the
    // generation is not above the last one (a late dial, or a peer that miscounts); this connection is closed.
    bool adopt(quic::ConnId conn, link::PeerIndex peer);
    // What a dial to this peer must say. When both ends dial at once, the lower NodeId's number is the higher one.
    uint32_t next_generation(link::PeerIndex peer, bool we_are_lower) const;
    void refuse(quic::ConnId conn, uint64_t code, const std::string& reason);
    void close(link::PeerIndex peer, uint64_t code, const std::string& reason);

    // Every event of the endpoint about a member connection (ALPN nexar/1) goes here.
    void on_event(const quic::Event& event);
    std::optional<Opened> poll_opened();
    std::optional<Closed> poll_closed();
    std::optional<link::PeerIndex> poll_heard();  // adopted peers from whom something authentic came
    std::optional<quic::ConnectionStats> stats(link::PeerIndex peer) const;
    std::optional<quic::Address> remote_of(link::PeerIndex peer) const;

private:
    struct Conn;
    Conn* find(quic::ConnId id);
    void opened(Conn& c);

    quic::Endpoint* endpoint_;
    link::Mesh* mesh_;
    Preamble ours_;
    std::map<quic::ConnId, std::unique_ptr<Conn>> conns_;
    std::map<link::PeerIndex, Conn*> peers_;
    std::map<link::PeerIndex, uint32_t> last_generation_;  // one entry per life of a node that we ever met
    std::deque<Opened> opened_;
    std::deque<Closed> closed_;
    std::deque<link::PeerIndex> heard_;
};

}  // namespace nexar::transport
