// See quic_carrier.hpp.
#include "transport/quic_carrier.hpp"

#include "core/check.hpp"

namespace nexar::transport {
namespace {

connections::ConnectionId id_of(quic::ConnId id) {
    return connections::ConnectionId(id.value);
}

connections::ClosedBy closed_by(const quic::CloseInfo& why) {
    static constexpr const char* causes[] = {
        "closed here", "closed by the peer", "refused here",    "refused by peer",
        "idle",        "no answer",          "stateless reset", "protocol error"};
    return {why.code, causes[static_cast<size_t>(why.cause)], why.reason, why.by_peer && why.application};
}

}  // namespace

std::string text_of(const quic::CloseInfo& why) {
    return closed_by(why).text();
}

class QuicCarrier::Conn final : public connections::CarriedConnection, public quic::Receiver {
  public:
    explicit Conn(quic::Connection& quic) : quic_(&quic) {}

    size_t room(Class cls) const override { return quic_->room(cls); }
    void write(Class cls, std::span<const Bytes> parts) override { quic_->write(cls, parts); }
    connections::Progress progress(Class cls) const override {
        return {quic_->written(cls), quic_->acknowledged(cls)};
    }
    void close(uint64_t code, const std::string& reason) override { quic_->close(code, reason); }
    void hold_credit(bool held) override { quic_->hold_credit(held); }
    void set_receiver(connections::Receiver* receiver) override {
        receiver_ = receiver;
        quic_->set_receiver(receiver ? this : nullptr);
    }
    Duration rtt() const override { return quic_->stats().rtt; }
    void on_bytes(Class cls, Bytes bytes) override { receiver_->on_bytes(cls, bytes); }

  private:
    quic::Connection* quic_;                     // the endpoint's; outlives this object
    connections::Receiver* receiver_ = nullptr;  // null: the connection keeps what arrives
};

QuicCarrier::QuicCarrier(quic::Endpoint& endpoint, const quic::Address& local)
    : endpoint_(&endpoint), local_(local) {}

QuicCarrier::~QuicCarrier() {
    for (auto& [id, conn] : conns_)
        if (auto* quic = endpoint_->find(id)) quic->set_receiver(nullptr);
}

Result<connections::ConnectionId> QuicCarrier::dial(Time now, const std::string& address,
                                                    const std::optional<NodeId>& expected) {
    NEXAR_TRY(const quic::Address remote, quic::Address::parse(address));
    NEXAR_TRY(const quic::ConnId id, endpoint_->connect(now, local_, remote, quic::alpn_nexar, expected));
    return id_of(id);
}

quic::Connection* QuicCarrier::find(connections::ConnectionId id) const {
    return endpoint_->find(quic::ConnId(id.value));
}

void QuicCarrier::on_event(Time now, const quic::Event& event, connections::CarrierEvents& events) {
    using Kind = quic::Event::Kind;
    const connections::ConnectionId id = id_of(event.conn);
    switch (event.kind) {
        case Kind::connected: {
            quic::Connection* quic = endpoint_->find(event.conn);
            NEXAR_CHECK(quic != nullptr);
            Conn& conn = *(conns_[event.conn] = std::make_unique<Conn>(*quic));
            events.on_connected(now, {id, event.peer, event.remote.text(), event.we_dialled}, conn);
            break;
        }
        case Kind::closed:
            events.on_closed(now, id, closed_by(event.close));
            conns_.erase(event.conn);
            break;
        case Kind::room:
            events.on_room(id);
            break;
        case Kind::received:
            events.on_received(id);
            break;
        case Kind::refused:
            break;  // the endpoint's owner logs it
    }
}

}  // namespace nexar::transport
