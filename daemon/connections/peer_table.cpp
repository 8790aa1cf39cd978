// See peer_table.hpp. Who is admitted: peer_admission.cpp.
#include "connections/peer_table.hpp"

#include <algorithm>

#include "core/check.hpp"
#include "wire/limits.hpp"

namespace nexar::connections {
namespace {

// The longest that there may be (wire/limits.hpp) make 125 KiB: a greeting, which comes before the mesh takes
// over, has room for twice that.
constexpr size_t greeting_records_max = 128;
static_assert(greeting_records_max <= wire::roster_nodes_max);

}  // namespace

PeerTable::PeerTable(const PeerTableConfig& config, Random random, Time now)
    : config_(config),
      schedule_(config.dial, random),
      roster_(config.roster),
      next_nonce_(uint64_t{1} << 63) {  // the prober counts from below
    for (const std::string& seed : config_.seeds) {
        if (is_relayed(seed) || is_own(seed) || !seeds_.insert(seed).second) continue;
        schedule_.add({{}, seed}, 1);
        schedule_.start({{}, seed}, now);
    }
}

// ---- Connections ----

void PeerTable::on_connected(const NewConnection& opened, Time now) {
    NEXAR_CHECK(!connections_.contains(opened.id));
    if (opened.outgoing) {  // not dialled again while this one has not sent its hello
        schedule_.postpone({{}, opened.remote}, now + config_.hello_timeout);
        const auto node = nodes_.find(opened.certified);
        if (node != nodes_.end() && !node->second.connection)
            schedule_.postpone({opened.certified, {}}, now + config_.hello_timeout);
    }
    if (opened.certified == config_.self.node) {
        schedule_.remove({{}, opened.remote});
        seeds_.erase(opened.remote);
        actions_.push_back(CloseConnection{opened.id, "a node does not connect to itself"});
        return;
    }
    if (leaving_ || unidentified_ >= config_.unidentified_max) {
        actions_.push_back(CloseConnection{
            opened.id, leaving_ ? "this node is stopping" : "too many connections without a hello"});
        return;
    }
    connections_[opened.id] = {opened, {}, false};
    ++unidentified_;
    hellos_due_.emplace_back(now + config_.hello_timeout, opened.id);
    send_hello(opened.id);
}

void PeerTable::send_hello(ConnectionId id) {
    wire::Hello hello;
    hello.node = config_.self.node;
    hello.incarnation = config_.incarnation;
    hello.cluster = config_.cluster;
    hello.self = config_.self;
    hello.bulk_port = config_.bulk_port;
    hello.bulk_shards = config_.bulk_shards;
    std::vector<wire::NodeRecord> all = present();
    const size_t first = std::min(all.size(), greeting_records_max);
    hello.roster.assign(all.begin(), all.begin() + static_cast<ptrdiff_t>(first));
    actions_.push_back(SendOn{id, std::move(hello)});
    for (size_t at = first; at < all.size(); at += greeting_records_max) {
        const size_t end = std::min(all.size(), at + greeting_records_max);
        actions_.push_back(SendOn{id, wire::RosterUpdate{{all.begin() + static_cast<ptrdiff_t>(at),
                                                          all.begin() + static_cast<ptrdiff_t>(end)}}});
    }
}

bool PeerTable::erase(ConnectionId id) {
    const auto at = connections_.find(id);
    if (at == connections_.end()) return false;
    if (!at->second.accepted) --unidentified_;
    connections_.erase(at);
    std::erase_if(questions_, [&](const CloneQuestion& q) { return q.newcomer == id; });
    return true;
}

// Closes from our side. What it means for the node is the caller's to say.
void PeerTable::drop(ConnectionId id, const std::string& reason) {
    if (erase(id)) actions_.push_back(CloseConnection{id, reason});
}

void PeerTable::refuse(ConnectionId id, Level level, std::string_view event, const std::string& reason,
                       Time now) {
    const NewConnection& opened = connections_.at(id).opened;
    actions_.push_back(
        Note{level,
             event,
             {{"node", opened.certified.short_hex()}, {"address", opened.remote}, {"reason", reason}}});
    const auto node = nodes_.find(opened.certified);
    if (opened.outgoing && node != nodes_.end() && !node->second.connection)
        target_failed({opened.certified, {}}, now);
    drop(id, reason);
}

void PeerTable::on_closed(ConnectionId id, const std::string& why, Time now, Duration rtt) {
    const auto at = connections_.find(id);
    if (at == connections_.end()) return;  // we closed it
    const NewConnection opened = at->second.opened;
    const bool was_accepted = at->second.accepted;
    erase(id);
    const auto found = nodes_.find(opened.certified);
    if (found == nodes_.end()) return;
    Node& node = found->second;
    const Target target{opened.certified, {}};
    if (node.connection == id) {
        node.connection.reset();
        roster_.set_standing(opened.certified, Roster::Standing::lost, now);
        // A connection that did not last long (the peer refuses us?) is no reason to hurry.
        if (now - node.connected_since >= config_.young)
            schedule_.start(target, now, true, 3 * rtt);
        else
            schedule_.failed(target, now);
        actions_.push_back(PeerDown{node.peer->peer, opened.certified, node.peer->incarnation, why, false});
    } else if (!was_accepted && opened.outgoing && !node.connection) {
        target_failed(target, now);
    }
    answer_question(id, now);
}

void PeerTable::on_closed_with_goodbye(ConnectionId id, const std::string& reason, Time now) {
    const auto at = connections_.find(id);
    if (at != connections_.end() && at->second.accepted) on_goodbye(id, {reason}, now);
}

// ---- Messages ----

bool PeerTable::on_message(ConnectionId id, const wire::Message& message, Time now) {
    const auto at = connections_.find(id);
    if (at == connections_.end()) return true;  // closed by us: what still arrives is of no use
    Connection& connection = at->second;
    if (const auto* hello = std::get_if<wire::Hello>(&message)) {
        if (connection.hello)
            on_closed_by_fault(id, "a second hello", now);
        else
            on_hello(id, connection, *hello, now);
        return true;
    }
    if (!connection.accepted) {
        if (!connection.hello) refuse(id, Level::warn, "peer_refused", "a message before its hello", now);
        return true;  // held back: nothing of it counts yet
    }
    if (const auto* goodbye = std::get_if<wire::Goodbye>(&message))
        return on_goodbye(id, *goodbye, now), true;
    if (const auto* reply = std::get_if<wire::ProbeReply>(&message)) return on_probe_reply(id, *reply, now);
    if (const auto* update = std::get_if<wire::RosterUpdate>(&message)) {
        for (const wire::NodeRecord& record : update->nodes) learn(record, id, now);
        return true;
    }
    return false;
}

void PeerTable::on_closed_by_fault(ConnectionId id, const std::string& fault, Time now) {
    actions_.push_back(CloseConnection{id, fault});
    on_closed(id, fault, now);
}

// ---- Roster ----

// [P6]
void PeerTable::learn(const wire::NodeRecord& record, ConnectionId from, Time now) {
    if (record.node == config_.self.node || record.node.is_zero()) return;
    const NodeId sender = connections_.at(from).opened.certified;
    if (sender != record.node && was_here(record)) return;
    const Roster::Learnt learnt = roster_.learn(record, sender, now);
    drop_forgotten(now);
    if (learnt == Roster::Learnt::nothing) return;
    const Target target{record.node, {}};
    Node& node = nodes_[record.node];
    schedule_.add(target, addresses_of(record.node).size());
    // The lower NodeId dials first, so that most pairs get by with one connection.
    const bool is_lower = config_.self.node < record.node;
    if (learnt == Roster::Learnt::added && !node.connection)
        schedule_.start(target, now + (is_lower ? Duration{} : 2 * config_.dial.backoff_min));
    for (const auto& [id, connection] : connections_)
        if (connection.accepted && id != from && connection.opened.certified != record.node)
            actions_.push_back(SendOn{id, wire::RosterUpdate{{record}}});
}

// [P7] An address from the configuration is a seed again.
void PeerTable::drop_forgotten(Time now) {
    while (const auto gone = roster_.poll_forgotten(now)) {
        ++nodes_walked_;
        Node& node = nodes_.at(*gone);
        end_incarnation(node, "not connected for too long");
        schedule_.remove({*gone, {}});
        if (!node.seed.empty() && seeds_.insert(node.seed).second) {
            schedule_.add({{}, node.seed}, 1);
            schedule_.start({{}, node.seed}, now + config_.dial.backoff_max);
        }
        nodes_.erase(*gone);
        actions_.push_back(NodeForgotten{*gone});
    }
}

void PeerTable::say_goodbye(const std::string& reason) {
    leaving_ = true;
    for (const auto& [id, connection] : connections_)
        if (connection.accepted) actions_.push_back(SendOn{id, wire::Goodbye{reason}});
}

// ---- Dialling [P5] ----

bool PeerTable::is_own(const std::string& address) const {
    return std::ranges::find(config_.self.addresses, address) != config_.self.addresses.end();
}

// [P14] A node that others remember at this node's addresses: this one, under an identity that it had before.
bool PeerTable::was_here(const wire::NodeRecord& record) const {
    return !record.addresses.empty() &&
           std::ranges::all_of(record.addresses, [this](const auto& a) { return is_own(a); });
}

std::vector<std::string> PeerTable::addresses_of(const NodeId& node) const {
    std::vector<std::string> out;
    if (const wire::NodeRecord* record = roster_.find(node))
        std::ranges::copy_if(record->addresses, std::back_inserter(out),
                             [this](const auto& a) { return !is_relayed(a) && !is_own(a); });
    const std::string& seed = nodes_.at(node).seed;
    if (!seed.empty() && std::ranges::find(out, seed) == out.end()) out.push_back(seed);
    return out;
}

void PeerTable::target_failed(const Target& target, Time now) {
    schedule_.failed(target, now);
    const auto node = nodes_.find(target.node);
    if (node != nodes_.end() && node->second.peer && !node->second.connection)
        actions_.push_back(RedialFailed{node->second.peer->peer});
}

void PeerTable::on_dial_failed(const std::string& address, const NodeId& expected, const std::string& why,
                               Time now) {
    actions_.push_back(Note{Level::debug, "dial_failed", {{"address", address}, {"reason", why}}});
    const Target target{expected, expected.is_zero() ? address : std::string()};
    if (schedule_.is_dialling(target)) target_failed(target, now);
}

void PeerTable::dial_due(Time now) {
    while (const auto due = schedule_.poll_due(now)) {
        ++nodes_walked_;
        const NodeId& node = due->target.node;
        actions_.push_back(node.is_zero() ? Dial{due->target.seed, {}}
                                          : Dial{addresses_of(node).at(due->address), node});
    }
}

// ---- Time ----

void PeerTable::expire(Time now) {
    while (!hellos_due_.empty() && hellos_due_.front().first <= now) {
        const ConnectionId id = hellos_due_.front().second;
        hellos_due_.pop_front();
        const auto at = connections_.find(id);
        if (at != connections_.end() && !at->second.hello) on_closed_by_fault(id, "no hello in time", now);
    }
    for (size_t i = 0; i < questions_.size();) {
        if (now < questions_[i].deadline) {
            ++i;
            continue;
        }
        const CloneQuestion question = questions_[i];
        questions_.erase(questions_.begin() + static_cast<ptrdiff_t>(i));
        admit_newcomer(question, now);
    }
    while (const auto target = schedule_.unanswered(now)) {
        ++nodes_walked_;
        target_failed(*target, now);
    }
    drop_forgotten(now);
}

void PeerTable::on_time(Time now) {
    if (!leaving_ && now < wake_at()) return;  // as in most turns of the loop
    expire(now);
    if (!leaving_) dial_due(now);
}

Time PeerTable::wake_at() const {
    Time next = roster_.wake_at();
    if (!hellos_due_.empty()) next = std::min(next, hellos_due_.front().first);
    for (const CloneQuestion& question : questions_) next = std::min(next, question.deadline);
    return leaving_ ? next : std::min(next, schedule_.wake_at());
}

std::optional<TableAction> PeerTable::poll_action() {
    if (actions_.empty()) return std::nullopt;
    TableAction out = std::move(actions_.front());
    actions_.pop_front();
    return out;
}

// ---- Looking up ----

std::optional<PeerIndex> PeerTable::peer_of(ConnectionId connection) const {
    const auto at = connections_.find(connection);
    if (at == connections_.end() || !at->second.accepted) return std::nullopt;
    return nodes_.at(at->second.opened.certified).peer->peer;
}
std::optional<NodeId> PeerTable::node_of(ConnectionId connection) const {
    const auto at = connections_.find(connection);
    if (at == connections_.end() || !at->second.accepted) return std::nullopt;
    return at->second.opened.certified;
}
std::optional<PeerIndex> PeerTable::index_of(const NodeId& node) const {
    const PeerInfo* info = info_of(node);
    return info ? std::optional(info->peer) : std::nullopt;
}
std::optional<ConnectionId> PeerTable::connection_of(const NodeId& node) const {
    const auto at = nodes_.find(node);
    return at == nodes_.end() ? std::nullopt : at->second.connection;
}
const PeerInfo* PeerTable::info_of(const NodeId& node) const {
    const auto at = nodes_.find(node);
    return at == nodes_.end() || !at->second.peer ? nullptr : &*at->second.peer;
}
std::vector<NodeId> PeerTable::connected() const {
    std::vector<NodeId> out;
    for (const auto& [id, node] : nodes_)
        if (node.connection) out.push_back(id);
    return out;
}
std::string PeerTable::hostname_of(const NodeId& node) const {
    const wire::NodeRecord* record = roster_.find(node);
    return record ? record->hostname : std::string();
}

void PeerTable::check_invariants() const {
    schedule_.check_invariants();
    roster_.check_invariants();
    NEXAR_CHECK(nodes_.size() == roster_.size());
    size_t in_use = 0, unidentified = 0;
    for (const auto& [id, node] : nodes_) {
        NEXAR_CHECK(roster_.find(id) != nullptr);
        NEXAR_CHECK(!node.peer || node.peer->peer.value < next_peer_);
        if (!node.connection) continue;
        ++in_use;
        const Connection& connection = connections_.at(*node.connection);
        NEXAR_CHECK(node.peer && connection.accepted && connection.opened.certified == id);
        NEXAR_CHECK(connection.opened.generation == node.generation);
        NEXAR_CHECK(connection.opened.incarnation == node.peer->incarnation);
        NEXAR_CHECK(!schedule_.is_dialling({id, {}}));
    }
    for (const auto& [id, connection] : connections_) unidentified += connection.accepted ? 0 : 1;
    NEXAR_CHECK(unidentified == unidentified_ && in_use + unidentified == connections_.size());
    for (const CloneQuestion& question : questions_) NEXAR_CHECK(connections_.contains(question.newcomer));
}

}  // namespace nexar::connections
