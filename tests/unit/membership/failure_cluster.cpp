// See failure_cluster.hpp.
#include "failure_cluster.hpp"

#include <algorithm>
#include <utility>

namespace nexar::membership {

NodeId node_id(unsigned n) {
    NodeId id;
    id.bytes[0] = static_cast<uint8_t>(n + 1);
    id.bytes[31] = 0x77;
    return id;
}

FailureCluster::FailureCluster(unsigned count, uint64_t seed) : random_(seed), nodes_(count) {
    cut_.assign(count, std::vector<bool>(count));
    for (unsigned i = 0; i < count; ++i) {
        nodes_[i].id = node_id(i);
        nodes_[i].detector = std::make_unique<FailureDetector>(DetectorConfig{}, now_);
        nodes_[i].arbiter = std::make_unique<Arbiter>(ArbiterConfig{}, node_id(i), Incarnation{1, i + 1});
        for (unsigned j = 0; j < count; ++j)
            if (j != i) nodes_[i].detector->on_up(PeerIndex{j}, now_);
    }
    for (Node& node : nodes_) node.detector->on_time(now_);
}

GroupId FailureCluster::make_group(std::vector<unsigned> members, std::vector<uint32_t> ranks) {
    const GroupId id{7, 8, ++groups_made_};
    std::vector<GroupNode> list;
    for (unsigned i = 0; i < members.size(); ++i)
        list.push_back({node_id(members[i]), Incarnation{1, members[i] + 1}, ranks.empty() ? i : ranks[i],
                        "host" + std::to_string(members[i])});
    for (unsigned member : members) {
        nodes_[member].arbiter->on_group(id, GroupEpoch{0}, list, now_);
        drain(member);
    }
    return id;
}

void FailureCluster::kill(unsigned node) {
    nodes_[node].dead = true;
    // Traffic or ICMP tells the others at once that nobody is there.
    for (unsigned i = 0; i < nodes_.size(); ++i) {
        if (nodes_[i].dead || !open(i, node)) continue;
        nodes_[i].detector->on_closed(PeerIndex{node}, "refused", now_);
        redial(i, node);
    }
}
void FailureCluster::redial(unsigned from, unsigned to) {
    for (int n = 1; n <= 3; ++n)
        flying_.emplace(now_ + ms(20 * n) + Duration(random_.below(1'000'000)), Packet{to, from, {}, true});
}
void FailureCluster::stop(unsigned node) {
    nodes_[node].stopped = true;
}
void FailureCluster::go_on(unsigned node) {
    nodes_[node].stopped = false;
    // Timers before packets or packets before timers: both orders happen in the world.
    const bool timers_first = random_.one_in(2);
    if (timers_first) nodes_[node].detector->on_time(now_), nodes_[node].arbiter->on_time(now_), drain(node);
    auto waiting = std::move(parked_);
    parked_.clear();
    for (Packet& packet : waiting) packet.to == node ? deliver(packet) : parked_.push_back(packet);
}
void FailureCluster::cut(unsigned from, unsigned to) {
    cut_[from][to] = true;
}
void FailureCluster::cut_both(unsigned a, unsigned b) {
    cut(a, b);
    cut(b, a);
}
void FailureCluster::join(unsigned a, unsigned b) {
    cut_[a][b] = cut_[b][a] = false;
    for (auto [x, y] : {std::pair(a, b), std::pair(b, a)}) {
        nodes_[x].detector->on_up(PeerIndex{y}, now_);
        for (Packet& packet : std::exchange(logs_[{x, y}].waiting, {})) fly(std::move(packet));
        drain(x);
    }
}

void FailureCluster::rank_lost(unsigned at, const GroupId& group, uint32_t rank, unsigned on,
                               const std::string& why) {
    nodes_[at].arbiter->on_rank_lost(group, Rank{rank}, node_id(on), why, now_);
    drain(at);
}

void FailureCluster::send(unsigned from, unsigned to, std::optional<wire::Message> message) {
    if (message) ++messages_;
    if (message && std::holds_alternative<wire::Accusation>(*message)) ++accusations_;
    Packet packet{from, to, std::move(message)};
    if (packet.message && wire::is_logged(*packet.message))
        return open(from, to) ? fly(std::move(packet)) : logs_[{from, to}].waiting.push_back(packet);
    if (!open(from, to) || (lose_one_in_ && random_.one_in(lose_one_in_))) return;
    flying_.emplace(now_ + Duration(100'000 + random_.below(2'000'000)), std::move(packet));
}

// By the control log: nothing is lost, and none overtakes another.
void FailureCluster::fly(Packet packet) {
    Time& last = logs_[{packet.from, packet.to}].last;
    last = std::max(last, now_ + Duration(100'000 + random_.below(2'000'000)));
    flying_.emplace(last, std::move(packet));
}

void FailureCluster::deliver(const Packet& packet) {
    Node& node = nodes_[packet.to];
    if (node.dead) return;
    if (node.stopped) return parked_.push_back(packet);
    if (packet.refused) {
        node.detector->on_redial_failed(PeerIndex{packet.from}, now_);
    } else {
        node.detector->on_heard(PeerIndex{packet.from}, now_);
        if (packet.message) node.arbiter->on_message(node_id(packet.from), *packet.message, now_);
    }
    drain(packet.to);
}

void FailureCluster::drain(unsigned index) {
    Node& node = nodes_[index];
    while (const auto peer = node.detector->poll_heartbeat()) send(index, peer->value, {});
    while (const auto change = node.detector->poll_change()) {
        const NodeId peer = node_id(change->peer.value);
        if (change->state == FailureDetector::State::suspected)
            node.arbiter->on_suspect(peer, {1, change->peer.value + 1}, change->reason, now_);
        else
            node.arbiter->on_clear(peer, now_);
    }
    while (const auto out = node.arbiter->poll_send())
        for (unsigned i = 0; i < nodes_.size(); ++i)
            if (nodes_[i].id == out->to) send(index, i, out->message);
    while (const auto decided = node.arbiter->poll_decided()) node.decided.try_emplace(decided->group, now_);
}

void FailureCluster::run(Duration span) {
    const Time end = now_ + span;
    for (int step = 0; step < 2'000'000; ++step) {
        Time next = flying_.empty() ? never : flying_.begin()->first;
        for (const Node& node : nodes_)
            if (!node.dead && !node.stopped)
                next = std::min({next, node.detector->wake_at(), node.arbiter->wake_at()});
        if (next > end) break;
        now_ = std::max(now_, next);
        while (!flying_.empty() && flying_.begin()->first <= now_) {
            const Packet packet = flying_.extract(flying_.begin()).mapped();
            deliver(packet);
        }
        for (unsigned i = 0; i < nodes_.size(); ++i) {
            if (nodes_[i].dead || nodes_[i].stopped) continue;
            nodes_[i].detector->on_time(now_);
            nodes_[i].arbiter->on_time(now_);
            drain(i);
        }
    }
    now_ = end;
}

const Error* FailureCluster::verdict(unsigned node, const GroupId& group) const {
    return nodes_[node].arbiter->verdict_of(group);
}
std::optional<Time> FailureCluster::decided_at(unsigned node, const GroupId& group) const {
    const auto at = nodes_[node].decided.find(group);
    if (at == nodes_[node].decided.end()) return std::nullopt;
    return at->second;
}

}  // namespace nexar::membership
