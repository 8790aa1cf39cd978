// PeerTable: who is admitted. Incarnations of one node, as this table sees them:
//   unknown -> up     HELLO accepted [P1]
//   up -> lost        its connection closed: suspicion, it is dialled again
//   lost -> up        a connection of the same incarnation: same index, higher generation [P2]
//   up, lost -> over  goodbye; another incarnation proved that it has failed [P3]; it was lost for long [P7]
#include <algorithm>

#include "connections/peer_table.hpp"
#include "core/check.hpp"

namespace nexar::connections {
namespace {

std::string counter_text(Incarnation incarnation) {
    return std::to_string(incarnation.counter);
}

}  // namespace

std::string PeerTable::fault_of(const Connection& connection, const wire::Hello& hello) const {
    const NewConnection& opened = connection.opened;
    if (hello.node != opened.certified || hello.self.node != opened.certified)
        return "says that it is node " + hello.node.short_hex() + ", but its certificate is of " +
               opened.certified.short_hex();
    if (hello.incarnation != opened.incarnation)
        return "says that it is incarnation " + counter_text(hello.incarnation) +
               ", but its connection began as incarnation " + counter_text(opened.incarnation);
    if (hello.cluster != config_.cluster) return "belongs to another cluster";
    if (!roster_.has_room_for(hello.node))
        return "the roster is full (" + std::to_string(config_.roster.nodes_max) + " nodes)";
    return {};
}

void PeerTable::on_hello(ConnectionId id, Connection& connection, const wire::Hello& hello, Time now) {
    if (const std::string fault = fault_of(connection, hello); !fault.empty())
        return refuse(id, Level::warn, "peer_refused", fault, now);
    connection.hello = hello;
    const auto node = nodes_.find(hello.node);
    if (node != nodes_.end() && node->second.connection &&
        node->second.peer->incarnation != hello.incarnation)
        return ask_old_incarnation(id, node->second, now);
    take_incarnation(id, now);
}

// [P3] The old incarnation answers over its own connection, or it has failed.
void PeerTable::ask_old_incarnation(ConnectionId newcomer, const Node& node, Time now) {
    const CloneQuestion question{newcomer, *node.connection, next_nonce_++, now + config_.clone_window};
    questions_.push_back(question);
    const wire::ProbeRequest request{question.nonce, node.peer->record.node, node.peer->incarnation};
    actions_.push_back(SendOn{question.old, request});
}

bool PeerTable::on_probe_reply(ConnectionId id, const wire::ProbeReply& reply, Time now) {
    const auto at = std::find_if(questions_.begin(), questions_.end(), [&](const CloneQuestion& q) {
        return q.nonce == reply.nonce && q.old == id;
    });
    if (at == questions_.end()) return reply.nonce >> 63 != 0;  // late, but ours
    const CloneQuestion question = *at;
    questions_.erase(at);
    if (!reply.reached) {
        admit_newcomer(question, now);
        return true;
    }
    const std::string old = connections_.at(id).opened.remote;
    const NewConnection& newcomer = connections_.at(question.newcomer).opened;
    refuse(question.newcomer, Level::error, "clone_refused",
           "node " + newcomer.certified.short_hex() + " is alive at " + old + " and connects from " +
               newcomer.remote + " as well: one of them has a copied state directory",
           now);
    return true;
}

// The connection of an old incarnation has ended: that is an answer.
void PeerTable::answer_question(ConnectionId old, Time now) {
    const auto at = std::ranges::find(questions_, old, &CloneQuestion::old);
    if (at == questions_.end()) return;
    const CloneQuestion answered = *at;
    questions_.erase(at);
    admit_newcomer(answered, now);
}

// The old incarnation did not answer, or its connection closed.
void PeerTable::admit_newcomer(CloneQuestion question, Time now) {
    if (connections_.contains(question.newcomer)) take_incarnation(question.newcomer, now);
}

std::string PeerTable::fault_of_incarnation(const Connection& connection) const {
    const wire::Hello& hello = *connection.hello;
    const uint64_t highest = roster_.highest_counter_of(hello.node);
    if (hello.incarnation.counter < highest)
        return "node " + hello.node.short_hex() + " at " + connection.opened.remote +
               " is in its incarnation number " + counter_text(hello.incarnation) + ", but number " +
               std::to_string(highest) + " was seen: its state directory is an old copy";
    return {};
}

// Accepts the hello of this connection, ending another incarnation of the node if need be [P3].
void PeerTable::take_incarnation(ConnectionId id, Time now) {
    Connection& connection = connections_.at(id);
    const wire::Hello& hello = *connection.hello;
    if (const std::string fault = fault_of_incarnation(connection); !fault.empty())
        return refuse(id, Level::error, "stale_incarnation_refused", fault, now);
    const auto known = nodes_.find(hello.node);
    const bool is_new =
        known == nodes_.end() || !known->second.peer || known->second.peer->incarnation != hello.incarnation;
    const size_t incarnations = known == nodes_.end() ? 0 : known->second.incarnations;
    if (is_new && (next_peer_ >= config_.incarnations_max || incarnations >= config_.incarnations_max / 4))
        return refuse(id, Level::error, "too_many_incarnations",
                      "this daemon has met " + std::to_string(next_peer_) + " incarnations of nodes, " +
                          std::to_string(incarnations) + " of node " + hello.node.short_hex() +
                          "; the most are " + std::to_string(config_.incarnations_max) +
                          " and a quarter of it",
                      now);
    learn(hello.self, id, now);
    const auto found = nodes_.find(hello.node);
    if (found == nodes_.end())  // others took the room while the old incarnation was asked
        return refuse(id, Level::warn, "peer_refused", "the roster is full", now);
    Node& node = found->second;
    if (node.peer && is_new) {
        const auto old = node.connection;
        end_incarnation(node, "a later incarnation of node " + hello.node.short_hex() + " connected from " +
                                  connection.opened.remote);
        if (old) drop(*old, "replaced by a later incarnation");
    }
    if (!is_new && connection.opened.generation <= node.generation)  // [P4]
        return drop(id, "another connection of the same two nodes is in use");
    if (node.connection) drop(*node.connection, "another connection of the same two nodes is in use");
    if (is_new) {
        node.peer = PeerInfo{PeerIndex{next_peer_++}, {}, {}, 0, 1, {}};
        ++node.incarnations;
    }
    use(id, node, now);
}

void PeerTable::use(ConnectionId id, Node& node, Time now) {
    Connection& connection = connections_.at(id);
    const wire::Hello& hello = *connection.hello;
    connection.accepted = true;
    --unidentified_;
    node.peer->record = hello.self;
    node.peer->incarnation = hello.incarnation;
    node.peer->bulk_port = hello.bulk_port;
    node.peer->bulk_shards = hello.bulk_shards;
    node.peer->agreed = connection.opened.agreed;
    node.connection = id;
    node.connected_since = now;
    node.generation = connection.opened.generation;
    roster_.set_highest_counter(hello.node, hello.incarnation.counter);
    roster_.set_standing(hello.node, Roster::Standing::met, now);
    schedule_.stop({hello.node, {}});
    if (connection.opened.outgoing && seeds_.erase(connection.opened.remote) > 0) {
        schedule_.remove({{}, connection.opened.remote});
        node.seed = connection.opened.remote;
        schedule_.add({hello.node, {}}, addresses_of(hello.node).size());
    }
    actions_.push_back(PeerUp{*node.peer, id, node.generation});
    for (const wire::NodeRecord& record : hello.roster) learn(record, id, now);
}

void PeerTable::end_incarnation(Node& node, const std::string& why) {
    if (!node.peer) return;
    actions_.push_back(PeerDown{node.peer->peer, node.peer->record.node, node.peer->incarnation, why, true});
    node.peer.reset();
    node.connection.reset();
}

void PeerTable::on_goodbye(ConnectionId id, const wire::Goodbye& goodbye, Time now) {
    const NodeId who = connections_.at(id).opened.certified;
    Node& node = nodes_.at(who);
    if (node.connection != id) return;
    end_incarnation(node, goodbye.reason.empty() ? "sent goodbye" : "sent goodbye: " + goodbye.reason);
    roster_.set_standing(who, Roster::Standing::departed, now);
    drop(id, "goodbye");
    schedule_.start({who, {}}, now + config_.dial.backoff_max);
    answer_question(id, now);
}

}  // namespace nexar::connections
