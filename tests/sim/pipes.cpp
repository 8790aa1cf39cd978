// The network between the hosts of a Cluster, and the moves of its bulk connections between the carriers in
// the middle of their work (wire_mode.hpp).
#include <algorithm>
#include <utility>

#include "cluster.hpp"

namespace nexar::sim {

void Cluster::make_pipes(uint32_t from, uint32_t to) {
    Link& l = link(from, to);
    for (auto& pipe : l.pipes) {
        pipe->close();
        retired_.push_back(std::move(pipe));
    }
    l.pipes.clear();
    for (size_t m = 0; m < meshes_per_host; ++m) l.pipes.push_back(make_pipe_of(from, to, m));
    l.up = true;
    l.bulk_blocked = false;
}

std::unique_ptr<Pipe> Cluster::make_pipe_of(uint32_t from, uint32_t to, size_t m) {
    const Link& l = link(from, to);
    Host& sender = *hosts[from];
    Host& receiver = *hosts[to];
    const auto deliver = [&receiver, m, from](Class cls, Bytes bytes) {
        if (receiver.dead) return;
        if (m == 0) receiver.engine->on_received(receiver.cluster_.clock.now(), link::PeerIndex(from));
        receiver.meshes[m]->on_bytes(link::PeerIndex(from), cls, bytes);
        receiver.meshes[m]->check_invariants();
        receiver.schedule_pump(m);
    };
    const auto room = [&sender, m, to] {
        if (sender.dead) return;
        sender.meshes[m]->on_room(link::PeerIndex(to));
        sender.schedule_pump(m);
    };
    auto pipe = make_pipe(m > 0 && l.bulk_over_tcp, clock, shape.network, deliver, room);
    pipe->is_ahead = capabilities_of(from).version_max > protocol_version_max;
    pipe->set_blocked(l.blocked || (m > 0 && l.bulk_blocked));
    return pipe;
}

// A host's bulk connections have work: now and then one of them moves, at any chunk.
void Cluster::maybe_move(uint32_t at) {
    if (wire_mode() != WireMode::switching || clock.now() < next_move_ || at >= shape.nodes) return;
    if (!hosts[at]->meshes[1]->has_transfers() && !hosts[at]->meshes[2]->has_transfers()) return;
    next_move_ = clock.now() + Duration(static_cast<int64_t>(moves_.below(400'000)));
    const auto other = static_cast<uint32_t>(moves_.below(shape.nodes));
    if (other == at || hosts[at]->dead || hosts[other]->dead || !link(at, other).up) return;
    clock.after(Duration{0}, [this, at, other] {
        if (!hosts[at]->dead && !hosts[other]->dead && link(at, other).up) move_bulk(at, other);
    });
}

// As connections::Channels::adopt() does it: the new channel, with a higher generation, in place of the old.
void Cluster::move_bulk(uint32_t a, uint32_t b) {
    ++moves;
    const uint32_t generation = ++generations_[std::max(a, b) * shape.nodes + std::min(a, b)];
    for (const auto& [from, to] : {std::pair(a, b), std::pair(b, a)}) {
        Link& l = link(from, to);
        l.bulk_over_tcp = !l.bulk_over_tcp;
        for (size_t m = 1; m < meshes_per_host; ++m) {
            l.pipes[m]->close();
            retired_.push_back(std::exchange(l.pipes[m], make_pipe_of(from, to, m)));
        }
    }
    for (const auto& [from, to] : {std::pair(a, b), std::pair(b, a)})
        for (size_t m = 1; m < meshes_per_host; ++m) {
            hosts[from]->meshes[m]->attach(link::PeerIndex(to), generation, *link(from, to).pipes[m]);
            hosts[from]->schedule_pump(m);
        }
}

}  // namespace nexar::sim
