// QuicCarrier: the connections of a QUIC endpoint, as the module connections/ sees them. It passes bytes and
// events on and decides nothing.
//
// Thread: its owner's.
#pragma once

#include <map>
#include <memory>

#include "connections/carrier.hpp"
#include "quic/endpoint.hpp"

namespace nexar::transport {

// Why a connection ended, for people.
std::string text_of(const quic::CloseInfo& why);

class QuicCarrier final : public connections::Carrier {
  public:
    // `local`: the address that is dialled from.
    QuicCarrier(quic::Endpoint& endpoint, const quic::Address& local);
    ~QuicCarrier();
    QuicCarrier(const QuicCarrier&) = delete;
    QuicCarrier& operator=(const QuicCarrier&) = delete;

    Result<connections::ConnectionId> dial(Time now, const std::string& address,
                                           const std::optional<NodeId>& expected) override;
    // Every event of the endpoint about a member connection (ALPN nexar/N) goes here.
    void on_event(Time now, const quic::Event& event, connections::CarrierEvents& events);

    quic::Connection* find(connections::ConnectionId id) const;  // nullptr: its end was reported

  private:
    class Conn;

    quic::Endpoint* endpoint_;
    quic::Address local_;
    std::map<quic::ConnId, std::unique_ptr<Conn>> conns_;  // connected, and their end is not reported
};

}  // namespace nexar::transport
