#include "connections/control.hpp"

#include <algorithm>
#include <type_traits>

#include "core/check.hpp"
#include "wire/codec.hpp"

namespace nexar::connections {
namespace {

constexpr Duration replace_after{1'000'000'000};  // the peers' clocks may be a little behind

Preamble preamble_of(const PeerTableConfig& config) {
    Preamble p;
    p.incarnation = config.incarnation;
    p.capabilities = config.capabilities;
    return p;
}

}  // namespace

ControlConnections::ControlConnections(const PeerTableConfig& config, Carrier& carrier, link::Mesh& mesh,
                                       uint64_t seed, Time now)
    : mesh_(&mesh),
      channels_(carrier, mesh, config.self.node, preamble_of(config)),
      table_(config, Random(seed), now),
      random_(seed + 1) {}

bool ControlConnections::on_message(PeerIndex from, const wire::Message& message, Time now) {
    const auto conn = channels_.conn_of(from);
    if (!conn || !table_.on_message(*conn, message, now)) return false;
    act(now);
    return true;
}

void ControlConnections::on_garbage(PeerIndex from, const std::string& what) {
    channels_.close(from, Channels::close_garbage, what);
}

void ControlConnections::on_time(Time now) {
    channels_.on_time(now);
    read_channels(now);
    table_.on_time(now);
    replace_due(now);
    act(now);
}

void ControlConnections::settle(Time now) {
    read_channels(now);
    act(now);
}

void ControlConnections::read_channels(Time now) {
    if (!channels_.has_events()) return;
    while (const auto opened = channels_.poll_opened()) on_opened(*opened, now);
    while (const auto greeting = channels_.poll_greeting()) {
        const auto message = wire::decode(greeting->second);
        if (message)
            table_.on_message(greeting->first, *message, now);
        else
            channels_.refuse(greeting->first, Channels::close_garbage, message.error().text);
    }
    while (const auto closed = channels_.poll_closed()) on_closed(*closed, now);
    while (const auto received = channels_.poll_received())
        events_.push_back(PeerReceived{received->peer, received->rtt});
}

void ControlConnections::on_opened(const Opened& opened, Time now) {
    if (opened.theirs.purpose != Purpose::control)
        return channels_.refuse(opened.id, Channels::close_refused, "this port is for control connections");
    if (!opened.agreed) return refuse_version(opened);
    std::string remote = opened.remote;
    if (const auto it = dials_.find(opened.id); it != dials_.end()) {
        remote = it->second.address;
        dials_.erase(it);
    }
    dial_failures_.erase(opened.node);
    table_.on_connected({opened.id, opened.node, opened.we_dialled, remote, opened.generation,
                         opened.theirs.incarnation, *opened.agreed},
                        now);
}

// [V1] A dial counts as one that failed, by the end of the connection that follows.
void ControlConnections::refuse_version(const Opened& opened) {
    const std::string why = channels_.no_common_version(opened);
    events_.push_back(Note{Level::warn,
                           "peer_refused",
                           {{"node", opened.node.short_hex()}, {"address", opened.remote}, {"reason", why}}});
    channels_.refuse(opened.id, Channels::close_refused, why);
}

void ControlConnections::on_closed(const Closed& closed, Time now) {
    const auto it = dials_.find(closed.id);
    if (it == dials_.end()) {
        if (closed.why.by_peer && closed.why.code == Channels::close_goodbye)
            table_.on_closed_with_goodbye(closed.id, closed.why.reason, now);
        return table_.on_closed(closed.id, closed.why.text(), now, closed.rtt);
    }
    const Dial order = it->second;
    dials_.erase(it);
    dial_failed(order, closed.why.text(), now);
}

void ControlConnections::act(Time now) {
    while (auto action = table_.poll_action()) act(now, std::move(*action));
}

void ControlConnections::act(Time now, TableAction action) {
    std::visit(
        [&](auto& a) {
            using A = std::decay_t<decltype(a)>;
            if constexpr (std::is_same_v<A, Dial>) {
                dial(now, a);
            } else if constexpr (std::is_same_v<A, CloseConnection>) {
                channels_.refuse(a.connection, Channels::close_refused, a.reason);
            } else if constexpr (std::is_same_v<A, SendOn>) {
                send_on(a.connection, a.message);
            } else if constexpr (std::is_same_v<A, PeerUp>) {
                if (!channels_.adopt(a.connection, a.info.peer)) return;  // it is closing: its end follows
                reported_.insert(a.info.peer);
                events_.push_back(PeerIsUp{a.info, channels_.remote_of(a.connection)});
            } else if constexpr (std::is_same_v<A, PeerDown>) {
                if (!reported_.contains(a.peer)) return;
                if (a.proof) reported_.erase(a.peer);
                events_.push_back(PeerIsDown{a.peer, a.why, a.proof});
            } else if constexpr (std::is_same_v<A, NodeForgotten>) {
                dial_failures_.erase(a.node);
                channels_.forget(a.node);
            } else {
                events_.push_back(std::move(a));
            }
        },
        action);
}

void ControlConnections::dial(Time now, const Dial& order) {
    std::optional<NodeId> expected;
    if (!order.expected.is_zero()) expected = order.expected;
    const auto id = channels_.dial(now, order.address, expected);
    if (!id) return dial_failed(order, id.error().text, now);
    dials_.emplace(*id, order);
}

void ControlConnections::dial_failed(const Dial& order, const std::string& why, Time now) {
    if (!order.expected.is_zero()) dial_failures_[order.expected] = why;
    table_.on_dial_failed(order.address, order.expected, why, now);
}

std::string ControlConnections::dial_failure(const NodeId& node) const {
    const auto found = dial_failures_.find(node);
    return found == dial_failures_.end() ? std::string() : found->second;
}

void ControlConnections::send_on(ConnectionId id, const wire::Message& message) {
    const auto bytes = wire::encode(message);
    if (const auto peer = channels_.peer_of(id))
        mesh_->send_message(*peer, bytes);
    else
        channels_.greet(id, bytes);
}

void ControlConnections::send(const NodeId& to, const wire::Message& message) {
    if (const auto id = table_.connection_of(to)) send_on(*id, message);
}

void ControlConnections::replace_all(Time now, Duration within) {
    replacements_.clear();
    for (const NodeId& node : table_.connected())
        if (const auto id = table_.connection_of(node))
            replacements_.emplace(
                now + replace_after +
                    Duration(static_cast<int64_t>(random_.below(static_cast<uint64_t>(within.count()) + 1))),
                *id);
}

// Beside the dial schedule: the connection in use goes on until the new one replaces it.
void ControlConnections::replace_due(Time now) {
    while (!replacements_.empty() && replacements_.begin()->first <= now) {
        const ConnectionId id = replacements_.begin()->second;
        replacements_.erase(replacements_.begin());
        const auto node = table_.node_of(id);
        if (node && channels_.peer_of(id)) dial(now, {channels_.remote_of(id), *node});
    }
}

void ControlConnections::say_goodbye(const std::string& reason) {
    table_.say_goodbye(reason);
}

std::optional<ControlEvent> ControlConnections::poll_event() {
    if (events_.empty()) return std::nullopt;
    return events_.pop_front();
}

Time ControlConnections::wake_at() const {
    const Time next = std::min(channels_.wake_at(), table_.wake_at());
    return replacements_.empty() ? next : std::min(next, replacements_.begin()->first);
}

void ControlConnections::check_invariants() const {
    channels_.check_invariants();
    table_.check_invariants();
    for (const NodeId& node : table_.connected()) {
        const ConnectionId id = *table_.connection_of(node);
        const auto peer = channels_.peer_of(id);
        NEXAR_CHECK(!peer || peer == table_.index_of(node));
    }
    for (const auto& [id, order] : dials_) NEXAR_CHECK(!channels_.peer_of(id));
}

}  // namespace nexar::connections
