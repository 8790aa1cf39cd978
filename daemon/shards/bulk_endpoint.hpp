// BulkEndpoint: one place that carries bulk data, with its own UDP and TCP sockets, TLS objects, connections
// and link::Mesh. Each bulk shard's thread drives one; the control loop drives one more, for operations that
// are too long for its control connections' packets and too short for a hand-over.
//
// Thread: open() belongs to the control loop, all else to the thread that drives it.
#pragma once

#include <memory>
#include <optional>
#include <variant>

#include "connections/bulk.hpp"
#include "link/mesh.hpp"
#include "transport/quic_carrier.hpp"
#include "transport/quic_port.hpp"
#include "transport/tcp_carrier.hpp"

namespace nexar::shards {

// The number of the control loop's endpoint, which all nodes have; those of the shards count from 0.
constexpr uint16_t loop_number = 0xffff;

struct BulkEndpointConfig {
    uint16_t number = 0;  // it dials the peers' endpoint of the same number
    quic::Address listen;
    quic::Config quic;
    quic::Identity identity;
    quic::Verifier verifier;
    NodeId self;
    Incarnation incarnation;
    link::MeshConfig mesh;
    std::optional<std::array<std::byte, 32>> reset_secret;
    connections::BulkWatchConfig watch;
    bool tcp = false;              // bulk data over TCP as well, on the same port
    bool tcp_plain = false;        // and without encryption, where the other end wants that too
    Duration handshake_share{};    // TcpCarrier::Options
    size_t turn_bytes = SIZE_MAX;  // the same
    bool reads_far = false;        // the same
    bool acks_wait = false;        // those that no sender awaits, for others [T6]
};

// What the control loop asks of it; connections::KnownPeer is one more.
struct DropPeer {  // the peer's node failed or departed: all transfers with it fail
    link::PeerIndex peer;
    NodeId node{};
    Incarnation incarnation{};
};
struct Withdraw {
    link::OpKey op;
};
struct Retract {
    link::OpKey op;
};
struct ForgetGroup {
    GroupId group;
};
// This node's certificate was renewed. New connections show the new one; open connections are replaced.
struct UseIdentity {
    std::shared_ptr<const quic::Identity> identity;
};
// What connections over TCP to and from this peer prove themselves with: from its control connection. Posted
// before the KnownPeer of the same connection.
struct UseAttachKey {
    transport::TcpCarrier::Peer peer;
};
struct AskPeers {};  // which connections work: BulkConnections::ask_all()
using Command = std::variant<std::monostate, connections::KnownPeer, DropPeer, link::Batch, Withdraw, Retract,
                             ForgetGroup, UseIdentity, UseAttachKey, AskPeers>;

// Newcomers over TCP wait, as no descriptor is left for them; or they are accepted again.
struct AcceptPause {
    bool begins;
};
using Event = std::variant<std::monostate, link::MeshEvent, connections::BulkState, AcceptPause>;

class BulkEndpoint {
  public:
    class Listener {
      public:
        virtual void on_event(Event event) = 0;

      protected:
        ~Listener() = default;
    };

    // Binds the sockets, so that a refused port is this call's error.
    static Result<std::unique_ptr<BulkEndpoint>> open(BulkEndpointConfig config);

    void apply(Time now, Command command);
    // Of one turn: what has come, and what is due. Returns how much there was; 0: nothing. `looks_at_udp`:
    // false, where nothing can have come over UDP.
    size_t receive(Time now, Listener& listener, bool looks_at_udp = true);
    // The end of the turn: what apply() and receive() have caused to be sent. True: something was.
    bool send(Time now);
    void close(Time now);  // says goodbye on all connections

    Time wake_at() const;
    int udp_fd() const { return port_->fd(); }
    bool udp_wants_writable() const { return port_->wants_writable(); }
    int tcp_fd() const { return tcp_ ? tcp_->fd() : -1; }  // readable: receive() has work; -1: QUIC only

    // What a turn reads and encrypts over TCP from now on (BulkEndpointConfig::turn_bytes).
    void limit_turn(size_t bytes) {
        if (tcp_) tcp_->limit_turn(bytes);
    }
    bool has_newcomers() const { return tcp_ && tcp_->half_open() > 0; }  // that have not attached

    uint64_t datagrams_received() const { return port_->socket_stats().datagrams_received; }
    bool has_transfers() const { return mesh_.has_transfers(); }
    quic::Address local_address() const { return port_->local(); }
    std::shared_ptr<const link::Traffic> traffic() const { return mesh_.traffic(); }

  private:
    // `tcp` null: QUIC only.
    BulkEndpoint(const BulkEndpointConfig& config, std::unique_ptr<transport::QuicPort> port,
                 std::unique_ptr<transport::TcpCarrier> tcp);
    size_t drain(Time now, Listener& listener);
    void flush_mesh(Time now);
    bool flush_ports(Time now);
    bool has_received();

    std::unique_ptr<transport::QuicPort> port_;
    std::unique_ptr<transport::TcpCarrier> tcp_;  // null: QUIC only
    link::Mesh mesh_;
    transport::QuicCarrier carrier_;
    connections::BulkConnections connections_;
    const bool acks_wait_;
    uint64_t datagrams_received_ = 0;  // the socket's count at the last has_received()
};

}  // namespace nexar::shards
