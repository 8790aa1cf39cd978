#include "node/control_plane.hpp"

#include <type_traits>

#include "wire/codec.hpp"

namespace nexar::node {
namespace {

constexpr size_t dial_failures_max = 4096;        // reasons kept, for people
constexpr Duration replace_after{1'000'000'000};  // the peers' clocks may be a little behind
constexpr Duration replace_within{30'000'000'000};
constexpr WallSeconds replace_share =
    4;  // and within this part of the time that the old certificate has left

connections::ConnectionId table_id(quic::ConnId id) {
    return connections::ConnectionId(id.value);
}
quic::ConnId quic_id(connections::ConnectionId id) {
    return quic::ConnId(id.value);
}

connections::Preamble preamble_of(const Incarnation& incarnation) {
    connections::Preamble p;
    p.incarnation = incarnation;
    return p;
}

std::string text_of(const quic::CloseInfo& why) {
    static constexpr const char* causes[] = {
        "closed here", "closed by the peer", "refused here",    "refused by peer",
        "idle",        "no answer",          "stateless reset", "protocol error"};
    std::string text = causes[static_cast<size_t>(why.cause)];
    return why.reason.empty() ? text : text + ": " + why.reason;
}

}  // namespace

Result<std::unique_ptr<ControlPlane>> ControlPlane::open(Config config, JoinDoor* door, Log& log, Time now) {
    transport::QuicPort::Options options;
    options.listen = config.listen;
    options.quic = config.quic;
    options.quic.accept_join = door != nullptr;
    options.reset_secret = config.reset_secret;
    NEXAR_TRY(auto port, transport::QuicPort::open(std::move(options), config.identity, config.verifier));
    return std::unique_ptr<ControlPlane>(
        new ControlPlane(std::move(config), std::move(port), door, log, now));
}

ControlPlane::ControlPlane(Config config, std::unique_ptr<transport::QuicPort> port, JoinDoor* door, Log& log,
                           Time now)
    : port_(std::move(port)),
      mesh_(config.mesh),
      links_(port_->endpoint(), mesh_, config.table.self.node, preamble_of(config.table.incarnation)),
      table_(config.table, Random(config.seed), now),
      door_(door),
      renewer_(config.renewer),
      log_(&log),
      random_(config.seed + 1) {}

bool ControlPlane::step(Time now) {
    bool work = port_->on_readable(now);
    port_->on_time(now);
    // What a peer said before it closed comes first: a GOODBYE and the close often share a datagram.
    read_mesh(now);
    while (auto event = port_->poll_event()) {
        on_quic_event(now, *event);
        work = true;
    }
    while (auto address = port_->poll_unreachable()) port_->endpoint().on_unreachable(now, *address);
    if (door_) door_->step(now, port_->endpoint());
    links_.on_time(now);
    read_links(now);
    read_mesh(now);
    table_.on_time(now);
    act(now);
    if (renewer_) tend_renewal(now);
    mesh_.flush();
    if (port_->wants_writable())
        port_->on_writable(now);
    else
        work |= port_->flush(now);
    const uint64_t datagrams = port_->socket_stats().datagrams_received;
    work |= datagrams != std::exchange(datagrams_seen_, datagrams);
    return work || !events_.empty();
}

void ControlPlane::on_quic_event(Time now, const quic::Event& event) {
    if (event.kind == quic::Event::Kind::refused) {
        log_->warn("connection_refused",
                   {field("remote", event.remote.text()), field("why", text_of(event.close))});
        return;
    }
    if (event.alpn == quic::alpn_join || (door_ && door_->knows(event.conn))) {
        if (door_) door_->on_event(now, event, port_->endpoint());
        return;
    }
    links_.on_event(now, event);
}

void ControlPlane::read_links(Time now) {
    while (auto opened = links_.poll_opened()) {
        if (opened->theirs.purpose != connections::Purpose::control) {
            links_.refuse(opened->conn, transport::LinkPort::close_refused,
                          "this port is for control connections");
            continue;
        }
        std::string remote = opened->remote.text();
        if (const auto it = dials_.find(opened->conn); it != dials_.end()) {
            remote = it->second.address;
            dials_.erase(it);
        }
        dial_failures_.erase(opened->node);
        table_.on_connected({table_id(opened->conn), opened->node, opened->we_dialled, remote,
                             opened->generation, opened->theirs.incarnation},
                            now);
    }
    while (auto greeting = links_.poll_greeting()) {
        const auto message = wire::decode(greeting->second);
        if (!message)
            links_.refuse(greeting->first, transport::LinkPort::close_garbage, message.error().text);
        else
            table_.on_message(table_id(greeting->first), *message, now);
    }
    while (auto closed = links_.poll_closed()) {
        const std::string why = text_of(closed->why);
        stale_.erase(closed->conn);
        if (const auto it = dials_.find(closed->conn); it != dials_.end()) {
            const connections::Dial dial = it->second;
            dials_.erase(it);
            dial_failed(dial, why, now);
        } else {
            table_.on_closed(table_id(closed->conn), why, now);
        }
    }
    while (auto peer = links_.poll_heard()) events_.push_back(PeerHeard{*peer});
}

void ControlPlane::read_mesh(Time now) {
    while (auto event = mesh_.poll_event()) {
        using Kind = link::MeshEvent::Kind;
        if (event->kind == Kind::peer_garbage) {
            log_->warn("peer_sent_garbage", {field("peer", event->peer), field("what", event->text)});
            links_.close(event->peer, transport::LinkPort::close_garbage, event->text);
        } else if (event->kind == Kind::message) {
            read_message(now, event->peer, event->bytes);
        } else {
            events_.push_back(std::move(*event));
        }
    }
}

void ControlPlane::read_message(Time now, PeerIndex peer, Bytes bytes) {
    auto message = wire::decode(bytes);
    if (!message) {
        log_->warn("peer_sent_garbage", {field("peer", peer), field("what", message.error().text)});
        links_.close(peer, transport::LinkPort::close_garbage, message.error().text);
        return;
    }
    const auto conn = links_.conn_of(peer);
    if (conn && table_.on_message(table_id(*conn), *message, now)) return;
    const quic::Connection* quic = conn ? port_->endpoint().find(*conn) : nullptr;
    if (renewer_ && quic && renewer_->on_message(now, quic->peer(), quic->peer_chain(), *message)) return;
    events_.push_back(PeerSaid{peer, std::move(*message)});
}

void ControlPlane::tend_renewal(Time now) {
    if (now >= renewer_->wake_at()) renewer_->on_time(now, table_.connected());
    while (auto message = renewer_->poll_send())
        if (const auto connection = table_.connection_of(message->first))
            send_on({*connection, std::move(message->second)});
    if (renewer_->take_renewed()) events_.push_back(CertificateRenewed{});
    redial_stale(now);
}

// The old connections would be closed by the peers when the old certificate ends. Replacing them before that
// is no interruption; not all at once is no burst.
Result<void> ControlPlane::set_identity(const quic::Identity& identity, WallSeconds old_left, Time now) {
    NEXAR_TRY_VOID(port_->endpoint().set_identity(identity));
    const Duration left(std::max<WallSeconds>(old_left, 0) * 1'000'000'000 / replace_share);
    const auto window = static_cast<uint64_t>(std::min(left, replace_within).count());
    for (const NodeId& node : table_.connected())
        if (const auto connection = table_.connection_of(node))
            stale_[quic_id(*connection)] =
                now + replace_after + Duration(static_cast<int64_t>(random_.below(window + 1)));
    return {};
}

void ControlPlane::redial_stale(Time now) {
    for (auto it = stale_.begin(); it != stale_.end();) {
        const auto [conn, at] = *it;
        if (now < at) {
            ++it;
            continue;
        }
        it = stale_.erase(it);
        const quic::Connection* quic = port_->endpoint().find(conn);
        if (quic && links_.peer_of(conn)) dial(now, {quic->remote().text(), quic->peer()});
    }
}

void ControlPlane::act(Time now) {
    while (auto action = table_.poll_action()) act(now, std::move(*action));
}

void ControlPlane::act(Time now, connections::TableAction action) {
    std::visit(
        [&](auto& a) {
            using A = std::decay_t<decltype(a)>;
            if constexpr (std::is_same_v<A, connections::Dial>) {
                dial(now, a);
            } else if constexpr (std::is_same_v<A, connections::CloseConnection>) {
                links_.refuse(quic_id(a.connection), transport::LinkPort::close_refused, a.reason);
            } else if constexpr (std::is_same_v<A, connections::SendOn>) {
                send_on(a);
            } else if constexpr (std::is_same_v<A, connections::PeerUp>) {
                const auto remote = links_.address_of(quic_id(a.connection));
                if (links_.adopt(quic_id(a.connection), a.info.peer))
                    events_.push_back(PeerIsUp{a.info, remote});
            } else if constexpr (std::is_same_v<A, connections::PeerDown>) {
                events_.push_back(PeerIsDown{a.peer, a.why, a.proof});
            } else if constexpr (std::is_same_v<A, connections::RedialFailed>) {
                events_.push_back(RedialFailed{a.peer});
            } else if constexpr (std::is_same_v<A, connections::NodeForgotten>) {
                dial_failures_.erase(a.node);
            } else if constexpr (std::is_same_v<A, connections::Note>) {
                log_->note(a.level, a.event, a.fields);
            }
        },
        action);
}

void ControlPlane::dial_failed(const connections::Dial& dial, const std::string& why, Time now) {
    if (dial_failures_.size() >= dial_failures_max) dial_failures_.clear();
    if (!dial.expected.is_zero()) dial_failures_[dial.expected] = why;
    table_.on_dial_failed(dial.address, dial.expected, why, now);
}

std::string ControlPlane::dial_failure(const NodeId& node) const {
    const auto found = dial_failures_.find(node);
    return found == dial_failures_.end() ? std::string() : found->second;
}

void ControlPlane::dial(Time now, const connections::Dial& order) {
    const auto failed = [&](const std::string& why) { dial_failed(order, why, now); };
    const auto address = quic::Address::parse(order.address);
    if (!address) return failed(address.error().text);
    std::optional<NodeId> expected;
    if (!order.expected.is_zero()) expected = order.expected;
    const auto conn = links_.dial(now, port_->local(), *address, expected);
    if (!conn) return failed(conn.error().text);
    dials_.emplace(*conn, order);
}

void ControlPlane::send_on(const connections::SendOn& order) {
    const auto bytes = wire::encode(order.message);
    const quic::ConnId conn = quic_id(order.connection);
    if (const auto peer = links_.peer_of(conn))
        mesh_.send_message(*peer, bytes);
    else
        links_.greet(conn, bytes);
}

std::optional<PlaneEvent> ControlPlane::poll_event() {
    if (events_.empty()) return std::nullopt;
    PlaneEvent front = std::move(events_.front());
    events_.pop_front();
    return front;
}

Time ControlPlane::wake_at() const {
    Time at = std::min({port_->wake_at(), table_.wake_at(), links_.wake_at()});
    if (renewer_) at = std::min(at, renewer_->wake_at());
    for (const auto& [conn, when] : stale_) at = std::min(at, when);
    return door_ ? std::min(at, door_->wake_at()) : at;
}

void ControlPlane::say_goodbye(const std::string& reason) {
    table_.say_goodbye(reason);
}

void ControlPlane::close_all(Time now, const std::string& reason) {
    port_->endpoint().close_all(transport::LinkPort::close_goodbye, reason);
    port_->flush(now, 64);
}

}  // namespace nexar::node
