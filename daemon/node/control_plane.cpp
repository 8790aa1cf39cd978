// See control_plane.hpp.
#include "node/control_plane.hpp"

#include <algorithm>
#include <utility>

#include "core/secret.hpp"
#include "wire/codec.hpp"

namespace nexar::node {
namespace {

// Connections are replaced within the smaller of replace_within and 1/replace_share of the old certificate's
// rest.
constexpr Duration replace_within{30'000'000'000};
constexpr WallSeconds replace_share = 4;
constexpr size_t batches_at_end = 16384;  // a few for each peer; less if the socket is full

}  // namespace

Result<std::unique_ptr<ControlPlane>> ControlPlane::open(Config config, JoinServer* join_server,
                                                         PlaneListener& listener, Log& log, Time now) {
    transport::QuicPort::Options options;
    options.listen = config.listen;
    options.quic = config.quic;
    options.quic.accept_join = join_server != nullptr;
    options.reset_secret = config.reset_secret;
    NEXAR_TRY(auto port, transport::QuicPort::open(std::move(options), config.identity, config.verifier));
    return std::unique_ptr<ControlPlane>(
        new ControlPlane(std::move(config), std::move(port), join_server, listener, log, now));
}

ControlPlane::ControlPlane(Config config, std::unique_ptr<transport::QuicPort> port, JoinServer* join_server,
                           PlaneListener& listener, Log& log, Time now)
    : port_(std::move(port)),
      mesh_(config.mesh),
      carrier_(port_->endpoint(), port_->local()),
      connections_(config.table, carrier_, mesh_, config.seed, now),
      join_server_(join_server),
      renewer_(config.renewer),
      listener_(&listener),
      log_(&log) {}

bool ControlPlane::receive(Time now) {
    bool work = port_->on_readable(now);
    port_->on_time(now);
    // Messages before connection events: a GOODBYE and the close often share a datagram.
    read_mesh(now);
    while (auto event = port_->poll_event()) {
        on_quic_event(now, *event);
        work = true;
    }
    while (auto address = port_->poll_unreachable()) port_->endpoint().on_unreachable(now, *address);
    if (join_server_) join_server_->step(now, port_->endpoint());
    connections_.on_time(now);
    read_connections(now);
    read_mesh(now);
    if (renewer_) tend_renewal(now);
    const uint64_t datagrams = port_->socket_stats().datagrams_received;
    work |= datagrams != std::exchange(datagrams_seen_, datagrams);
    return std::exchange(reported_, false) || work;
}

bool ControlPlane::send(Time now) {
    connections_.settle(now);
    read_connections(now);
    read_mesh(now);  // what was posted may have been there already
    mesh_.flush(now);
    const bool work = flush_port(now);
    return std::exchange(reported_, false) || work;
}

bool ControlPlane::flush_port(Time now) {
    if (!port_->wants_writable()) return port_->flush(now);
    port_->on_writable(now);
    return false;
}

void ControlPlane::on_quic_event(Time now, const quic::Event& event) {
    if (event.kind == quic::Event::Kind::refused) {
        log_->warn("connection_refused",
                   {field("remote", event.remote.text()), field("why", transport::text_of(event.close))});
        return;
    }
    if (event.alpn == quic::alpn_join || (join_server_ && join_server_->has(event.conn))) {
        if (join_server_) join_server_->on_event(now, event, port_->endpoint());
        return;
    }
    carrier_.on_event(now, event, connections_.events());
}

void ControlPlane::read_connections(Time now) {
    while (auto event = connections_.poll_event()) {
        if (const auto* note = std::get_if<connections::Note>(&*event)) {
            log_->note(note->level, note->event, note->fields);
            continue;
        }
        reported_ = true;
        listener_->on_connection(now, *event);
    }
}

void ControlPlane::read_mesh(Time now) {
    while (auto event = mesh_.poll_event()) {
        using Kind = link::MeshEvent::Kind;
        if (event->kind == Kind::peer_garbage) {
            log_->warn("peer_sent_garbage", {field("peer", event->peer), field("what", event->text)});
            connections_.on_garbage(event->peer, event->text);
        } else if (event->kind == Kind::message) {
            read_message(now, *event);
        } else if (event->kind == Kind::log_discarded) {
            on_log_discarded(now, *event);
        } else {
            reported_ = true;
            listener_->on_mesh_event(now, *event);
        }
    }
}

void ControlPlane::on_log_discarded(Time now, const link::MeshEvent& event) {
    log_->warn("control_log_discarded", {field("peer", event.peer), field("why", event.text)});
    if (!event.by_peer) connections_.on_garbage(event.peer, event.text);
    reported_ = true;
    listener_->on_mesh_event(now, event);
}

// A message that cannot be applied would be replayed for ever: its log goes with it [L7].
void ControlPlane::read_message(Time now, const link::MeshEvent& event) {
    const PeerIndex peer = event.peer;
    auto message = wire::decode(event.bytes);
    if (message && wire::is_logged(*message) != event.logged)
        message = fail(Errc::protocol_error, event.logged ? "control message: it does not belong in the log"
                                                          : "control message: it belongs in the log");
    if (!message) {
        log_->warn("peer_sent_garbage", {field("peer", peer), field("what", message.error().text)});
        connections_.on_garbage(peer, message.error().text);
        if (event.logged) mesh_.discard_log(peer, message.error().text);
        return;
    }
    if (connections_.on_message(peer, *message, now)) return read_connections(now);
    const auto conn = connections_.conn_of(peer);
    const quic::Connection* quic = conn ? carrier_.find(*conn) : nullptr;
    if (renewer_ && quic && renewer_->on_message(now, quic->peer(), quic->peer_chain(), *message)) return;
    reported_ = true;
    listener_->on_message(now, peer, *message);
}

void ControlPlane::tend_renewal(Time now) {
    renewer_->step(now);
    if (now >= renewer_->wake_at()) renewer_->on_time(now, table().connected());
    while (auto message = renewer_->poll_send()) connections_.send(message->first, message->second);
    if (!renewer_->take_renewed()) return;
    reported_ = true;
    listener_->on_certificate_renewed(now);
}

// Peers close a connection when its certificate expires; replacing it earlier avoids the interruption, and
// doing so one after the other avoids a burst of handshakes.
Result<void> ControlPlane::set_identity(const quic::Identity& identity, WallSeconds old_left, Time now) {
    NEXAR_TRY_VOID(port_->endpoint().set_identity(identity));
    const Duration left(std::max<WallSeconds>(old_left, 0) * 1'000'000'000 / replace_share);
    connections_.replace_all(now, std::min(left, replace_within));
    return {};
}

std::optional<quic::ConnectionStats> ControlPlane::stats(PeerIndex peer) const {
    const auto conn = connections_.conn_of(peer);
    const quic::Connection* quic = conn ? carrier_.find(*conn) : nullptr;
    if (!quic) return std::nullopt;
    return quic->stats();
}

std::optional<tcp::AttachKey> ControlPlane::attach_key(PeerIndex peer) const {
    const auto conn = connections_.conn_of(peer);
    const quic::Connection* quic = conn ? carrier_.find(*conn) : nullptr;
    tcp::AttachKey out;
    if (!quic) return std::nullopt;
    auto key = quic->export_keying_material(tcp::attach_key_label, {}, out.size());
    if (!key) return std::nullopt;
    std::ranges::copy(*key, out.begin());
    wipe(MutableBytes(*key));
    return out;
}

Time ControlPlane::wake_at() const {
    Time at = std::min({port_->wake_at(), connections_.wake_at(), mesh_.acks_due()});
    if (renewer_) at = std::min(at, renewer_->wake_at());
    return join_server_ ? std::min(at, join_server_->wake_at()) : at;
}

// Nobody listens any more, so nothing is delivered.
void ControlPlane::say_goodbye(Time now, const std::string& reason) {
    connections_.say_goodbye(reason);
    connections_.on_time(now);
    mesh_.flush();
    port_->flush(now, batches_at_end);
}

void ControlPlane::close_all(Time now, const std::string& reason) {
    port_->endpoint().close_all(connections::Channels::close_goodbye, reason);
    port_->flush(now, batches_at_end);
}

}  // namespace nexar::node
