// See failure_cluster.hpp.
#include "failure_cluster.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
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
        list.push_back({node_id(members[i]), Incarnation{1, members[i] + 1}, ranks.empty() ? i : ranks[i]});
    for (unsigned member : members) {
        nodes_[member].groups.emplace(id, std::make_unique<Member>(*this, member, id, list, members));
        nodes_[member].arbiter->on_group(id, GroupEpoch{0}, list, now_);
        drain(member);
    }
    return id;
}

void FailureCluster::kill(unsigned node) {
    nodes_[node].dead = true;
    // The connections of the others close at once (traffic or ICMP).
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
    // Timers before packets or packets before timers: both orders are possible.
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
    Member& member = *nodes_[at].groups.at(group);
    for (size_t i = 0; i < member.nodes.size(); ++i)
        if (member.members[i] == on)
            member.lifecycle.on_failure({membership::rank_lost(member.nodes[i].node, rank, why), {}}, now_);
    drain(at);
}
void FailureCluster::depart(unsigned node, const GroupId& group) {
    nodes_[node].arbiter->on_group_gone(group);
    nodes_[node].groups.erase(group);
}

FailureCluster::Member::Member(FailureCluster& c, unsigned at, const GroupId& id, std::vector<GroupNode> list,
                               std::vector<unsigned> of_cluster)
    : cluster(c),
      node(at),
      nodes(std::move(list)),
      members(std::move(of_cluster)),
      lifecycle(*this, {id, GroupEpoch{0}, static_cast<uint32_t>(nodes.size()),
                        static_cast<uint32_t>(std::ranges::find(members, at) - members.begin())}) {}

bool FailureCluster::Member::suspects(uint32_t other) const {
    return cluster.nodes_[node].detector->state_of(PeerIndex{members[other]}) !=
           FailureDetector::State::alive;
}

void FailureCluster::Member::cut(const wire::Cut&) {
    ended = cluster.now_;
}

void FailureCluster::send(unsigned from, unsigned to, std::optional<wire::Message> message) {
    if (message && std::holds_alternative<wire::SuspicionReport>(*message)) ++reports_;
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
        node.detector->on_received(PeerIndex{packet.from}, now_);
        if (packet.message && !node.arbiter->on_message(node_id(packet.from), *packet.message, now_))
            to_group(packet.to, packet.from, *packet.message);
    }
    drain(packet.to);
}

void FailureCluster::drain(unsigned index) {
    Node& node = nodes_[index];
    node.detector->check_invariants();
    node.arbiter->check_invariants();
    while (const auto peer = node.detector->poll_heartbeat()) send(index, peer->value, {});
    while (const auto change = node.detector->poll_change()) {
        const NodeId peer = node_id(change->peer.value);
        if (change->state == FailureDetector::State::suspected)
            node.arbiter->on_suspect(peer, {1, change->peer.value + 1}, change->reason, now_);
        else
            node.arbiter->on_clear(peer);
        for (auto& [id, member] : node.groups) member->lifecycle.on_reach_changed(now_);
    }
    while (const auto out = node.arbiter->poll_send())
        for (unsigned i = 0; i < nodes_.size(); ++i)
            if (nodes_[i].id == out->to) send(index, i, out->message);
    while (const auto found = node.arbiter->poll_found()) {
        Member& member = *node.groups.at(found->group);
        for (uint32_t i = 0; i < member.nodes.size(); ++i)
            if (member.nodes[i].node == found->excluded) member.lifecycle.on_failure({found->error, i}, now_);
    }
    while (const auto unknown = node.arbiter->poll_unknown())
        for (unsigned i = 0; i < nodes_.size(); ++i)
            if (nodes_[i].id == unknown->from)
                send(index, i, wire::GroupDeparted{unknown->group, unknown->epoch});
    for (auto& [id, member] : node.groups) drain_group(index, id, *member);
}

void FailureCluster::drain_group(unsigned index, const GroupId& id, Member& member) {
    member.lifecycle.check_invariants();
    while (const auto out = member.lifecycle.poll_send()) send(index, member.members[out->to], out->message);
    for (const uint32_t excluded : member.lifecycle.excluded())
        nodes_[index].arbiter->on_excluded(id, member.nodes[excluded].node);
    if (member.ended) nodes_[index].arbiter->on_group_gone(id);
}

void FailureCluster::to_group(unsigned to, unsigned from, const wire::Message& message) {
    std::visit(
        [&]<class M>(const M& m) {
            if constexpr (requires { m.group; }) {
                const auto at = nodes_[to].groups.find(m.group);
                if (at == nodes_[to].groups.end()) {
                    if (!std::holds_alternative<wire::GroupDeparted>(message))
                        send(to, from, wire::GroupDeparted{m.group, 0});
                    return;
                }
                Member& member = *at->second;
                const auto sender = std::ranges::find(member.members, from) - member.members.begin();
                REQUIRE(member.lifecycle.on_message(static_cast<uint32_t>(sender), message, now_));
                if (std::holds_alternative<wire::GroupDeparted>(message))
                    nodes_[to].arbiter->on_departed(node_id(from), m.group, now_);
            }
        },
        message);
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

const Error* FailureCluster::end_of(unsigned node, const GroupId& group) const {
    const auto at = nodes_[node].groups.find(group);
    if (at == nodes_[node].groups.end() || !at->second->lifecycle.decided()) return nullptr;
    return &at->second->lifecycle.decided()->failed.error;
}
std::optional<Time> FailureCluster::decided_at(unsigned node, const GroupId& group) const {
    const auto at = nodes_[node].groups.find(group);
    return at == nodes_[node].groups.end() ? std::nullopt : at->second->ended;
}

}  // namespace nexar::membership
