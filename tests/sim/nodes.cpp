// See nodes.hpp.
#include "nodes.hpp"

#include <algorithm>

namespace nexar::sim {

using namespace connections;

struct Nodes::Node {
    uint32_t number = 0;
    Host* host = nullptr;
    SimPort *control_port = nullptr, *bulk_port = nullptr, *tcp_port = nullptr;  // tcp_port null: none
    std::unique_ptr<ControlConnections> control;
    std::unique_ptr<BulkConnections> bulk;
    std::map<PeerIndex, NodeId> peers;
    std::map<NodeId, BulkState> bulk_states;  // as reported last
    std::map<CarrierKind, size_t> moves;
    std::vector<std::string> notes, note_events;
    std::vector<Happened> happened;
    std::vector<Time> dialled_at;
    size_t messages = 0;
    Time wakes_at = never, last_command{};
    bool in_turn = false;
};

namespace {

std::string bulk_address(const std::string& control) {
    return control + "/bulk";
}

constexpr const char* tcp_suffix = "/tcp";

}  // namespace

Nodes::Nodes(Cluster& cluster) : cluster_(cluster), internet_(cluster.clock, cluster.shape.network) {}
Nodes::~Nodes() = default;

uint32_t Nodes::start(uint32_t identity, uint64_t incarnation, const std::string& address,
                      std::vector<std::string> seeds) {
    auto made = std::make_unique<Node>();
    Node& node = *made;
    node.number = cluster_.add_host(identity, incarnation);
    node.host = cluster_.hosts[node.number].get();
    PeerTableConfig config;
    config.self = {node.host->id, "host" + std::to_string(identity), {address}};
    config.incarnation = node.host->incarnation;
    config.seeds = std::move(seeds);
    config.capabilities = cluster_.capabilities_of(identity);
    BulkConfig bulk;
    bulk.capabilities = config.capabilities;
    bulk.self = node.host->id;
    bulk.incarnation = node.host->incarnation;
    bulk.seed = cluster_.clock.random.next();
    node.control_port = &internet_.open_port(node.host->id, address);
    node.bulk_port = &internet_.open_port(node.host->id, bulk_address(address));
    node.control = std::make_unique<ControlConnections>(config, *node.control_port, *node.host->meshes[0],
                                                        cluster_.clock.random.next(), cluster_.clock.now());
    if (cluster_.tcp_bulk()) {
        node.tcp_port = &internet_.open_port(node.host->id, bulk_address(address) + tcp_suffix);
        node.tcp_port->kind = CarrierKind::tcp;
        node.tcp_port->dial_suffix = tcp_suffix;
    }
    node.bulk =
        std::make_unique<BulkConnections>(bulk, *node.bulk_port, *node.host->meshes[1], node.tcp_port);
    node.control_port->events = &node.control->events();
    node.bulk_port->events = &node.bulk->events();
    if (node.tcp_port) node.tcp_port->events = &node.bulk->events();
    for (SimPort* port : {node.control_port, node.bulk_port, node.tcp_port})
        if (port) port->after_input = [this, &node] { turn(node); };
    node.host->table = [this, &node](link::PeerIndex peer, const wire::Message& message) {
        ++node.messages;
        const bool taken = node.control->on_message(peer, message, cluster_.clock.now());
        turn(node);
        return taken;
    };
    node.host->after_flush = [this, &node] {
        while (const auto peer = node.control->poll_sent())
            node.host->engine->on_sent(cluster_.clock.now(), *peer);
    };
    node.host->close = [this, &node](link::PeerIndex peer) {
        node.control->on_garbage(peer, "the control log was discarded");
        turn(node);
    };
    nodes_[node.number] = std::move(made);
    turn(node);
    return node.number;
}

void Nodes::turn(Node& node) {
    if (node.host->dead || std::exchange(node.in_turn, true)) return;
    const Time now = cluster_.clock.now();
    const size_t dials = node.control_port->dials;
    node.control->on_time(now);
    while (const auto event = node.control->poll_event()) act(node, *event);
    node.bulk->on_time(now);
    while (const auto event = node.bulk->poll_event()) {
        note_carrier(node, *event);
        if (!event->cut_off.empty())
            node.host->engine->on_bulk_cut_off(now, event->peer, event->cut_off, event->why);
    }
    for (size_t i = dials; i < node.control_port->dials; ++i) node.dialled_at.push_back(now);
    node.control->check_invariants();
    node.bulk->check_invariants();
    node.in_turn = false;
    node.host->after_input();
    maybe_move(node);
    const Time wake = std::min(node.control->wake_at(), node.bulk->wake_at());
    if (wake == never || wake == node.wakes_at) return;
    node.wakes_at = wake;
    cluster_.clock.at(wake, [this, &node, wake] {
        if (node.wakes_at != wake) return;
        node.wakes_at = never;
        turn(node);
    });
}

// A daemon has work: now and then a connection of its breaks, or TCP is refused there for a while.
void Nodes::maybe_move(Node& node) {
    const Time now = cluster_.clock.now();
    if (wire_mode() != WireMode::switching || cluster_.shape.tcp_bulk || now < next_move_) return;
    next_move_ = now + Duration(static_cast<int64_t>(moves_.below(20'000'000)));
    const bool refuse = moves_.one_in(2);
    const auto other = std::next(nodes_.begin(), static_cast<ptrdiff_t>(moves_.below(nodes_.size())))->first;
    cluster_.clock.after(Duration{0}, [this, number = node.number, other, refuse] {
        if (refuse) refuse_tcp(number, !nodes_.at(number)->tcp_port->refuses);
        if (number != other) reset_tcp(number, other);
    });
}

void Nodes::note_carrier(Node& node, const BulkState& state) {
    BulkState& before = node.bulk_states[node.peers[state.peer]];
    if (state.up && before.peer == state.peer && before.carrier != state.carrier) ++node.moves[state.carrier];
    before = state;
}

void Nodes::act(Node& node, const ControlEvent& event) {
    const Time now = cluster_.clock.now();
    if (const auto* up = std::get_if<PeerIsUp>(&event)) {
        peer_up(node, *up);
    } else if (const auto* down = std::get_if<PeerIsDown>(&event)) {
        peer_down(node, *down);
    } else if (const auto* received = std::get_if<PeerReceived>(&event)) {
        node.host->engine->on_received(now, received->peer, received->rtt);
    } else if (const auto* failed = std::get_if<RedialFailed>(&event)) {
        node.host->engine->on_redial_failed(now, failed->peer);
    } else if (const auto* note = std::get_if<Note>(&event)) {
        std::string line(note->event);
        for (const auto& [key, value] : note->fields) line += " " + key + "='" + value + "'";
        node.notes.push_back(line);
        node.note_events.emplace_back(note->event);
    }
}

// The shard's commands come a little later, in order.
void Nodes::to_shard(Node& node, std::function<void()> command) {
    node.last_command =
        std::max(node.last_command, cluster_.clock.now() + cluster_.clock.some(cluster_.shape.shard_hop));
    cluster_.clock.at(node.last_command, [this, &node, command = std::move(command)] {
        if (node.host->dead) return;
        command();
        turn(node);
    });
}

void Nodes::peer_up(Node& node, const PeerIsUp& up) {
    const NodeId& peer = up.info.record.node;
    node.peers[up.info.peer] = peer;
    node.happened.push_back({peer, up.info.peer, true, false, {}});
    const KnownPeer known{up.info.peer,         peer,    up.info.incarnation, bulk_address(up.remote),
                          node.host->id < peer, nullptr, cluster_.tcp_bulk()};
    to_shard(node, [this, &node, known] { node.bulk->introduce(known, cluster_.clock.now()); });
    node.host->engine->on_peer_up(cluster_.clock.now(), up.info.peer, peer, up.info.incarnation);
}

void Nodes::peer_down(Node& node, const PeerIsDown& down) {
    node.happened.push_back({node.peers[down.peer], down.peer, false, down.proof, down.why});
    node.host->engine->on_peer_down(cluster_.clock.now(), down.peer, down.why, down.proof);
    if (!down.proof) return;
    node.host->meshes[0]->drop_peer(down.peer);
    to_shard(node, [&node, peer = down.peer] {
        node.bulk->drop(peer);
        node.host->meshes[1]->drop_peer(peer);
    });
}

// ---- Faults and looking ----

void Nodes::kill(uint32_t host, const std::vector<uint32_t>& unaware) {
    Node& node = *nodes_.at(host);
    node.host->dead = true;
    std::vector<const SimPort*> ports;
    for (const uint32_t other : unaware) {
        ports.push_back(nodes_.at(other)->control_port);
        ports.push_back(nodes_.at(other)->bulk_port);
        if (nodes_.at(other)->tcp_port) ports.push_back(nodes_.at(other)->tcp_port);
    }
    node.control_port->kill(ports);
    node.bulk_port->kill(ports);
    if (node.tcp_port) node.tcp_port->kill(ports);
}

void Nodes::leave(uint32_t host) {
    Node& node = *nodes_.at(host);
    node.host->engine->goodbye(cluster_.clock.now(), "maintenance");
    node.control->say_goodbye("maintenance");
    turn(node);
    cluster_.clock.after(5ms, [this, host] { kill(host); });
}

void Nodes::reset(uint32_t a, uint32_t b) {
    nodes_.at(a)->control_port->reset(*nodes_.at(b)->control_port);
}
void Nodes::reset_bulk(uint32_t a, uint32_t b) {
    nodes_.at(a)->bulk_port->reset(*nodes_.at(b)->bulk_port);
}

void Nodes::reset_tcp(uint32_t a, uint32_t b) {
    nodes_.at(a)->tcp_port->reset(*nodes_.at(b)->tcp_port);
}
void Nodes::refuse_tcp(uint32_t host, bool refuses) {
    nodes_.at(host)->tcp_port->refuses = refuses;
}
std::optional<CarrierKind> Nodes::carrier(uint32_t a, uint32_t b) const {
    const auto& states = nodes_.at(a)->bulk_states;
    const auto at = states.find(nodes_.at(b)->host->id);
    if (at == states.end() || !at->second.up) return std::nullopt;
    return at->second.carrier;
}
std::string Nodes::carrier_why(uint32_t a, uint32_t b) const {
    return nodes_.at(a)->bulk_states.at(nodes_.at(b)->host->id).carrier_why;
}
size_t Nodes::carrier_moves(uint32_t host, CarrierKind to) const {
    const auto& moves = nodes_.at(host)->moves;
    const auto at = moves.find(to);
    return at == moves.end() ? 0 : at->second;
}

void Nodes::cut_bulk(uint32_t host) {
    nodes_.at(host)->bulk_port->cut();
    if (nodes_.at(host)->tcp_port) nodes_.at(host)->tcp_port->cut();
}

const PeerTable& Nodes::table(uint32_t host) const {
    return nodes_.at(host)->control->table();
}

bool Nodes::are_connected(const Node& from, const Node& to) const {
    const auto mine = from.control->table().connection_of(to.host->id);
    const auto theirs = to.control->table().connection_of(from.host->id);
    if (!mine || !theirs || from.control_port->other_end(*mine) != theirs) return false;
    const auto my_bulk = from.bulk->conn_of(*from.control->table().index_of(to.host->id));
    const auto their_bulk = to.bulk->conn_of(*to.control->table().index_of(from.host->id));
    if (!my_bulk || !their_bulk) return false;
    if (from.tcp_port && from.tcp_port->other_end(*my_bulk) == their_bulk) return true;
    return from.bulk_port->other_end(*my_bulk) == their_bulk;
}

bool Nodes::meshed(const std::vector<uint32_t>& hosts) const {
    for (const uint32_t a : hosts)
        for (const uint32_t b : hosts)
            if (a != b && !are_connected(*nodes_.at(a), *nodes_.at(b))) return false;
    return true;
}

bool Nodes::noted(uint32_t host, std::string_view event) const {
    const auto& events = nodes_.at(host)->note_events;
    return std::ranges::find(events, event) != events.end();
}
const std::vector<std::string>& Nodes::notes(uint32_t host) const {
    return nodes_.at(host)->notes;
}
const std::vector<Nodes::Happened>& Nodes::happened(uint32_t host) const {
    return nodes_.at(host)->happened;
}
const std::vector<Time>& Nodes::dialled_at(uint32_t host) const {
    return nodes_.at(host)->dialled_at;
}

size_t Nodes::messages(uint32_t host) const {
    return nodes_.at(host)->messages;
}

}  // namespace nexar::sim
