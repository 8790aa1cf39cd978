// See peer_table.hpp. Lives of one node, as this table sees them:
//   unknown -> up      HELLO accepted [P1]
//   up -> lost         its connection closed: suspicion, it is dialled again
//   lost -> up         a connection of the same life: same index, higher generation [P2]
//   up, lost -> over   goodbye, or another life proved it dead [P3]; the index is retired
#include "membership/peer_table.hpp"

#include <algorithm>
#include <tuple>

#include "core/check.hpp"
#include "wire/limits.hpp"

namespace nexar::membership {
namespace {

std::vector<std::string> addresses_of(const wire::NodeRecord& record, const std::string& seed) {
    std::vector<std::string> out = record.addresses;
    if (!seed.empty() && std::find(out.begin(), out.end(), seed) == out.end()) out.push_back(seed);
    return out;
}

// The longest that there may be (wire/limits.hpp) make 125 KiB: a greeting, which comes before the mesh takes
// over, has room for twice that.
constexpr size_t greeting_records_max = 128;
static_assert(greeting_records_max <= wire::roster_nodes_max);

std::string life_text(Incarnation life) {
    return std::to_string(life.counter);
}

}  // namespace

PeerTable::PeerTable(const PeerTableConfig& config, Random random, Time now)
    : config_(config), random_(random), next_nonce_(uint64_t{1} << 63) {  // the prober counts from below
    for (const std::string& seed : config_.seeds) seeds_[seed].next = now;
}

// ---- Connections ----

void PeerTable::on_connected(ConnectionId id, const NodeId& certified, bool outgoing,
                             const std::string& remote, Time now) {
    NEXAR_CHECK(!connections_.contains(id));
    if (outgoing) {
        // Not dialled again while this one has not said hello.
        if (const auto seed = seeds_.find(remote); seed != seeds_.end()) {
            seed->second.gives_up = never;
            seed->second.next = now + config_.hello_timeout;
        }
        if (const auto node = nodes_.find(certified); node != nodes_.end()) {
            node->second.dialling.gives_up = never;
            node->second.dialling.next = now + config_.hello_timeout;
        }
    }
    if (certified == config_.self.node) {
        seeds_.erase(remote);
        actions_.push_back(CloseConnection{id, "a node does not connect to itself"});
        return;
    }
    if (leaving_ || strangers() >= config_.strangers_max) {
        actions_.push_back(
            CloseConnection{id, leaving_ ? "this node is stopping" : "too many connections without a hello"});
        return;
    }
    connections_[id] = {certified, outgoing, remote, now, {}, false};
    send_hello(id);
}

void PeerTable::send_hello(ConnectionId id) {
    wire::Hello hello;
    hello.protocol = config_.protocol;
    hello.node = config_.self.node;
    hello.incarnation = config_.incarnation;
    hello.cluster = config_.cluster;
    hello.self = config_.self;
    hello.bulk_port = config_.bulk_port;
    hello.bulk_shards = config_.bulk_shards;
    std::vector<wire::NodeRecord> all = roster();
    const size_t first = std::min(all.size(), greeting_records_max);
    hello.roster.assign(all.begin(), all.begin() + static_cast<ptrdiff_t>(first));
    actions_.push_back(SendOn{id, std::move(hello)});
    for (size_t at = first; at < all.size(); at += greeting_records_max) {
        const size_t end = std::min(all.size(), at + greeting_records_max);
        actions_.push_back(SendOn{id, wire::RosterUpdate{{all.begin() + static_cast<ptrdiff_t>(at),
                                                          all.begin() + static_cast<ptrdiff_t>(end)}}});
    }
}

// Closes from our side. What it means for the node is the caller's to say.
void PeerTable::drop(ConnectionId id, const std::string& reason) {
    if (connections_.erase(id) == 0) return;
    std::erase_if(questions_, [&](const CloneQuestion& q) { return q.newcomer == id; });
    actions_.push_back(CloseConnection{id, reason});
}

void PeerTable::refuse(ConnectionId id, Level level, std::string_view event, const std::string& reason) {
    const Connection& connection = connections_.at(id);
    actions_.push_back(Note{
        level,
        event,
        {{"node", connection.certified.short_hex()}, {"address", connection.remote}, {"reason", reason}}});
    if (connection.outgoing) {
        if (const auto node = nodes_.find(connection.certified);
            node != nodes_.end() && !node->second.connection)
            node_dial_failed(node->second, connection.since);
    }
    drop(id, reason);
}

void PeerTable::on_closed(ConnectionId id, const std::string& why, Time now) {
    const auto at = connections_.find(id);
    if (at == connections_.end()) return;  // we closed it
    const Connection connection = std::move(at->second);
    connections_.erase(at);
    std::erase_if(questions_, [&](const CloneQuestion& q) { return q.newcomer == id; });
    const auto found = nodes_.find(connection.certified);
    if (found == nodes_.end()) return;
    Node& node = found->second;
    if (node.connection == id) {
        node.connection.reset();
        node.lost = true;
        // A connection that did not live long (the peer refuses us?) is no reason to hurry.
        if (now - node.connected_since >= config_.young)
            node.dialling = {0, 0, config_.fast_redials, now, never};
        else
            dial_failed(node.dialling, addresses_of(node.record, node.seed).size(), now);
        actions_.push_back(
            PeerDown{node.life->peer, connection.certified, node.life->incarnation, why, false});
    } else if (!connection.accepted && connection.outgoing && !node.connection) {
        node_dial_failed(node, now);
    }
    const auto question =
        std::find_if(questions_.begin(), questions_.end(), [&](const auto& q) { return q.old == id; });
    if (question == questions_.end()) return;
    const CloneQuestion answered = *question;
    questions_.erase(question);
    admit_newcomer(answered, now);
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
        if (!connection.hello) refuse(id, Level::warn, "peer_refused", "a message before its hello");
        return true;  // held back: nothing of it counts yet
    }
    if (const auto* goodbye = std::get_if<wire::Goodbye>(&message))
        return on_goodbye(id, *goodbye, now), true;
    if (const auto* reply = std::get_if<wire::ProbeReply>(&message)) return on_probe_reply(id, *reply, now);
    if (const auto* update = std::get_if<wire::RosterUpdate>(&message)) {
        for (const wire::NodeRecord& record : update->nodes) learn(record, id, false, now);
        return true;
    }
    return false;
}

void PeerTable::on_closed_by_fault(ConnectionId id, const std::string& fault, Time now) {
    actions_.push_back(CloseConnection{id, fault});
    on_closed(id, fault, now);
}

std::string PeerTable::fault_of(const Connection& connection, const wire::Hello& hello) const {
    const auto [low, high] = std::minmax(hello.protocol, config_.protocol);
    if (high - low > 1 || low < config_.protocol_min)
        return "protocol version " + std::to_string(hello.protocol) + " is not spoken here, only " +
               std::to_string(std::max(config_.protocol_min, config_.protocol - 1)) + " to " +
               std::to_string(config_.protocol + 1);
    if (hello.node != connection.certified || hello.self.node != connection.certified)
        return "says that it is node " + hello.node.short_hex() + ", but its certificate is of " +
               connection.certified.short_hex();
    if (hello.cluster != config_.cluster) return "belongs to another cluster";
    if (!nodes_.contains(hello.node) && nodes_.size() >= config_.nodes_max)
        return "the roster is full (" + std::to_string(config_.nodes_max) + " nodes)";
    return {};
}

void PeerTable::on_hello(ConnectionId id, Connection& connection, const wire::Hello& hello, Time now) {
    if (const std::string fault = fault_of(connection, hello); !fault.empty())
        return refuse(id, Level::warn, "peer_refused", fault);
    connection.hello = hello;
    Node& node = nodes_[hello.node];
    if (node.life && node.life->incarnation != hello.incarnation && node.connection)
        return ask_old_life(id, node, now);
    take_life(id, now);
}

// [P3] The old life answers over its own connection, or it is dead.
void PeerTable::ask_old_life(ConnectionId newcomer, const Node& node, Time now) {
    const CloneQuestion question{newcomer, *node.connection, next_nonce_++, now + config_.clone_window};
    questions_.push_back(question);
    const wire::ProbeRequest request{question.nonce, node.life->record.node, node.life->incarnation};
    actions_.push_back(SendOn{question.old, request});
}

bool PeerTable::on_probe_reply(ConnectionId id, const wire::ProbeReply& reply, Time now) {
    const auto at = std::find_if(questions_.begin(), questions_.end(), [&](const CloneQuestion& q) {
        return q.nonce == reply.nonce && q.old == id;
    });
    if (at == questions_.end()) return reply.nonce >> 63 != 0;  // late, but ours
    const CloneQuestion question = *at;
    questions_.erase(at);
    if (!reply.heard) {
        admit_newcomer(question, now);
        return true;
    }
    const std::string old = connections_.at(id).remote;
    const Connection& newcomer = connections_.at(question.newcomer);
    refuse(question.newcomer, Level::error, "clone_refused",
           "node " + newcomer.certified.short_hex() + " is alive at " + old + " and connects from " +
               newcomer.remote + " as well: one of them has a copied state directory");
    return true;
}

// The old life did not answer, or its connection closed.
void PeerTable::admit_newcomer(CloneQuestion question, Time now) {
    if (connections_.contains(question.newcomer)) take_life(question.newcomer, now);
}

// Accepts the hello of this connection, ending another life of the node if need be [P3].
void PeerTable::take_life(ConnectionId id, Time now) {
    Connection& connection = connections_.at(id);
    const wire::Hello hello = *connection.hello;
    Node& node = nodes_[hello.node];
    if (hello.incarnation.counter < node.highest_counter)
        return refuse(id, Level::error, "stale_incarnation_refused",
                      "node " + hello.node.short_hex() + " at " + connection.remote +
                          " is in its life number " + life_text(hello.incarnation) + ", but number " +
                          std::to_string(node.highest_counter) +
                          " was seen: its state directory is an old copy");
    const bool new_life = !node.life || node.life->incarnation != hello.incarnation;
    if (new_life && (next_peer_ >= config_.lives_max || node.lives >= config_.lives_max / 4))
        return refuse(id, Level::error, "too_many_lives",
                      "this daemon has met " + std::to_string(next_peer_) + " lives of nodes, " +
                          std::to_string(node.lives) + " of node " + hello.node.short_hex() +
                          "; the most are " + std::to_string(config_.lives_max) + " and a quarter of it");
    if (node.life && new_life) {
        const auto old = node.connection;
        end_life(node,
                 "a later life of node " + hello.node.short_hex() + " connected from " + connection.remote);
        if (old) drop(*old, "replaced by a later life");
    }
    if (node.connection) {
        const Connection& older = connections_.at(*node.connection);
        if (keeps_older(older, connection, node, now))
            return drop(id, "simultaneous dials: the other one stays");
        drop(*node.connection, "simultaneous dials or a newer connection: the other one stays");
    }
    if (new_life) {
        node.life = PeerInfo{PeerIndex{next_peer_++}, {}, {}, 0, 1, 1};
        ++node.lives;
    }
    connection.accepted = true;
    node.life->record = hello.self;
    node.life->incarnation = hello.incarnation;
    node.life->bulk_port = hello.bulk_port;
    node.life->bulk_shards = hello.bulk_shards;
    node.life->protocol = std::min(hello.protocol, config_.protocol);
    node.highest_counter = hello.incarnation.counter;
    node.connection = id;
    node.connected_since = now;
    node.lost = false;
    node.dialling.gives_up = never;
    ++node.generation;
    if (connection.outgoing && seeds_.erase(connection.remote) > 0) node.seed = connection.remote;
    actions_.push_back(PeerUp{*node.life, id, node.generation});
    learn(hello.self, id, true, now);
    for (const wire::NodeRecord& record : hello.roster) learn(record, id, false, now);
}

// [P4]
bool PeerTable::keeps_older(const Connection& older, const Connection& newer, const Node& node,
                            Time now) const {
    if (older.outgoing == newer.outgoing || now - node.connected_since >= config_.young) return false;
    const bool we_are_lower = config_.self.node < newer.certified;
    return older.outgoing == we_are_lower;
}

void PeerTable::end_life(Node& node, const std::string& why) {
    if (!node.life) return;
    actions_.push_back(PeerDown{node.life->peer, node.life->record.node, node.life->incarnation, why, true});
    node.life.reset();
    node.connection.reset();
    node.generation = 0;
    node.lost = false;
}

void PeerTable::on_goodbye(ConnectionId id, const wire::Goodbye& goodbye, Time now) {
    Node& node = nodes_.at(connections_.at(id).certified);
    if (node.connection != id) return;
    end_life(node, goodbye.reason.empty() ? "said goodbye" : "said goodbye: " + goodbye.reason);
    drop(id, "goodbye");
    node.dialling = {0, 0, 0, now + config_.backoff_max, never};
    // A life that waited for this one's answer.
    const auto question =
        std::find_if(questions_.begin(), questions_.end(), [&](const auto& q) { return q.old == id; });
    if (question == questions_.end()) return;
    const CloneQuestion answered = *question;
    questions_.erase(question);
    admit_newcomer(answered, now);
}

// [P6]
void PeerTable::learn(const wire::NodeRecord& record, ConnectionId from, bool own_words, Time now) {
    if (record.node == config_.self.node || record.node.is_zero()) return;
    const auto known = nodes_.find(record.node);
    if (known == nodes_.end() && nodes_.size() >= config_.nodes_max) return;
    Node& node = known == nodes_.end() ? nodes_[record.node] : known->second;
    const bool is_new = node.record.node.is_zero();
    if (!is_new && (!own_words || node.record == record)) {
        node.own_words = node.own_words || own_words;
        return;
    }
    node.record = record;
    node.own_words = own_words;
    // The lower NodeId dials first, so that most pairs get by with one connection.
    if (is_new && !node.connection)
        node.dialling.next = now + (config_.self.node < record.node ? Duration{} : 2 * config_.backoff_min);
    for (const auto& [id, connection] : connections_)
        if (connection.accepted && id != from && connection.certified != record.node)
            actions_.push_back(SendOn{id, wire::RosterUpdate{{record}}});
}

void PeerTable::say_goodbye(const std::string& reason) {
    leaving_ = true;
    for (const auto& [id, connection] : connections_)
        if (connection.accepted) actions_.push_back(SendOn{id, wire::Goodbye{reason}});
}

// ---- Dialling [P5] ----

Duration PeerTable::jittered(Duration base) {
    const auto quarter = static_cast<uint64_t>(base.count() / 4);
    return base +
           Duration(static_cast<int64_t>(random_.below(2 * quarter + 1)) - static_cast<int64_t>(quarter));
}

void PeerTable::dial_failed(Dialling& dialling, size_t addresses, Time now) {
    dialling.gives_up = never;
    const bool round_over = addresses == 0 || ++dialling.address >= addresses;
    if (round_over) dialling.address = 0;
    if (dialling.fast > 0) {
        --dialling.fast;
        dialling.next = now + config_.fast_redial;
        return;
    }
    Duration wait = config_.backoff_min;
    for (unsigned i = 0; i < dialling.rounds && wait < config_.backoff_max; ++i) wait *= 2;
    dialling.next = now + std::clamp(jittered(wait), config_.backoff_min, config_.backoff_max);
    if (round_over && dialling.rounds < 16) ++dialling.rounds;
}

void PeerTable::node_dial_failed(Node& node, Time now) {
    dial_failed(node.dialling, addresses_of(node.record, node.seed).size(), now);
    if (node.lost) actions_.push_back(RedialFailed{node.life->peer});
}

void PeerTable::on_dial_failed(const std::string& address, const NodeId& expected, const std::string& why,
                               Time now) {
    actions_.push_back(Note{Level::debug, "dial_failed", {{"address", address}, {"reason", why}}});
    if (expected.is_zero()) {
        const auto seed = seeds_.find(address);
        if (seed != seeds_.end() && seed->second.gives_up != never) dial_failed(seed->second, 1, now);
        return;
    }
    const auto node = nodes_.find(expected);
    if (node == nodes_.end() || node->second.connection || node->second.dialling.gives_up == never) return;
    node_dial_failed(node->second, now);
}

size_t PeerTable::dials_in_flight() const {
    size_t n = 0;
    nodes_walked_ += nodes_.size();
    for (const auto& [id, node] : nodes_) n += node.dialling.gives_up != never;
    for (const auto& [address, seed] : seeds_) n += seed.gives_up != never;
    return n;
}

size_t PeerTable::strangers() const {
    return static_cast<size_t>(std::count_if(connections_.begin(), connections_.end(),
                                             [](const auto& c) { return !c.second.accepted; }));
}

// How many dials may be in flight when this one begins: some places are kept for those who were just lost.
size_t PeerTable::dials_max_for(const Dialling& dialling) const {
    return dialling.fast > 0 ? config_.dials_max : config_.dials_max - config_.dials_max / 4;
}

// Whoever was just lost first, then whoever has waited longest: nodes that will never answer take turns with
// the others, whatever their names.
void PeerTable::dial_due(Time now) {
    if (leaving_) return;
    size_t flying = dials_in_flight();
    for (auto& [address, seed] : seeds_) {
        if (seed.gives_up != never || now < seed.next || flying >= dials_max_for(seed)) continue;
        seed.gives_up = now + config_.dial_timeout;
        actions_.push_back(Dial{address, {}});
        ++flying;
    }
    std::vector<std::pair<const NodeId, Node>*> due;
    nodes_walked_ += nodes_.size();
    for (auto& entry : nodes_) {
        const Node& node = entry.second;
        const bool idle = !node.connection && node.dialling.gives_up == never;
        if (idle && now >= node.dialling.next && !addresses_of(node.record, node.seed).empty())
            due.push_back(&entry);
    }
    std::ranges::sort(due, {}, [](const auto* entry) {
        const Dialling& dialling = entry->second.dialling;
        return std::tuple(dialling.fast == 0, dialling.next, entry->first);
    });
    for (auto* entry : due) {
        auto& [id, node] = *entry;
        if (flying >= dials_max_for(node.dialling)) break;
        const auto addresses = addresses_of(node.record, node.seed);
        node.dialling.gives_up = now + config_.dial_timeout;
        actions_.push_back(Dial{addresses[node.dialling.address % addresses.size()], id});
        ++flying;
    }
}

// ---- Time ----

void PeerTable::expire(Time now) {
    std::vector<ConnectionId> silent;
    for (const auto& [id, connection] : connections_)
        if (!connection.hello && now >= connection.since + config_.hello_timeout) silent.push_back(id);
    for (const ConnectionId id : silent) on_closed_by_fault(id, "no hello in time", now);
    for (size_t i = 0; i < questions_.size();) {
        if (now < questions_[i].deadline) {
            ++i;
            continue;
        }
        const CloneQuestion question = questions_[i];
        questions_.erase(questions_.begin() + static_cast<ptrdiff_t>(i));
        admit_newcomer(question, now);
    }
    nodes_walked_ += nodes_.size();
    for (auto& [id, node] : nodes_)
        if (now >= node.dialling.gives_up) node_dial_failed(node, now);
    for (auto& [address, seed] : seeds_)
        if (now >= seed.gives_up) dial_failed(seed, 1, now);
}

void PeerTable::on_time(Time now) {
    expire(now);
    dial_due(now);
}

Time PeerTable::wake_at() const {
    Time next = never;
    for (const auto& [id, connection] : connections_)
        if (!connection.hello) next = std::min(next, connection.since + config_.hello_timeout);
    for (const CloneQuestion& question : questions_) next = std::min(next, question.deadline);
    const size_t flying = dials_in_flight();
    auto consider = [&](const Dialling& dialling) {
        if (dialling.gives_up != never)
            next = std::min(next, dialling.gives_up);
        else if (!leaving_ && flying < dials_max_for(dialling))
            next = std::min(next, dialling.next);
    };
    nodes_walked_ += nodes_.size();
    for (const auto& [id, node] : nodes_)
        if (!node.connection && !addresses_of(node.record, node.seed).empty()) consider(node.dialling);
    for (const auto& [address, seed] : seeds_) consider(seed);
    return next;
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
    return nodes_.at(at->second.certified).life->peer;
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
    return at == nodes_.end() || !at->second.life ? nullptr : &*at->second.life;
}
std::vector<NodeId> PeerTable::connected() const {
    std::vector<NodeId> out;
    for (const auto& [id, node] : nodes_)
        if (node.connection) out.push_back(id);
    return out;
}
std::string PeerTable::hostname_of(const NodeId& node) const {
    const auto known = nodes_.find(node);
    return known == nodes_.end() ? std::string() : known->second.record.hostname;
}

std::vector<wire::NodeRecord> PeerTable::roster() const {
    std::vector<wire::NodeRecord> out;
    for (const auto& [id, node] : nodes_)
        if (!node.record.node.is_zero()) out.push_back(node.record);
    return out;
}

}  // namespace nexar::membership
