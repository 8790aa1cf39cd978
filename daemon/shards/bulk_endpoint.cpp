// See bulk_endpoint.hpp.
#include "shards/bulk_endpoint.hpp"

#include <algorithm>
#include <utility>

#include "connections/channels.hpp"
#include "core/check.hpp"
#include "core/secret.hpp"

namespace nexar::shards {
namespace {

constexpr auto goodbye = "nexard is stopping";

connections::BulkConfig bulk_config(const BulkEndpointConfig& config) {
    connections::BulkConfig out;
    out.self = config.self;
    out.incarnation = config.incarnation;
    out.shard = config.number;
    out.watch = config.watch;
    out.seed = config.incarnation.nonce;
    return out;
}

}  // namespace

Result<std::unique_ptr<BulkEndpoint>> BulkEndpoint::open(BulkEndpointConfig config) {
    transport::QuicPort::Options options;
    options.listen = config.listen;
    options.quic = config.quic;
    options.reset_secret = config.reset_secret;
    // The control connection detects failures; an idle bulk connection has no deadline.
    options.quic.idle_timeout = std::chrono::hours(24);
    NEXAR_TRY(auto port, transport::QuicPort::open(std::move(options), config.identity, config.verifier));
    std::unique_ptr<transport::TcpCarrier> tcp;
    if (config.tcp) {
        NEXAR_TRY(tcp,
                  transport::TcpCarrier::open(
                      {port->local(), config.self, config.incarnation, config.number, config.tcp_plain,
                       config.quic.wall_clock, config.handshake_share, config.turn_bytes, config.reads_far},
                      config.identity, config.verifier));
    }
    return std::unique_ptr<BulkEndpoint>(new BulkEndpoint(config, std::move(port), std::move(tcp)));
}

BulkEndpoint::BulkEndpoint(const BulkEndpointConfig& config, std::unique_ptr<transport::QuicPort> port,
                           std::unique_ptr<transport::TcpCarrier> tcp)
    : port_(std::move(port)),
      tcp_(std::move(tcp)),
      mesh_(config.mesh),
      carrier_(port_->endpoint(), port_->local()),
      connections_(bulk_config(config), carrier_, mesh_, tcp_.get()),
      acks_wait_(config.acks_wait) {}

void BulkEndpoint::apply(Time now, Command command) {
    if (auto* batch = std::get_if<link::Batch>(&command))
        mesh_.post(std::move(*batch));
    else if (auto* w = std::get_if<Withdraw>(&command))
        mesh_.withdraw(w->op);
    else if (auto* r = std::get_if<Retract>(&command))
        mesh_.retract(r->op);
    else if (auto* f = std::get_if<ForgetGroup>(&command))
        mesh_.forget_group(f->group);
    else if (auto* k = std::get_if<connections::KnownPeer>(&command))
        connections_.introduce(*k, now);
    else if (auto* u = std::get_if<UseIdentity>(&command)) {
        NEXAR_CHECK(port_->endpoint().set_identity(*u->identity));  // the control loop has checked it
        if (tcp_) NEXAR_CHECK(tcp_->set_identity(*u->identity));
        connections_.replace_all(now);
    } else if (auto* a = std::get_if<UseAttachKey>(&command)) {
        if (tcp_) tcp_->set_peer(now, a->peer);
        wipe(MutableBytes(a->peer.key));
    } else if (std::holds_alternative<AskPeers>(command)) {
        connections_.ask_all();
    } else if (auto* d = std::get_if<DropPeer>(&command)) {
        connections_.drop(d->peer);
        mesh_.drop_peer(d->peer);
        if (tcp_) tcp_->forget_peer(d->node, d->incarnation);
    }
}

size_t BulkEndpoint::receive(Time now, Listener& listener, bool looks_at_udp) {
    size_t work = looks_at_udp && port_->on_readable(now) ? 1u : 0u;
    port_->on_time(now);
    if (tcp_) work += tcp_->receive(now, connections_.events()) ? 1u : 0u;
    return work + drain(now, listener);
}

size_t BulkEndpoint::drain(Time now, Listener& listener) {
    size_t n = 0;
    while (auto event = port_->endpoint().poll_event()) {
        carrier_.on_event(now, *event, connections_.events());
        ++n;
    }
    while (auto address = port_->poll_unreachable())
        port_->endpoint().on_unreachable(now, *address);  // [P11]
    connections_.on_time(now);
    while (auto state = connections_.poll_event()) listener.on_event(std::move(*state));
    if (const auto pause = tcp_ ? tcp_->poll_accept_pause() : std::nullopt)
        listener.on_event(AcceptPause{*pause});
    flush_mesh(now);
    while (auto event = mesh_.poll_event()) {
        if (event->kind == link::MeshEvent::Kind::peer_garbage)
            connections_.on_garbage(event->peer, event->text);
        listener.on_event(std::move(*event));
        ++n;
    }
    return n;
}

bool BulkEndpoint::send(Time now) {
    flush_mesh(now);  // what was posted since receive()
    return flush_ports(now) || has_received();
}

void BulkEndpoint::flush_mesh(Time now) {
    acks_wait_ ? mesh_.flush(now) : mesh_.flush();
}

bool BulkEndpoint::flush_ports(Time now) {
    bool work = false;
    if (port_->wants_writable())
        port_->on_writable(now);
    else
        work = port_->flush(now);
    if (tcp_) work |= tcp_->flush(now, connections_.events());
    return work;
}

// Datagrams without an event count as work: the rest of their chunk is still in flight.
bool BulkEndpoint::has_received() {
    return datagrams_received() != std::exchange(datagrams_received_, datagrams_received());
}

void BulkEndpoint::close(Time now) {
    port_->endpoint().close_all(connections::Channels::close_goodbye, goodbye);
    port_->flush(now);
    if (!tcp_) return;
    tcp_->close_all(connections::Channels::close_goodbye, goodbye);
    tcp_->flush(now, connections_.events());
}

Time BulkEndpoint::wake_at() const {
    return std::min(
        {port_->wake_at(), connections_.wake_at(), tcp_ ? tcp_->wake_at() : never, mesh_.acks_due()});
}

}  // namespace nexar::shards
