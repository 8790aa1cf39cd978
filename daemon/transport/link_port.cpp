#include "transport/link_port.hpp"

#include <algorithm>

#include "core/check.hpp"

namespace nexar::transport {

using connections::Opening;
using connections::Preamble;

// One connection: a channel for the mesh, a receiver for QUIC.
struct LinkPort::Conn final : link::Channel, quic::Receiver {
    LinkPort* port = nullptr;
    quic::ConnId id;
    quic::Connection* quic = nullptr;  // null: it has ended
    NodeId node;
    quic::Address remote;
    bool we_dialled = false;
    uint32_t generation = 0;
    Opening opening;
    bool preamble_sent = false;
    bool announced = false;
    std::optional<link::PeerIndex> peer;

    size_t room(link::Class cls) const override {
        return quic ? quic->room(static_cast<quic::Class>(cls)) : 0;
    }
    void write(link::Class cls, std::span<const Bytes> parts) override {
        if (quic) quic->write(static_cast<quic::Class>(cls), parts);
    }
    bool feeding() const { return peer && opening.switched(); }
    bool is_opening() const { return !peer && quic && quic->is_open(); }
    void on_bytes(quic::Class cls, Bytes bytes) override {
        const auto c = static_cast<link::Class>(cls);
        if (feeding()) return port->mesh_->on_bytes(*peer, c, bytes);
        if (auto kept = opening.on_bytes(c, bytes); !kept)
            quic->close(close_garbage, kept.error().text);
        else
            port->received(*this);
    }
    void send_preamble() {
        Preamble p = port->ours_;
        p.generation = generation;
        const auto bytes = to_bytes(p);
        quic->write(quic::Class::control, Bytes(bytes));
        preamble_sent = true;
    }
    void write_length(uint32_t bytes) {
        quic->write(quic::Class::control, std::as_bytes(std::span(&bytes, 1)));
    }
};

LinkPort::LinkPort(quic::Endpoint& endpoint, link::Mesh& mesh, const NodeId& self, Preamble ours)
    : endpoint_(&endpoint), mesh_(&mesh), ours_(ours), self_(self) {}

LinkPort::~LinkPort() {
    for (auto& [id, c] : conns_)
        if (auto* quic = endpoint_->find(id)) quic->set_receiver(nullptr);
}

LinkPort::Conn* LinkPort::find(quic::ConnId id) {
    const auto it = conns_.find(id);
    return it == conns_.end() ? nullptr : it->second.get();
}

Result<quic::ConnId> LinkPort::dial(Time now, const quic::Address& local, const quic::Address& remote,
                                    const std::optional<NodeId>& expected) {
    NEXAR_TRY(const quic::ConnId id, endpoint_->connect(now, local, remote, quic::alpn_nexar, expected));
    auto c = std::make_unique<Conn>();
    c->port = this;
    c->id = id;
    c->node = expected.value_or(NodeId{});
    c->remote = remote;
    c->we_dialled = true;
    conns_.emplace(id, std::move(c));
    return id;
}

// Above all that this side has seen. When both ends dial at once, from the same state, the lower NodeId's
// connection gets the higher number: it is the one that stays.
uint32_t LinkPort::next_generation(const NodeId& node, bool we_dial) const {
    const auto it = generations_.find(node);
    const uint32_t base = it == generations_.end() ? 2 : (it->second / 2 + 1) * 2;
    const bool lower_dials = (self_ < node) == we_dial;
    return base + (lower_dials ? 1 : 0);
}

void LinkPort::received(Conn& c) {
    if (c.opening.preamble() && !c.announced) opened(c);
    while (auto greeting = c.opening.poll_greeting()) greetings_.emplace_back(c.id, std::move(*greeting));
    if (c.feeding()) feed(c);
}

void LinkPort::opened(Conn& c) {
    c.announced = true;
    const Preamble& theirs = *c.opening.preamble();
    if (c.we_dialled) {
        c.generation = theirs.generation;
    } else {
        c.generation = std::max(theirs.generation, next_generation(c.node, false));
        c.send_preamble();
    }
    opened_.push_back({c.id, c.node, theirs, c.remote, c.we_dialled, c.generation});
}

// What came before both sides had accepted each other.
void LinkPort::feed(Conn& c) {
    for (size_t i = 0; i < link::class_count; ++i) {
        const auto cls = static_cast<link::Class>(i);
        const auto early = c.opening.take(cls);
        if (!early.empty() && c.peer) mesh_->on_bytes(*c.peer, cls, early);
    }
    if (c.quic) c.quic->hold_credit(false);
}

void LinkPort::greet(quic::ConnId conn, Bytes message) {
    Conn* c = find(conn);
    if (!c || !c->quic || c->peer) return;
    NEXAR_CHECK(c->preamble_sent && message.size() <= connections::greeting_bytes_max);
    c->write_length(static_cast<uint32_t>(message.size()));
    c->quic->write(quic::Class::control, message);
}

bool LinkPort::adopt(quic::ConnId conn, link::PeerIndex peer) {
    Conn* c = find(conn);
    if (!c || !c->quic || c->peer) return false;  // it ended meanwhile; its Closed follows
    uint32_t& last = generations_[c->node];
    if (c->generation <= last) {
        c->quic->close(close_replaced, "a newer connection of the same two nodes is in use");
        return false;
    }
    last = c->generation;
    if (const auto old = peers_.find(peer); old != peers_.end()) {
        Conn& before = *old->second;
        before.peer.reset();
        mesh_->detach(peer);
        if (before.quic)
            before.quic->close(close_replaced, "another connection of the same two nodes is kept");
    }
    peers_[peer] = c;
    c->peer = peer;
    c->write_length(0);
    mesh_->attach(peer, c->generation, *c);
    if (c->feeding()) feed(*c);
    return true;
}

void LinkPort::refuse(quic::ConnId conn, uint64_t code, const std::string& reason) {
    Conn* c = find(conn);
    if (c && c->quic) c->quic->close(code, reason);
}

void LinkPort::close(link::PeerIndex peer, uint64_t code, const std::string& reason) {
    if (const auto it = peers_.find(peer); it != peers_.end()) refuse(it->second->id, code, reason);
}

size_t LinkPort::openings_of(const NodeId& node) {
    return static_cast<size_t>(std::count_if(openings_.begin(), openings_.end(), [&](const auto& opening) {
        const Conn* c = find(opening.second);
        return c && c->is_opening() && !c->we_dialled && c->node == node;
    }));
}

void LinkPort::connected(Time now, const quic::Event& event) {
    Conn* c = find(event.conn);
    if (!c) {
        auto made = std::make_unique<Conn>();
        made->port = this;
        made->id = event.conn;
        c = made.get();
        conns_.emplace(event.conn, std::move(made));
    }
    const bool too_many = !c->we_dialled && openings_of(event.peer) >= opening_per_node_max;
    c->node = event.peer;
    c->generation = next_generation(c->node, true);
    c->remote = event.remote;
    c->quic = endpoint_->find(event.conn);
    NEXAR_CHECK(c->quic != nullptr);
    if (too_many)
        return c->quic->close(close_refused, "this node has " + std::to_string(opening_per_node_max) +
                                                 " connections here that are not accepted yet: no more");
    openings_.emplace_back(now + opening_patience, c->id);
    if (c->we_dialled) c->send_preamble();
    c->quic->hold_credit(true);
    c->quic->set_receiver(c);
}

void LinkPort::on_time(Time now) {
    while (!openings_.empty()) {
        const auto [end, id] = openings_.front();
        Conn* c = find(id);
        const bool opening = c && c->is_opening();
        if (opening && now < end) return;
        openings_.pop_front();
        if (opening)
            c->quic->close(c->opening.preamble() ? close_refused : close_garbage,
                           c->opening.preamble() ? "not accepted within 5 s" : "no preamble within 5 s");
    }
}

void LinkPort::on_event(Time now, const quic::Event& event) {
    using Kind = quic::Event::Kind;
    Conn* c = find(event.conn);
    switch (event.kind) {
        case Kind::connected:
            connected(now, event);
            break;
        case Kind::closed: {
            Closed closed{event.conn, event.peer, std::nullopt, event.remote, event.we_dialled, event.close};
            if (c) {
                closed.node = c->node;
                closed.peer = c->peer;
                if (c->peer) {
                    mesh_->detach(*c->peer);
                    peers_.erase(*c->peer);
                }
                conns_.erase(event.conn);
            }
            closed_.push_back(std::move(closed));
            break;
        }
        case Kind::room:
            if (c && c->peer) mesh_->on_room(*c->peer);
            break;
        case Kind::heard:
            if (c && c->peer) heard_.push_back(*c->peer);
            break;
        case Kind::refused:
            break;  // the owner logs it
    }
}

namespace {
template <class T>
std::optional<T> pop(std::deque<T>& queue) {
    if (queue.empty()) return std::nullopt;
    std::optional<T> front(std::move(queue.front()));
    queue.pop_front();
    return front;
}
}  // namespace

std::optional<Opened> LinkPort::poll_opened() {
    return pop(opened_);
}
std::optional<Closed> LinkPort::poll_closed() {
    return pop(closed_);
}
std::optional<link::PeerIndex> LinkPort::poll_heard() {
    return pop(heard_);
}
std::optional<std::pair<quic::ConnId, std::vector<std::byte>>> LinkPort::poll_greeting() {
    return pop(greetings_);
}

std::optional<quic::ConnectionStats> LinkPort::stats(link::PeerIndex peer) const {
    const auto it = peers_.find(peer);
    if (it == peers_.end() || !it->second->quic) return std::nullopt;
    return it->second->quic->stats();
}

std::optional<quic::Address> LinkPort::remote_of(link::PeerIndex peer) const {
    const auto it = peers_.find(peer);
    if (it == peers_.end()) return std::nullopt;
    return it->second->remote;
}

std::optional<quic::ConnId> LinkPort::conn_of(link::PeerIndex peer) const {
    const auto it = peers_.find(peer);
    if (it == peers_.end()) return std::nullopt;
    return it->second->id;
}

std::optional<link::PeerIndex> LinkPort::peer_of(quic::ConnId conn) const {
    const auto it = conns_.find(conn);
    return it == conns_.end() ? std::nullopt : it->second->peer;
}

quic::Address LinkPort::address_of(quic::ConnId conn) const {
    const auto it = conns_.find(conn);
    return it == conns_.end() ? quic::Address{} : it->second->remote;
}

}  // namespace nexar::transport
