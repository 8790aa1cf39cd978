// Carrier: what dials, moves bytes and closes below this module: QUIC (transport/quic_carrier) or TCP
// (transport/tcp_carrier) on sockets, or the simulator's network (tests/sim/carrier). The peer of a
// connection is authenticated before it is reported.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "core/bytes.hpp"
#include "core/class.hpp"
#include "core/ids.hpp"
#include "core/result.hpp"
#include "core/time.hpp"
#include "link/transfer.hpp"

namespace nexar::connections {

// A connection, as the carrier numbers it; never reused, and different for two carriers of one owner.
using ConnectionId = Id<struct ConnectionTag, uint64_t>;

class Receiver {
  public:
    virtual void on_bytes(Class cls, Bytes bytes) = 0;
    // Where the next bytes of the class belong, so that a carrier may decrypt into it: the rest of a payload,
    // or a part of it. Empty: on_bytes() takes them. Valid until the next call; placed() says how many are
    // there.
    virtual MutableBytes place(Class) { return {}; }
    virtual void placed(Class, size_t) {}

  protected:
    ~Receiver() = default;
};

// Bytes of one class since the connection's begin. What is acknowledged has gone there, and its
// acknowledgement has come back: more than any packet of the peer's proves.
struct Progress {
    uint64_t written = 0, acknowledged = 0;
};

// What one connection has moved besides control.
struct Moved {
    ConnectionId connection;
    Progress sent;
    uint64_t received = 0;
};

enum class CarrierKind : uint8_t { quic, tcp, tcp_plain };  // tcp_plain: not encrypted

// One connection. Valid from on_connected() until on_closed() returns.
class CarriedConnection {
  public:
    virtual size_t room(Class cls) const = 0;
    // Copies all parts. Beyond room() the carrier may close the connection.
    virtual void write(Class cls, std::span<const Bytes> parts) = 0;
    virtual Progress progress(Class cls) const = 0;
    // on_closed() follows, not from inside of this call.
    virtual void close(uint64_t code, const std::string& reason) = 0;
    // While held the peer gets no credit back: it can send no more than the flow control windows.
    virtual void hold_credit(bool held) = 0;
    virtual void set_receiver(Receiver* receiver) = 0;  // nullptr: what arrives waits
    virtual Duration rtt() const = 0;                   // zero: not measured
    virtual CarrierKind kind() const { return CarrierKind::quic; }

  protected:
    ~CarriedConnection() = default;
};

class Carrier {
  public:
    // The result is known by on_connected() or on_closed(). `expected` none: a node that is not known yet.
    virtual Result<ConnectionId> dial(Time now, const std::string& address,
                                      const std::optional<NodeId>& expected) = 0;

  protected:
    ~Carrier() = default;
};

struct ClosedBy {
    uint64_t code = 0;   // the peer's or ours; 0: neither gave one
    std::string cause;   // "closed by the peer", "no answer"
    std::string reason;  // as it was given to close(); may be empty
    // The peer's own close(): authenticated, and `code` is its caller's. False: ours, or the transport's
    // codes.
    bool by_peer = false;
    std::string text() const { return reason.empty() ? cause : cause + ": " + reason; }  // for people
};

// What a carrier reports, to whom it carries for.
class CarrierEvents {
  public:
    struct Connected {
        ConnectionId id;
        NodeId node;         // as its certificate proves
        std::string remote;  // where it leads to
        bool we_dialled = false;
    };
    virtual void on_connected(Time now, const Connected& connected, CarriedConnection& connection) = 0;
    virtual void on_closed(Time now, ConnectionId id,
                           const ClosedBy& why) = 0;  // the last about it; a dial too
    virtual void on_room(ConnectionId id) = 0;        // some class has more room than before
    virtual void on_received(ConnectionId id) = 0;    // an authentic packet arrived

  protected:
    ~CarrierEvents() = default;
};

}  // namespace nexar::connections
