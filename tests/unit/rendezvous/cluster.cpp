// See cluster.hpp.
#include "cluster.hpp"

#include <catch2/catch_test_macros.hpp>
#include <utility>

#include "support/proofs.hpp"
#include "wire/codec.hpp"

namespace nexar::rendezvous {

NodeId node_id(unsigned n) {
    NodeId id;
    id.bytes[0] = static_cast<uint8_t>(n + 1);
    id.bytes[31] = 0x55;
    return id;
}
wire::GroupKey key_of(const std::string& name) {
    wire::GroupKey key{};
    for (size_t i = 0; i < name.size(); ++i) key[i % 32] = static_cast<uint8_t>(key[i % 32] * 31 + name[i]);
    return key;
}

Config config_of(const NodeId& self, Incarnation incarnation) {
    Config out;
    out.self = self;
    out.incarnation = incarnation;
    out.proof = test::proof_port(self.prefix());
    out.open_log_bytes_max = 512;
    out.plan.small_bytes_max = 256 * 1024;
    out.plan.doubling_bytes_max = 64 * 1024;
    out.plan.lanes = 1;
    return out;
}

Cluster::Cluster(unsigned nodes, uint64_t seed, bool linked)
    : random_(seed), relists_at_once_(1 + seed % 3), dead_(nodes) {
    for (unsigned i = 0; i < nodes; ++i) {
        incarnations_.push_back({1, 1000 + i});
        machines_.push_back(make_machine(i));
    }
    for (unsigned a = 0; a < nodes && linked; ++a)
        for (unsigned b = a + 1; b < nodes; ++b) link(a, b);
}

std::unique_ptr<Rendezvous> Cluster::make_machine(unsigned node) const {
    Config config = config_of(node_id(node), incarnations_[node]);
    config.bulk_shards = static_cast<uint16_t>(4 + node);
    config.relists_at_once_max = relists_at_once_;
    config.host_of = [](const NodeId& id) { return host_of(id.bytes[0] - 1u); };
    config.knows_lower = [node] { return node > 0; };
    config.name_of = [](const NodeId& id) { return "host" + std::to_string(id.bytes[0] - 1); };
    return std::make_unique<Rendezvous>(config);
}

void Cluster::link(unsigned a, unsigned b) {
    if (dead_[a] || dead_[b]) return;
    links_[{std::min(a, b), std::max(a, b)}] = next_connection_++;
    for (auto [x, y] : {std::pair(a, b), std::pair(b, a)}) {
        machines_[x]->on_peer_up(node_id(y), incarnations_[y], now_);
        replay(x, y);
        drain(x);
    }
}
void Cluster::unlink(unsigned a, unsigned b) {
    if (links_.erase({std::min(a, b), std::max(a, b)}) == 0) return;
    notice_cut(a, b);
    notice_cut(b, a);
}
void Cluster::cut(unsigned sees, unsigned other) {
    links_.erase({std::min(sees, other), std::max(sees, other)});
    notice_cut(sees, other);
}
void Cluster::notice_cut(unsigned sees, unsigned other) {
    if (dead_[sees]) return;
    machines_[sees]->on_peer_down(node_id(other), incarnations_[other], now_);
    drain(sees);
}
void Cluster::flap(unsigned a, unsigned b) {
    unlink(a, b);
    link(a, b);
}
void Cluster::replace(unsigned a, unsigned b, unsigned sees_end) {
    links_[{std::min(a, b), std::max(a, b)}] = next_connection_++;
    for (auto [x, y] : {std::pair(a, b), std::pair(b, a)}) {
        if (x == sees_end) machines_[x]->on_peer_down(node_id(y), incarnations_[y], now_);
        machines_[x]->on_peer_up(node_id(y), incarnations_[y], now_);
        drain(x);
    }
}
void Cluster::kill(unsigned node) {
    dead_[node] = true;
    for (unsigned other = 0; other < machines_.size(); ++other) unlink(node, other);
}

void Cluster::restart(unsigned node, unsigned unaware) {
    dead_[node] = true;
    for (Opener& o : openers_) o.withdrawn = o.withdrawn || (o.node == node && !o.answered_at_all());
    links_.erase({std::min(node, unaware), std::max(node, unaware)});
    std::vector<unsigned> linked;
    for (unsigned other = 0; other < machines_.size(); ++other)
        if (links_.contains({std::min(node, other), std::max(node, other)})) linked.push_back(other);
    for (const unsigned other : linked) unlink(node, other);
    incarnations_[node].counter += 1;
    incarnations_[node].nonce += 100;
    machines_[node] = make_machine(node);
    dead_[node] = false;
    for (const unsigned other : linked) link(node, other);
}

size_t Cluster::open(unsigned node, const std::string& name, uint32_t size, int64_t rank, Duration timeout,
                     bool local, wire::TimeoutsRecord timeouts) {
    Opener opener;
    opener.node = node;
    opener.spec = {SessionId{openers_.size()},
                   key_of(name),
                   local,
                   name,
                   size,
                   rank,
                   next_pid_ != 0 ? next_pid_ : static_cast<uint32_t>(openers_.size() + 1),
                   timeout,
                   timeouts,
                   {},
                   {},
                   /*opener_mark=*/1};
    opener.deadline = now_ + timeout;
    const auto request = machines_[node]->open(opener.spec, now_);
    REQUIRE(request);
    opener.request = *request;
    openers_.push_back(opener);
    drain(node);
    return openers_.size() - 1;
}

size_t Cluster::open_as(uint32_t pid, unsigned node, const std::string& name, uint32_t size) {
    next_pid_ = pid;
    const size_t out = open(node, name, size, -1);
    next_pid_ = 0;
    return out;
}

void Cluster::withdraw(size_t opener) {
    Opener& o = openers_[opener];
    if (o.answered_at_all() || dead_[o.node]) return;
    o.withdrawn = true;
    machines_[o.node]->withdraw(o.request, now_);
    drain(o.node);
}

void Cluster::end(size_t opener, const Error& error) {
    const Opener& o = openers_[opener];
    machines_[o.node]->end(o.request, error, now_);
    drain(o.node);
}

void Cluster::on_opened(unsigned node, const Opened& opened) {
    const auto [at, first] = groups_.try_emplace(opened.group.group, opened.group);
    REQUIRE(wire::encode(at->second) == wire::encode(opened.group));  // the same list for all
    for (const auto& [request, rank] : opened.ranks) {
        bool found = false;
        for (Opener& o : openers_) {
            if (o.request != request) continue;
            found = true;
            REQUIRE(o.node == node);
            REQUIRE_FALSE(o.answered_at_all());
            REQUIRE_FALSE(o.withdrawn);
            REQUIRE(opened.group.name == o.spec.name);
            REQUIRE(opened.group.members.size() == o.spec.size);
            REQUIRE(opened.group.members[rank.value].request == request);
            REQUIRE(opened.group.members[rank.value].pid == o.spec.pid);
            if (o.spec.rank >= 0) REQUIRE(rank.value == o.spec.rank);
            o.group = opened.group.group;
            o.rank = rank.value;
            o.answered = now_;
        }
        REQUIRE(found);
    }
    gone_ += opened.gone.size();
}

// The control log: in order, and lost only with an incarnation.
void Cluster::fly(Packet packet) {
    const std::pair way(packet.from, packet.to);
    Time& last = last_[way];
    last = std::max(now_ + Duration(50'000 + random_.below(3'000'000)), last + Duration(1));
    flying_.emplace(last, std::move(packet));
}

void Cluster::replay(unsigned from, unsigned to) {
    std::vector<Packet> all = std::exchange(logs_[{from, to}], {});
    for (auto at = flying_.begin(); at != flying_.end();) {
        const bool behind = at->second.from == from && at->second.to == to;
        if (behind) all.push_back(std::move(at->second));
        at = behind ? flying_.erase(at) : std::next(at);
    }
    for (Packet& packet : all) fly(std::move(packet));
}

void Cluster::drain(unsigned node) {
    machines_[node]->check_invariants();
    while (const auto action = machines_[node]->poll_action()) {
        if (const auto* send = std::get_if<Send>(&*action)) {
            ++messages_;
            REQUIRE(send->to != node_id(node));
            const unsigned to = send->to.bytes[0] - 1u;
            fly({node, to, incarnations_[node], incarnations_[to], wire::encode(send->message)});
        } else if (const auto* opened = std::get_if<Opened>(&*action)) {
            on_opened(node, *opened);
        } else if (const auto* failed = std::get_if<Failed>(&*action)) {
            for (Opener& o : openers_) {
                if (o.request != failed->request) continue;
                REQUIRE_FALSE(o.answered_at_all());
                REQUIRE_FALSE(o.withdrawn);
                o.failed = failed->error;
                o.answered = now_;
            }
        } else {
            ++disowned_;
        }
    }
}

bool Cluster::step(Time end) {
    Time next = flying_.empty() ? never : flying_.begin()->first;
    for (unsigned i = 0; i < machines_.size(); ++i)
        if (!dead_[i]) next = std::min(next, machines_[i]->wake_at());
    if (next > end) return false;
    now_ = std::max(now_, next);
    while (!flying_.empty() && flying_.begin()->first <= now_) {
        Packet packet = flying_.extract(flying_.begin()).mapped();
        if (packet.sender != incarnations_[packet.from] || packet.receiver != incarnations_[packet.to])
            continue;
        if (dead_[packet.to]) continue;
        if (!links_.contains({std::min(packet.from, packet.to), std::max(packet.from, packet.to)})) {
            logs_[{packet.from, packet.to}].push_back(std::move(packet));
            continue;
        }
        const auto message = wire::decode(packet.bytes);
        REQUIRE(message);
        REQUIRE(machines_[packet.to]->on_message(node_id(packet.from), *message, now_));
        drain(packet.to);
        if (++delivered_ == stop_at_) return true;
    }
    for (unsigned i = 0; i < machines_.size(); ++i) {
        if (dead_[i]) continue;
        machines_[i]->on_time(now_);
        drain(i);
    }
    return true;
}

void Cluster::run_until_delivered(size_t messages) {
    if (delivered_ >= messages) return;
    stop_at_ = messages;
    while (delivered_ < messages && step(now_ + ms(1000))) {
    }
    stop_at_ = 0;
}

void Cluster::run(Duration span) {
    const Time end = now_ + span;
    for (int i = 0; step(end); ++i) REQUIRE(i < 500'000);
    now_ = end;
}

void Cluster::require_all_answered() const {
    for (const Opener& o : openers_) {
        if (dead_[o.node] || o.withdrawn) continue;
        CAPTURE(o.node, o.spec.pid, o.spec.name);
        REQUIRE(o.answered_at_all());
        REQUIRE(o.answered <=
                o.deadline + ms(3000 + 1000 + 300));  // rendezvous.md, how long it takes at most
    }
}

}  // namespace nexar::rendezvous
