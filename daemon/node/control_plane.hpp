// ControlPlane: this node's connections to all other daemons, on the control loop. It has one UDP port, one
// mesh (for messages and small data), the control connections over QUIC and, on an issuer, the join server.
// It moves bytes between the dry modules and the socket and has no policy.
//
// Thread: the control loop's.
#pragma once

#include <memory>

#include "connections/control.hpp"
#include "core/log.hpp"
#include "engine/ports.hpp"
#include "link/mesh.hpp"
#include "node/identity.hpp"
#include "node/join.hpp"
#include "node/renewer.hpp"
#include "tcp/attach.hpp"
#include "transport/quic_carrier.hpp"
#include "transport/quic_port.hpp"

namespace nexar::node {

// What the Member learns of it, at once and in the order in which it happened: a queue between them would
// cost as much as the rest of a small message's way. It may post and send meanwhile.
class PlaneListener {
  public:
    virtual void on_connection(Time now, connections::ControlEvent& event) = 0;  // never a Note
    virtual void on_message(Time now, PeerIndex from, const wire::Message& message) = 0;
    virtual void on_mesh_event(Time now, const link::MeshEvent& event) = 0;
    virtual void on_certificate_renewed(Time now) = 0;  // this node's: new connections must show the new one

  protected:
    ~PlaneListener() = default;
};

class ControlPlane final : public engine::MeshPort, public engine::PeerPort {
  public:
    struct Config {
        quic::Address listen;
        quic::Config quic;
        quic::Identity identity;
        quic::Verifier verifier;
        connections::PeerTableConfig table;
        link::MeshConfig mesh;
        uint64_t seed = 0;
        std::optional<std::array<std::byte, 32>> reset_secret;
        Renewer* renewer = nullptr;
    };
    // Requires: `listener` exists longer.
    static Result<std::unique_ptr<ControlPlane>> open(Config config, JoinServer* join_server,
                                                      PlaneListener& listener, Log& log, Time now);

    // New connections use `identity`. Open connections are replaced one after the other, before the
    // certificate that they began with expires, in `old_left` seconds.
    Result<void> set_identity(const quic::Identity& identity, WallSeconds old_left, Time now);

    // The two ends of a turn: what has come, and what is to go. Between them the engine answers, so that an
    // answer and the acknowledgement of its question share a packet. True: there was work.
    bool receive(Time now);
    bool send(Time now);
    std::optional<PeerIndex> poll_sent() { return connections_.poll_sent(); }  // [F2]
    Time wake_at() const;
    int fd() const { return port_->fd(); }
    bool wants_writable() const { return port_->wants_writable(); }
    const quic::Address& local() const { return port_->local(); }

    void say_goodbye(Time now, const std::string& reason);
    void close_all(Time now, const std::string& reason);

    // engine::MeshPort: the loop's own mesh.
    void post(link::Batch batch) override { mesh_.post(std::move(batch)); }
    void withdraw(const link::OpKey& op) override { mesh_.withdraw(op); }
    void retract(const link::OpKey& op) override { mesh_.retract(op); }
    void forget_group(const GroupId& group) override { mesh_.forget_group(group); }
    void drop_peer(PeerIndex peer) { mesh_.drop_peer(peer); }
    // engine::PeerPort
    void send(PeerIndex peer, Bytes message) override { mesh_.send_message(peer, message); }
    void append(PeerIndex peer, Bytes message, std::optional<link::Account> account) override {
        mesh_.append(peer, message, account);
    }
    bool reserve(PeerIndex peer, link::Account account, size_t bytes) override {
        return mesh_.reserve(peer, account, bytes);
    }
    bool reserve_open(PeerIndex peer, link::Account account, size_t bytes) override {
        return mesh_.reserve_open(peer, account, bytes);
    }
    link::LogRoom log_room(PeerIndex peer) const override { return mesh_.log_room(peer); }
    void release(PeerIndex peer, link::Account account, size_t bytes) override {
        mesh_.release(peer, account, bytes);
    }
    void discard_log(PeerIndex peer, const std::string& why) override { mesh_.discard_log(peer, why); }

    const connections::PeerTable& table() const { return connections_.table(); }
    std::optional<quic::ConnectionStats> stats(PeerIndex peer) const;
    // Of its control connection in use, for connections over TCP (docs/protocol/tcp.md [B2]). None: there is
    // none.
    std::optional<tcp::AttachKey> attach_key(PeerIndex peer) const;
    link::TrafficCounts traffic(PeerIndex peer) const { return mesh_.traffic(peer); }
    link::TrafficCounts traffic() const { return mesh_.traffic()->read(); }
    std::string dial_failure(const NodeId& node) const { return connections_.dial_failure(node); }
    const transport::SocketStats& socket_stats() const { return port_->socket_stats(); }

  private:
    ControlPlane(Config config, std::unique_ptr<transport::QuicPort> port, JoinServer* join_server,
                 PlaneListener& listener, Log& log, Time now);
    void on_quic_event(Time now, const quic::Event& event);
    bool flush_port(Time now);
    void read_connections(Time now);
    void read_mesh(Time now);
    void read_message(Time now, const link::MeshEvent& event);
    void on_log_discarded(Time now, const link::MeshEvent& event);
    void tend_renewal(Time now);

    std::unique_ptr<transport::QuicPort> port_;
    link::Mesh mesh_;
    transport::QuicCarrier carrier_;
    connections::ControlConnections connections_;
    JoinServer* join_server_;  // null: this node is no issuer
    Renewer* renewer_;         // null: certificates are not renewed (tests)
    PlaneListener* listener_;
    Log* log_;
    bool reported_ = false;        // something, since receive() or send() ended last
    uint64_t datagrams_seen_ = 0;  // the socket's count at the last receive()
};

}  // namespace nexar::node
