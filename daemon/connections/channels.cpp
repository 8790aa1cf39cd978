#include "connections/channels.hpp"

#include <algorithm>

#include "core/check.hpp"

namespace nexar::connections {
namespace {
constexpr const char* another_is_kept = "another connection of the same two nodes is kept";
}

// One connection: a channel for the mesh, a receiver for the carrier.
struct Channels::Conn final : link::Channel, Receiver {
    Channels* port = nullptr;
    ConnectionId id;
    CarriedConnection* carried = nullptr;  // null: it is being dialled
    NodeId node;
    std::string remote;
    bool we_dialled = false;
    bool counted = false;  // in unidentified_
    bool closing = false;  // we closed it; on_closed() follows
    uint32_t generation = 0;
    Opening opening;
    bool preamble_sent = false;
    bool abandoned = false;               // a dial that nobody waits for
    bool announced = false;               // its Opened was queued
    bool write_noted = false;             // it is in written_
    uint64_t received = 0;                // bytes besides control
    std::optional<link::PeerIndex> peer;  // in use for this one

    size_t room(Class cls) const override { return carried ? carried->room(cls) : 0; }
    size_t held(Class cls) const override {
        if (!carried) return 0;
        const Progress progress = carried->progress(cls);
        return static_cast<size_t>(progress.written - progress.acknowledged);
    }
    void write(Class cls, std::span<const Bytes> parts) override {
        if (!carried) return;
        carried->write(cls, parts);
        if (peer && !std::exchange(write_noted, true)) port->written_.push_back(*peer);
    }
    bool feeding() const { return peer && opening.switched(); }
    bool is_opening() const { return !peer && carried && !closing; }
    void on_bytes(Class cls, Bytes bytes) override {
        if (closing) return;
        if (cls != Class::control) received += bytes.size();
        if (feeding()) return port->mesh_->on_bytes(*peer, cls, bytes);
        if (auto kept = opening.on_bytes(cls, bytes); !kept)
            close(close_garbage, kept.error().text);
        else
            port->received(*this);
    }
    MutableBytes place(Class cls) override {
        return feeding() && !closing ? port->mesh_->place(*peer, cls) : MutableBytes();
    }
    void placed(Class cls, size_t bytes) override {
        received += bytes;  // a payload: never control
        port->mesh_->placed(*peer, cls, bytes);
    }
    void close(uint64_t code, const std::string& reason) {
        if (carried && !std::exchange(closing, true)) carried->close(code, reason);
    }
    bool over_tcp() const { return carried && carried->kind() != CarrierKind::quic; }
    Moved moved() const {
        Moved out{id, {}, received};
        for (const auto cls : {Class::rpc, Class::small, Class::bulk}) {
            const Progress progress = carried->progress(cls);
            out.sent.written += progress.written;
            out.sent.acknowledged += progress.acknowledged;
        }
        return out;
    }
    void control(Bytes bytes) { carried->write(Class::control, std::span(&bytes, 1)); }
    void send_preamble() {
        Preamble p = port->ours_;
        p.generation = generation;
        const auto bytes = to_bytes(p);
        control(Bytes(bytes));
        preamble_sent = true;
    }
    void write_length(uint32_t bytes) { control(std::as_bytes(std::span(&bytes, 1))); }
};

Channels::Channels(Carrier& carrier, link::Mesh& mesh, const NodeId& self, const Preamble& ours)
    : carrier_(&carrier), mesh_(&mesh), self_(self), ours_(ours) {}

Channels::~Channels() {
    for (auto& [id, c] : conns_)
        if (c->carried) c->carried->set_receiver(nullptr);
}

Channels::Conn* Channels::find(ConnectionId id) const {
    const auto it = conns_.find(id);
    return it == conns_.end() ? nullptr : it->second.get();
}

Result<ConnectionId> Channels::dial(Time now, const std::string& address,
                                    const std::optional<NodeId>& expected, Carrier* over) {
    NEXAR_TRY(const ConnectionId id, (over ? over : carrier_)->dial(now, address, expected));
    auto c = std::make_unique<Conn>();
    c->port = this;
    c->id = id;
    c->node = expected.value_or(NodeId{});
    c->remote = address;
    c->we_dialled = true;
    conns_.emplace(id, std::move(c));
    return id;
}

void Channels::abandon(ConnectionId dial) {
    Conn* c = find(dial);
    if (!c || c->peer) return;
    c->abandoned = !c->carried;
    const auto used = generations_.find(c->node);
    if (used != generations_.end() && c->generation < used->second) c->close(close_replaced, another_is_kept);
}

void Channels::give_up(ConnectionId dial) {
    Conn* c = find(dial);
    if (c && !c->carried) c->abandoned = true;
}

// Above all that this side has seen, and above its own earlier dials, of which two may be answered. When both
// ends dial at once, from the same state, the lower NodeId's connection gets the higher number: it is the one
// that stays.
uint32_t Channels::next_generation(const NodeId& node, bool we_dial) const {
    const auto used = generations_.find(node), proposed = proposed_.find(node);
    uint32_t last = used == generations_.end() ? 0 : used->second;
    if (we_dial && proposed != proposed_.end()) last = std::max(last, proposed->second);
    const uint32_t base = (last / 2 + 1) * 2;
    const bool lower_dials = (self_ < node) == we_dial;
    return base + (lower_dials ? 1 : 0);
}

void Channels::on_connected(Time now, const Connected& connected, CarriedConnection& connection) {
    Conn* c = find(connected.id);
    if (!c) {
        auto made = std::make_unique<Conn>();
        made->port = this;
        made->id = connected.id;
        made->remote = connected.remote;
        c = made.get();
        conns_.emplace(connected.id, std::move(made));
    }
    NEXAR_CHECK(!c->carried);
    c->node = connected.node;
    c->carried = &connection;
    if (c->abandoned) return c->close(close_replaced, another_is_kept);
    if (c->we_dialled) proposed_[c->node] = c->generation = next_generation(c->node, true);
    if (!c->we_dialled) {
        if (const auto at = unidentified_.find(c->node);
            at != unidentified_.end() && at->second >= opening_per_node_max)
            return c->close(close_refused, "this node has " + std::to_string(opening_per_node_max) +
                                               " connections here that are not accepted yet: no more");
        c->counted = true;
        ++unidentified_[c->node];
    }
    openings_.emplace_back(now + opening_patience, c->id);
    if (c->we_dialled) c->send_preamble();
    connection.hold_credit(true);
    connection.set_receiver(c);
}

// In use, or ended.
void Channels::identified(Conn& c) {
    if (!std::exchange(c.counted, false)) return;
    const auto at = unidentified_.find(c.node);
    if (--at->second == 0) unidentified_.erase(at);
}

void Channels::received(Conn& c) {
    if (c.opening.preamble() && !c.announced) opened(c);
    while (auto greeting = c.opening.poll_greeting()) greetings_.emplace_back(c.id, std::move(*greeting));
    if (c.feeding()) feed(c);
}

void Channels::opened(Conn& c) {
    c.announced = true;
    const Preamble& theirs = *c.opening.preamble();
    if (c.we_dialled) {
        c.generation = theirs.generation;
    } else {
        c.generation = std::max(theirs.generation, next_generation(c.node, false));
        c.send_preamble();
    }
    opened_.push_back({c.id, c.node, theirs, c.remote, c.we_dialled, c.generation, c.carried->kind(),
                       agreed(ours_.capabilities, theirs.capabilities)});
}

// What came before both sides had accepted each other.
void Channels::feed(Conn& c) {
    for (size_t i = 0; i < class_count; ++i) {
        const auto cls = static_cast<Class>(i);
        const auto early = c.opening.take(cls);
        if (!early.empty() && c.peer) mesh_->on_bytes(*c.peer, cls, early);
    }
    c.carried->hold_credit(false);
}

void Channels::greet(ConnectionId id, Bytes message) {
    Conn* c = find(id);
    if (!c || !c->is_opening()) return;
    NEXAR_CHECK(c->preamble_sent && message.size() <= greeting_bytes_max);
    c->write_length(static_cast<uint32_t>(message.size()));
    c->control(message);
}

void Channels::forget(const NodeId& node) {
    generations_.erase(node);
    proposed_.erase(node);
}

bool Channels::adopt(ConnectionId id, link::PeerIndex peer) {
    Conn* c = find(id);
    if (!c || !c->is_opening()) return false;  // it ended meanwhile; its Closed follows
    NEXAR_CHECK(c->announced);
    uint32_t& last = generations_[c->node];
    if (c->generation <= last) {
        c->close(close_replaced, "a newer connection of the same two nodes is in use");
        return false;
    }
    last = c->generation;
    if (const auto at = proposed_.find(c->node); at != proposed_.end() && at->second <= last)
        proposed_.erase(at);
    if (const auto old = peers_.find(peer); old != peers_.end()) {
        Conn& before = *old->second;
        before.peer.reset();
        mesh_->detach(peer);
        before.close(close_replaced, another_is_kept);
    }
    identified(*c);
    peers_[peer] = c;
    c->peer = peer;
    c->write_length(0);
    mesh_->attach(peer, c->generation, *c);
    if (c->feeding()) feed(*c);
    return true;
}

void Channels::refuse(ConnectionId id, uint64_t code, const std::string& reason) {
    if (Conn* c = find(id)) c->close(code, reason);
}

void Channels::close(link::PeerIndex peer, uint64_t code, const std::string& reason) {
    if (const auto it = peers_.find(peer); it != peers_.end()) it->second->close(code, reason);
}

void Channels::on_time(Time now) {
    while (!openings_.empty()) {
        const auto [end, id] = openings_.front();
        Conn* c = find(id);
        const bool opening = c && c->is_opening();
        if (opening && now < end) return;
        openings_.pop_front();
        if (opening)
            c->close(c->opening.preamble() ? close_refused : close_garbage,
                     c->opening.preamble() ? "not accepted within 5 s" : "no preamble within 5 s");
    }
}

void Channels::on_closed(Time, ConnectionId id, const ClosedBy& why) {
    const auto at = conns_.find(id);
    if (at == conns_.end()) return;
    Conn& c = *at->second;
    closed_.push_back({id, c.node, c.peer, c.we_dialled, c.carried ? c.carried->rtt() : Duration{}, why,
                       c.over_tcp() ? c.moved() : Moved{}});
    identified(c);
    if (c.peer) {
        mesh_->detach(*c.peer);
        peers_.erase(*c.peer);
    }
    conns_.erase(at);
}

void Channels::on_room(ConnectionId id) {
    const Conn* c = find(id);
    if (c && c->peer) mesh_->on_room(*c->peer);
}

void Channels::on_received(ConnectionId id) {
    const Conn* c = find(id);
    if (c && c->peer) received_.push_back({*c->peer, c->carried->rtt()});
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

std::optional<Opened> Channels::poll_opened() {
    return pop(opened_);
}
std::optional<Closed> Channels::poll_closed() {
    return pop(closed_);
}
std::optional<Channels::Received> Channels::poll_received() {
    return pop(received_);
}
std::optional<std::pair<ConnectionId, std::vector<std::byte>>> Channels::poll_greeting() {
    return pop(greetings_);
}
std::optional<link::PeerIndex> Channels::poll_written() {
    auto peer = pop(written_);
    if (peer)
        if (const auto at = peers_.find(*peer); at != peers_.end()) at->second->write_noted = false;
    return peer;
}

std::optional<ConnectionId> Channels::conn_of(link::PeerIndex peer) const {
    const auto it = peers_.find(peer);
    if (it == peers_.end()) return std::nullopt;
    return it->second->id;
}

std::optional<link::PeerIndex> Channels::peer_of(ConnectionId id) const {
    const Conn* c = find(id);
    return c ? c->peer : std::nullopt;
}

std::string Channels::remote_of(ConnectionId id) const {
    const Conn* c = find(id);
    return c ? c->remote : std::string();
}

Progress Channels::progress(link::PeerIndex peer, Class cls) const {
    const auto at = peers_.find(peer);
    return at == peers_.end() ? Progress{} : at->second->carried->progress(cls);
}

std::optional<Moved> Channels::moved_over_tcp(link::PeerIndex peer) const {
    const auto at = peers_.find(peer);
    if (at == peers_.end() || !at->second->over_tcp()) return std::nullopt;
    return at->second->moved();
}

std::string Channels::no_common_version(const Opened& opened) const {
    const Capabilities &ours = ours_.capabilities, &theirs = opened.theirs.capabilities;
    const NodeId& older = theirs.version_max < ours.version_min ? opened.node : self_;
    return "node " + opened.node.short_hex() + " speaks " + theirs.versions() + ", node " +
           self_.short_hex() + " speaks " + ours.versions() + ": upgrade node " + older.short_hex();
}

void Channels::check_invariants() const {
    size_t in_use = 0;
    std::map<NodeId, size_t> counted;
    for (const auto& [id, c] : conns_) {
        NEXAR_CHECK(c->id == id && (c->carried || c->we_dialled));
        NEXAR_CHECK(!c->counted || (!c->peer && !c->we_dialled));
        if (c->counted) ++counted[c->node];
        if (!c->peer) continue;
        ++in_use;
        NEXAR_CHECK(peers_.at(*c->peer) == c.get() && c->announced);
        const auto last = generations_.find(c->node);
        NEXAR_CHECK(last == generations_.end() || c->generation <= last->second);
    }
    NEXAR_CHECK(in_use == peers_.size());
    NEXAR_CHECK(counted == unidentified_);
    for (const auto& [node, count] : unidentified_) NEXAR_CHECK(count <= opening_per_node_max);
}

}  // namespace nexar::connections
