// QuicCarrier: the connections of a QUIC endpoint as a connections::Carrier. It translates calls and events
// and has no policy.
//
// Thread: its owner's.
#pragma once

#include <map>
#include <memory>

#include "connections/carrier.hpp"
#include "quic/endpoint.hpp"

namespace nexar::transport {

// Why a connection ended, for logs and error texts.
std::string text_of(const quic::CloseInfo& why);

class QuicCarrier final : public connections::Carrier {
  public:
    // `local`: the source address of dials.
    QuicCarrier(quic::Endpoint& endpoint, const quic::Address& local);
    ~QuicCarrier();
    QuicCarrier(const QuicCarrier&) = delete;
    QuicCarrier& operator=(const QuicCarrier&) = delete;

    Result<connections::ConnectionId> dial(Time now, const std::string& address,
                                           const std::optional<NodeId>& expected) override;
    // Requires: called with every event of the endpoint about a member connection (ALPN nexar/N).
    void on_event(Time now, const quic::Event& event, connections::CarrierEvents& events);

    quic::Connection* find(connections::ConnectionId id) const;  // nullptr: closed, and reported as closed

  private:
    class Conn;

    quic::Endpoint* endpoint_;
    quic::Address local_;
    std::map<quic::ConnId, std::unique_ptr<Conn>> conns_;  // from the event `connected` to the event `closed`
};

}  // namespace nexar::transport
