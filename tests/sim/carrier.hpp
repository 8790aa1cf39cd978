// Carrier: what QUIC does for connections/, played over the simulated network: dials reach the port that
// listens at an address, both ends of a connection know each other's NodeId, bytes travel in pipes, and a
// connection is closed at once here and a little later there. TLS is not here.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "connections/carrier.hpp"
#include "network.hpp"

namespace nexar::sim {

class Internet;

// One socket: its address, and the connections of the daemon behind it.
class SimPort final : public connections::Carrier {
  public:
    struct End;

    NodeId node;
    std::string address;
    connections::CarrierEvents* events = nullptr;
    std::function<void()> after_input;  // the daemon's turn
    bool dead = false;                  // its process has ended: nothing is reported any more
    size_t dials = 0;
    // As TCP beside QUIC: what is dialled is the port of that name, and dials may be refused.
    connections::CarrierKind kind = connections::CarrierKind::quic;
    std::string dial_suffix;
    bool refuses = false;

    Result<connections::ConnectionId> dial(Time now, const std::string& address,
                                           const std::optional<NodeId>& expected) override;
    // The process is killed. `unaware`: ports whose connections are not reset.
    void kill(const std::vector<const SimPort*>& unaware);
    // Resets the connections that lead to this port.
    void reset(const SimPort& other);
    // Nothing passes any more, in either direction, and nobody is notified; dials are not answered.
    void cut();
    // The id that the other end of this connection has there, while it is open at both.
    std::optional<connections::ConnectionId> other_end(connections::ConnectionId id) const;

  private:
    friend class Internet;
    Internet* internet_ = nullptr;
    std::map<connections::ConnectionId, End*> ends_;
    bool is_cut_ = false;
};

class Internet {
  public:
    Internet(Clock& clock, const NetworkShape& shape);
    ~Internet();

    // `node` listens at `address`, in place of a dead one.
    SimPort& open_port(const NodeId& node, const std::string& address);
    size_t connections_made = 0;

  private:
    friend class SimPort;
    struct Wire;

    void connect(SimPort& from, connections::ConnectionId id, const std::string& address,
                 const std::optional<NodeId>& expected);
    void make_pipe(SimPort::End& from, SimPort::End& to);
    void acknowledge(SimPort::End& end);
    void close(SimPort::End& end, uint64_t code, const std::string& reason);
    void closed(SimPort::End& end, const connections::ClosedBy& why);
    Duration delay();

    Clock& clock_;
    const NetworkShape& shape_;
    std::vector<std::unique_ptr<SimPort>> ports_;
    std::vector<std::unique_ptr<Wire>> wires_;
    uint64_t next_connection_ = 1;
};

}  // namespace nexar::sim
