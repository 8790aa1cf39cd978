// See mesh_cluster.hpp.
#include "mesh_cluster.hpp"

#include <catch2/catch_test_macros.hpp>

namespace nexar::membership {

unsigned MeshCluster::start(unsigned identity, Incarnation life, const std::string& address,
                            std::vector<std::string> seeds, std::function<void(MembershipConfig&)> change) {
    MembershipConfig config;
    config.table.self = {node_id(identity), "host" + std::to_string(identity), {address}};
    config.table.incarnation = life;
    config.table.cluster[3] = 9;
    config.table.bulk_port = static_cast<uint16_t>(7000 + identity);
    config.table.bulk_shards = 2;
    config.table.seeds = std::move(seeds);
    if (change) change(config);
    Machine& machine = machines_.emplace_back();
    machine.id = config.table.self.node;
    machine.address = address;
    machine.membership = std::make_unique<Membership>(config, Random(random_.next()), now_);
    return static_cast<unsigned>(machines_.size() - 1);
}

void MeshCluster::kill(unsigned machine) {
    machines_[machine].dead = true;
    for (const auto& pipe : pipes_)
        for (int end = 0; end < 2; ++end)
            if (pipe->open && pipe->machine[end] == machine) {
                pipe->open = false;
                const unsigned other = pipe->machine[1 - end];
                const ConnectionId id = pipe->id[1 - end];
                later(delay(), [this, other, id] {
                    if (machines_[other].dead) return;
                    machines_[other].membership->on_closed(id, "reset", now_);
                    drain(other);
                });
            }
}

void MeshCluster::goodbye(unsigned machine) {
    machines_[machine].membership->say_goodbye("maintenance", now_);
    drain(machine);
    later(ms(50), [this, machine] { kill(machine); });
}

void MeshCluster::dial(unsigned from, const Dial& dial) {
    machines_[from].dials.push_back(dial);
    machines_[from].dial_times.push_back(now_);
    later(delay(), [this, from, dial] {
        Machine& caller = machines_[from];
        if (caller.dead) return;
        for (unsigned to = 0; to < machines_.size(); ++to) {
            Machine& callee = machines_[to];
            if (callee.dead || callee.address != dial.address || is_cut(from, to)) continue;
            if (!dial.expected.is_zero() && dial.expected != callee.id) continue;
            auto pipe = std::make_unique<Pipe>();
            pipe->machine[0] = from, pipe->machine[1] = to;
            pipe->id[0] = ConnectionId{next_connection_++}, pipe->id[1] = ConnectionId{next_connection_++};
            const ConnectionId ids[2] = {pipe->id[0], pipe->id[1]};
            pipes_.push_back(std::move(pipe));
            caller.membership->on_connected(ids[0], callee.id, true, dial.address, now_);
            callee.membership->on_connected(ids[1], caller.id, false, caller.address + " (from)", now_);
            drain(from);
            drain(to);
            return;
        }
        caller.membership->on_dial_failed(dial.address, dial.expected, "refused", now_);
        drain(from);
    });
}

MeshCluster::Pipe* MeshCluster::pipe_of(unsigned machine, ConnectionId id, int& end) {
    for (const auto& pipe : pipes_)
        for (end = 0; end < 2; ++end)
            if (pipe->machine[end] == machine && pipe->id[end] == id) return pipe.get();
    return nullptr;
}

void MeshCluster::carry(unsigned from, ConnectionId id, std::function<void(unsigned, ConnectionId)> what) {
    int end = 0;
    Pipe* pipe = pipe_of(from, id, end);
    if (!pipe || !pipe->open) return;
    const unsigned to = pipe->machine[1 - end];
    const ConnectionId there = pipe->id[1 - end];
    const Time arrival = std::max(now_ + delay(), pipe->last[end] + Duration(1));
    pipe->last[end] = arrival;
    events_.emplace(arrival, [this, from, to, there, what = std::move(what)] {
        if (machines_[to].dead || is_cut(from, to)) return;
        what(to, there);
        drain(to);
    });
}

void MeshCluster::drain(unsigned index) {
    Machine& machine = machines_[index];
    while (const auto action = machine.membership->poll_action()) {
        if (const auto* d = std::get_if<Dial>(&*action)) {
            dial(index, *d);
        } else if (const auto* send = std::get_if<SendOn>(&*action)) {
            ++machine.sent;
            carry(index, send->connection,
                  [this, bytes = wire::encode(send->message)](unsigned to, ConnectionId id) {
                      const auto message = wire::decode(bytes);
                      REQUIRE(message);
                      machines_[to].membership->on_message(id, *message, now_);
                  });
        } else if (const auto* close = std::get_if<CloseConnection>(&*action)) {
            const std::string reason = close->reason;
            carry(index, close->connection, [this, reason](unsigned to, ConnectionId id) {
                machines_[to].membership->on_closed(id, reason, now_);
            });
            int end = 0;
            if (Pipe* pipe = pipe_of(index, close->connection, end)) pipe->open = false;
        } else if (const auto* up = std::get_if<PeerUp>(&*action)) {
            machine.ups.push_back(*up);
            machine.up[up->info.record.node] = up->connection;
            machine.index[up->info.record.node] = up->info.peer;
        } else if (const auto* down = std::get_if<PeerDown>(&*action)) {
            machine.downs.push_back(*down);
            machine.up.erase(down->node);
        } else if (const auto* decided = std::get_if<GroupDecided>(&*action)) {
            machine.decided.try_emplace(decided->group, decided->error);
        } else if (const auto* note = std::get_if<Note>(&*action)) {
            machine.notes.push_back(*note);
        }
    }
}

void MeshCluster::run(Duration span) {
    const Time end = now_ + span;
    for (int step = 0; step < 1'000'000; ++step) {
        Time next = events_.empty() ? never : events_.begin()->first;
        for (const Machine& machine : machines_)
            if (!machine.dead) next = std::min(next, machine.membership->wake_at());
        if (next > end) break;
        REQUIRE(step < 999'999);  // a machine that asks to be woken and does nothing
        now_ = std::max(now_, next);
        while (!events_.empty() && events_.begin()->first <= now_)
            events_.extract(events_.begin()).mapped()();
        for (unsigned i = 0; i < machines_.size(); ++i) {
            if (machines_[i].dead) continue;
            machines_[i].membership->on_time(now_);
            drain(i);
        }
    }
    now_ = end;
}

bool MeshCluster::noted(unsigned machine, std::string_view event) const {
    for (const Note& note : machines_[machine].notes)
        if (note.event == event) return true;
    return false;
}

bool MeshCluster::consistent(unsigned a, unsigned b) const {
    const auto at = machines_[a].up.find(machines_[b].id), back = machines_[b].up.find(machines_[a].id);
    if (at == machines_[a].up.end() || back == machines_[b].up.end()) return false;
    for (const auto& pipe : pipes_)
        for (int end = 0; end < 2; ++end)
            if (pipe->open && pipe->machine[end] == a && pipe->id[end] == at->second)
                return pipe->machine[1 - end] == b && pipe->id[1 - end] == back->second;
    return false;
}

}  // namespace nexar::membership
