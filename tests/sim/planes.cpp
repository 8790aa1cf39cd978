// See planes.hpp.
#include "planes.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>

#include "wire/codec.hpp"

namespace nexar::sim {

using connections::ConnectionId;

struct Planes::End {
    ConnectionId id;
    Plane* plane = nullptr;
    Wire* wire = nullptr;
    End* other = nullptr;
    bool we_dialled = false, announced = false, open = true;
    uint32_t generation = 0;
    connections::Dial order;  // of the dialler
    connections::Opening opening;
    std::optional<link::PeerIndex> peer;
    std::unique_ptr<Pipe> out, bulk;  // to the other end

    bool feeding() const { return peer && opening.switched(); }
    void control(Bytes bytes) { out->write(link::Class::control, std::span(&bytes, 1)); }
    void write_length(uint32_t bytes) { control(std::as_bytes(std::span(&bytes, 1))); }
    void send_preamble();
};

struct Planes::Wire {
    End ends[2];  // 0: the dialler's
};

struct Planes::Plane {
    uint32_t number = 0;
    Host* host = nullptr;
    std::string address;
    std::unique_ptr<connections::PeerTable> table;
    std::map<ConnectionId, End*> ends;
    std::map<link::PeerIndex, End*> peers;
    std::map<NodeId, uint32_t> generations;
    std::vector<std::string> notes, note_events;
    size_t dials = 0;
    Time wakes_at = never;
    bool settling = false;

    // LinkPort::next_generation.
    uint32_t next_generation(const NodeId& node, bool we_dial) const {
        const auto it = generations.find(node);
        const uint32_t base = it == generations.end() ? 2 : (it->second / 2 + 1) * 2;
        return base + ((host->id < node) == we_dial ? 1 : 0);
    }
};

void Planes::End::send_preamble() {
    connections::Preamble p;
    p.generation = generation;
    p.incarnation = plane->host->incarnation;
    const auto bytes = connections::to_bytes(p);
    control(Bytes(bytes));
}

Planes::Planes(Cluster& cluster) : cluster_(cluster) {}
Planes::~Planes() = default;

Duration Planes::delay() {
    return 50us + cluster_.clock.some(500us);
}

uint32_t Planes::start(uint32_t identity, uint64_t life, const std::string& address,
                       std::vector<std::string> seeds) {
    auto plane = std::make_unique<Plane>();
    plane->number = cluster_.add_host(identity, life);
    plane->host = cluster_.hosts[plane->number].get();
    plane->address = address;
    connections::PeerTableConfig config;
    config.self = {plane->host->id, "host" + std::to_string(identity), {address}};
    config.incarnation = plane->host->incarnation;
    config.seeds = std::move(seeds);
    plane->table = std::make_unique<connections::PeerTable>(config, Random(cluster_.clock.random.next()),
                                                            cluster_.clock.now());
    plane->host->table = [this, p = plane.get()](link::PeerIndex peer, const wire::Message& message) {
        const auto at = p->peers.find(peer);
        if (at == p->peers.end()) return false;
        const bool taken = p->table->on_message(at->second->id, message, cluster_.clock.now());
        settle(*p);
        return taken;
    };
    Plane& made = *plane;
    planes_[made.number] = std::move(plane);
    settle(made);
    return made.number;
}

// ---- The table's turn ----

void Planes::settle(Plane& plane) {
    if (plane.host->dead || std::exchange(plane.settling, true)) return;
    plane.table->on_time(cluster_.clock.now());
    while (const auto action = plane.table->poll_action()) act(plane, *action);
    plane.settling = false;
    plane.host->after_input();
    const Time wake = plane.table->wake_at();
    if (wake == never || wake == plane.wakes_at) return;
    plane.wakes_at = wake;
    cluster_.clock.at(wake, [this, &plane, wake] {
        if (plane.wakes_at != wake) return;
        plane.wakes_at = never;
        settle(plane);
    });
}

void Planes::act(Plane& plane, const connections::TableAction& action) {
    if (const auto* order = std::get_if<connections::Dial>(&action)) {
        dial(plane, *order);
    } else if (const auto* end = std::get_if<connections::CloseConnection>(&action)) {
        if (const auto at = plane.ends.find(end->connection); at != plane.ends.end())
            close(*at->second, end->reason);
    } else if (const auto* say = std::get_if<connections::SendOn>(&action)) {
        send_on(plane, *say);
    } else if (const auto* up = std::get_if<connections::PeerUp>(&action)) {
        peer_up(plane, *up);
    } else if (const auto* down = std::get_if<connections::PeerDown>(&action)) {
        peer_down(plane, *down);
    } else if (const auto* failed = std::get_if<connections::RedialFailed>(&action)) {
        plane.host->engine->on_redial_failed(cluster_.clock.now(), failed->peer);
    } else if (const auto* note = std::get_if<connections::Note>(&action)) {
        std::string line(note->event);
        for (const auto& [key, value] : note->fields) line += " " + key + "='" + value + "'";
        plane.notes.push_back(line);
        plane.note_events.emplace_back(note->event);
    }
}

void Planes::send_on(Plane& plane, const connections::SendOn& order) {
    const auto at = plane.ends.find(order.connection);
    if (at == plane.ends.end()) return;
    End& end = *at->second;
    const auto bytes = wire::encode(order.message);
    if (end.peer) {
        plane.host->meshes[0]->send_message(*end.peer, bytes);
        plane.host->schedule_pump(0);
    } else if (end.open) {
        end.write_length(static_cast<uint32_t>(bytes.size()));
        end.control(bytes);
    }
}

void Planes::peer_up(Plane& plane, const connections::PeerUp& up) {
    const auto at = plane.ends.find(up.connection);
    if (at == plane.ends.end() || !adopt(*at->second, up.info.peer)) return;
    plane.host->engine->on_peer_up(cluster_.clock.now(), up.info.peer, up.info.record.node,
                                   up.info.incarnation);
    if (at->second->other->peer) open_bulk(*at->second->wire);
}

void Planes::peer_down(Plane& plane, const connections::PeerDown& down) {
    plane.host->engine->on_peer_down(cluster_.clock.now(), down.peer, down.why, down.proof);
    if (!down.proof) return;
    for (auto& mesh : plane.host->meshes) mesh->drop_peer(down.peer);
}

// ---- Connections (LinkPort) ----

void Planes::dial(Plane& plane, const connections::Dial& order) {
    ++plane.dials;
    cluster_.clock.after(delay(), [this, &plane, order] {
        if (plane.host->dead) return;
        const auto there = std::ranges::find_if(planes_, [&](const auto& p) {
            return !p.second->host->dead && p.second->address == order.address;
        });
        const bool is_expected =
            there != planes_.end() && (order.expected.is_zero() || order.expected == there->second->host->id);
        if (!is_expected) {
            plane.table->on_dial_failed(order.address, order.expected, "nobody, or another node",
                                        cluster_.clock.now());
            return settle(plane);
        }
        ++connections_made;
        Wire& wire = *wires_.emplace_back(std::make_unique<Wire>());
        Plane* sides[] = {&plane, there->second.get()};
        for (size_t i = 0; i < 2; ++i) {
            End& end = wire.ends[i];
            end.id = ConnectionId(next_connection_++);
            end.plane = sides[i];
            end.wire = &wire;
            end.other = &wire.ends[1 - i];
            end.we_dialled = i == 0;
            end.order = order;
            end.generation = end.plane->next_generation(sides[1 - i]->host->id, true);
            end.plane->ends[end.id] = &end;
            End* to = end.other;
            end.out = std::make_unique<Pipe>(
                cluster_.clock, cluster_.shape.network,
                [this, to](link::Class cls, Bytes bytes) { on_bytes(*to, cls, bytes); },
                [&end] {
                    if (end.plane->host->dead || !end.peer) return;
                    end.plane->host->meshes[0]->on_room(*end.peer);
                    end.plane->host->schedule_pump(0);
                });
        }
        wire.ends[0].send_preamble();
    });
}

void Planes::on_bytes(End& end, link::Class cls, Bytes bytes) {
    Plane& plane = *end.plane;
    if (plane.host->dead || !end.open) return;
    if (end.feeding()) {
        plane.host->engine->on_heard(cluster_.clock.now(), *end.peer);
        plane.host->meshes[0]->on_bytes(*end.peer, cls, bytes);
        plane.host->schedule_pump(0);
        return;
    }
    REQUIRE(end.opening.on_bytes(cls, bytes));
    if (end.opening.preamble() && !end.announced) opened(end);
    while (auto greeting = end.opening.poll_greeting()) {
        const auto message = wire::decode(*greeting);
        REQUIRE(message);
        plane.table->on_message(end.id, *message, cluster_.clock.now());
    }
    settle(plane);
    if (end.feeding()) feed(end);
}

void Planes::opened(End& end) {
    end.announced = true;
    const uint32_t theirs = end.opening.preamble()->generation;
    const NodeId& node = end.other->plane->host->id;
    if (end.we_dialled) {
        end.generation = theirs;
    } else {
        end.generation = std::max(theirs, end.plane->next_generation(node, false));
        end.send_preamble();
    }
    const std::string remote = end.we_dialled ? end.order.address : end.other->plane->address + " (from)";
    end.plane->table->on_connected(
        {end.id, node, end.we_dialled, remote, end.generation, end.opening.preamble()->incarnation},
        cluster_.clock.now());
}

void Planes::feed(End& end) {
    for (size_t i = 0; i < link::class_count; ++i) {
        const auto cls = static_cast<link::Class>(i);
        const auto early = end.opening.take(cls);
        if (!early.empty()) end.plane->host->meshes[0]->on_bytes(*end.peer, cls, early);
    }
    end.plane->host->schedule_pump(0);
}

bool Planes::adopt(End& end, link::PeerIndex peer) {
    Plane& plane = *end.plane;
    if (!end.open || end.peer) return false;
    uint32_t& last = plane.generations[end.other->plane->host->id];
    if (end.generation <= last) {
        close(end, "a newer connection of the same two nodes is in use");
        return false;
    }
    last = end.generation;
    if (const auto old = plane.peers.find(peer); old != plane.peers.end()) {
        End& before = *old->second;
        before.peer.reset();
        for (auto& mesh : plane.host->meshes) mesh->detach(peer);
        close(before, "another connection of the same two nodes is kept");
    }
    plane.peers[peer] = &end;
    end.peer = peer;
    end.write_length(0);
    plane.host->meshes[0]->attach(peer, end.generation, *end.out);
    plane.host->schedule_pump(0);
    if (end.feeding()) feed(end);
    return true;
}

void Planes::open_bulk(Wire& wire) {
    const auto [low, high] = std::minmax(wire.ends[0].plane->number, wire.ends[1].plane->number);
    const uint32_t generation = ++bulk_generations_[{low, high}];
    for (End& end : wire.ends) {
        End* to = end.other;
        end.bulk = std::make_unique<Pipe>(
            cluster_.clock, cluster_.shape.network,
            [to](link::Class cls, Bytes bytes) {
                if (to->plane->host->dead || !to->peer) return;
                to->plane->host->meshes[1]->on_bytes(*to->peer, cls, bytes);
                to->plane->host->schedule_pump(1);
            },
            [&end] {
                if (end.plane->host->dead || !end.peer) return;
                end.plane->host->meshes[1]->on_room(*end.peer);
                end.plane->host->schedule_pump(1);
            });
    }
    for (End& end : wire.ends) {
        end.plane->host->meshes[1]->attach(*end.peer, generation, *end.bulk);
        end.plane->host->schedule_pump(1);
    }
}

// From this side: at once here, a little later there. What was sent before arrives before, if the pipe lets
// it.
void Planes::close(End& end, const std::string& why) {
    if (!std::exchange(end.open, false)) return;
    End* other = end.other;
    cluster_.clock.after(Duration{0}, [this, &end, why] { closed(end, "closed here: " + why); });
    cluster_.clock.after(delay(), [this, other, why] {
        if (std::exchange(other->open, false)) closed(*other, "closed by the peer: " + why);
    });
}

void Planes::closed(End& end, const std::string& why) {
    Plane& plane = *end.plane;
    end.out->close();
    if (end.bulk) end.bulk->close();
    plane.ends.erase(end.id);
    if (plane.host->dead) return;
    if (end.peer) {
        for (auto& mesh : plane.host->meshes) mesh->detach(*end.peer);
        plane.peers.erase(*end.peer);
        end.peer.reset();
    }
    if (end.announced)
        plane.table->on_closed(end.id, why, cluster_.clock.now());
    else if (end.we_dialled)
        plane.table->on_dial_failed(end.order.address, end.order.expected, why, cluster_.clock.now());
    settle(plane);
}

// ---- Faults and looking ----

void Planes::kill(uint32_t host, const std::vector<uint32_t>& unheard) {
    Plane& plane = *planes_.at(host);
    plane.host->dead = true;
    for (const auto& [id, end] : std::map(plane.ends)) {
        const bool heard = std::ranges::find(unheard, end->other->plane->number) == unheard.end();
        if (heard) close(*end, "reset");
        end->out->close();
        if (end->bulk) end->bulk->close();
    }
}

void Planes::leave(uint32_t host) {
    Plane& plane = *planes_.at(host);
    plane.host->engine->goodbye(cluster_.clock.now(), "maintenance");
    plane.table->say_goodbye("maintenance");
    settle(plane);
    cluster_.clock.after(5ms, [this, host] { kill(host); });
}

void Planes::reset(uint32_t a, uint32_t b) {
    for (const auto& [id, end] : std::map(planes_.at(a)->ends))
        if (end->other->plane->number == b) close(*end, "reset");
}

const connections::PeerTable& Planes::table(uint32_t host) const {
    return *planes_.at(host)->table;
}

bool Planes::meshed(const std::vector<uint32_t>& hosts) const {
    for (const uint32_t a : hosts)
        for (const uint32_t b : hosts) {
            if (a == b) continue;
            const Plane &from = *planes_.at(a), &to = *planes_.at(b);
            const auto mine = from.table->connection_of(to.host->id);
            const auto theirs = to.table->connection_of(from.host->id);
            if (!mine || !theirs || !from.ends.contains(*mine)) return false;
            const End& end = *from.ends.at(*mine);
            if (!end.feeding() || end.other->id != *theirs || !end.bulk) return false;
        }
    return true;
}

bool Planes::noted(uint32_t host, std::string_view event) const {
    return std::ranges::find(planes_.at(host)->note_events, event) != planes_.at(host)->note_events.end();
}
const std::vector<std::string>& Planes::notes(uint32_t host) const {
    return planes_.at(host)->notes;
}
size_t Planes::dials(uint32_t host) const {
    return planes_.at(host)->dials;
}

}  // namespace nexar::sim
