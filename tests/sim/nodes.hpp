// Nodes: simulated daemons that find each other. Each has the production control connections and bulk
// connections over the simulated carrier, beside its engine and meshes, and passes on between them what
// node::Member passes on. Invariants are checked after every input.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "carrier.hpp"
#include "cluster.hpp"
#include "connections/bulk.hpp"
#include "connections/control.hpp"

namespace nexar::sim {

class Nodes {
  public:
    explicit Nodes(Cluster& cluster);
    ~Nodes();

    // A daemon at this address, in place of what was there. Returns its host.
    uint32_t start(uint32_t identity, uint64_t incarnation, const std::string& address,
                   std::vector<std::string> seeds);
    // -9: its connections are reset at the others, dials are refused. `unaware`: hosts that see no reset.
    void kill(uint32_t host, const std::vector<uint32_t>& unaware = {});
    void leave(uint32_t host);  // sends goodbye first
    // Ends the control connection, or the bulk connection, of two nodes.
    void reset(uint32_t a, uint32_t b);
    void reset_bulk(uint32_t a, uint32_t b);
    void reset_tcp(uint32_t a, uint32_t b);        // the same of their bulk connection over TCP
    void refuse_tcp(uint32_t host, bool refuses);  // dials over TCP to it
    // Which carrier the bulk connection from a to b has, as was reported to a last, and why; none: it is
    // down.
    std::optional<connections::CarrierKind> carrier(uint32_t a, uint32_t b) const;
    std::string carrier_why(uint32_t a, uint32_t b) const;
    size_t carrier_moves(uint32_t host, connections::CarrierKind to) const;  // from the other kind
    void cut_bulk(uint32_t host);  // its port for bulk connections takes and lets out nothing any more

    const connections::PeerTable& table(uint32_t host) const;
    // All of these are connected to one another, both ends of each pair by the same connections.
    bool meshed(const std::vector<uint32_t>& hosts) const;
    bool noted(uint32_t host, std::string_view event) const;
    const std::vector<std::string>& notes(uint32_t host) const;
    struct Happened {  // to a peer, as this host saw it
        NodeId node;
        PeerIndex peer;
        bool up = false, proof = false;
        std::string why;
    };
    const std::vector<Happened>& happened(uint32_t host) const;
    const std::vector<Time>& dialled_at(uint32_t host) const;  // control connections
    size_t messages(uint32_t host) const;                      // that arrived from peers
    size_t connections_made() const { return internet_.connections_made; }

  private:
    struct Node;

    void turn(Node& node);
    void maybe_move(Node& node);
    void note_carrier(Node& node, const connections::BulkState& state);
    void act(Node& node, const connections::ControlEvent& event);
    void peer_up(Node& node, const connections::PeerIsUp& up);
    void peer_down(Node& node, const connections::PeerIsDown& down);
    void to_shard(Node& node, std::function<void()> command);
    bool are_connected(const Node& from, const Node& to) const;

    Cluster& cluster_;
    Internet internet_;
    std::map<uint32_t, std::unique_ptr<Node>> nodes_;  // by host
    Random moves_{1};                                  // between carriers (wire_mode.hpp)
    Time next_move_{};
};

}  // namespace nexar::sim
