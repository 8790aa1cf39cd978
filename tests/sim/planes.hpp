// Planes: the control planes of simulated daemons. Each has a production PeerTable that knows some addresses,
// and connections whose first bytes are read by the production connections::Opening; what LinkPort and
// ControlPlane do between them and QUIC is played here by the same rules: preambles agree on a generation,
// greetings before adoption, the older channel closed. TLS is not here: a connection knows the NodeId of its
// other end.
//
// A bulk channel stands beside each control channel that both ends have adopted.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "cluster.hpp"
#include "connections/opening.hpp"
#include "connections/peer_table.hpp"

namespace nexar::sim {

class Planes {
  public:
    explicit Planes(Cluster& cluster);
    ~Planes();

    // A daemon at this address, in place of what was there. Returns its host.
    uint32_t start(uint32_t identity, uint64_t life, const std::string& address,
                   std::vector<std::string> seeds);
    // -9: its connections are reset at the others, dials are refused. `unheard`: who hears no reset.
    void kill(uint32_t host, const std::vector<uint32_t>& unheard = {});
    void leave(uint32_t host);  // says goodbye first
    // Ends the connection of two nodes, if there is one.
    void reset(uint32_t a, uint32_t b);

    const connections::PeerTable& table(uint32_t host) const;
    // All of these are connected to one another, both ends of each pair by the same connection.
    bool meshed(const std::vector<uint32_t>& hosts) const;
    bool noted(uint32_t host, std::string_view event) const;
    const std::vector<std::string>& notes(uint32_t host) const;
    size_t dials(uint32_t host) const;
    size_t connections_made = 0;

  private:
    struct Plane;
    struct Wire;
    struct End;

    void dial(Plane& plane, const connections::Dial& order);
    void act(Plane& plane, const connections::TableAction& action);
    void settle(Plane& plane);
    void peer_up(Plane& plane, const connections::PeerUp& up);
    void peer_down(Plane& plane, const connections::PeerDown& down);
    void send_on(Plane& plane, const connections::SendOn& order);
    void on_bytes(End& end, link::Class cls, Bytes bytes);
    void opened(End& end);
    void feed(End& end);
    bool adopt(End& end, link::PeerIndex peer);
    void open_bulk(Wire& wire);
    void close(End& end, const std::string& why);
    void closed(End& end, const std::string& why);
    Duration delay();

    Cluster& cluster_;
    std::map<uint32_t, std::unique_ptr<Plane>> planes_;
    std::vector<std::unique_ptr<Wire>> wires_;
    std::map<std::pair<uint32_t, uint32_t>, uint32_t> bulk_generations_;  // by hosts
    uint64_t next_connection_ = 1;
};

}  // namespace nexar::sim
