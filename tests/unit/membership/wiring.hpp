// Membership: peer table, failure detector and arbiter of one node, wired together for these tests, as node/
// and engine/watch do it between them in the daemon. Sans-io: after every input collect poll_action() until
// it is empty, then sleep until wake_at(). One thread.
//
// The order inside one turn of the loop matters for [F3]: read the sockets first, then call on_time.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <variant>

#include "membership/arbiter.hpp"
#include "membership/failure_detector.hpp"
#include "membership/peer_table.hpp"

namespace nexar::membership {

struct MembershipConfig {
    PeerTableConfig table;
    DetectorConfig detector;
    ArbiterConfig arbiter;
};

struct GroupDecided {  // final for every pending and later call of the group
    GroupId group;
    Error error;
};
using Action = std::variant<Dial, CloseConnection, SendOn, PeerUp, PeerDown, GroupDecided, Note>;

class Membership {
  public:
    Membership(const MembershipConfig& config, Random random, Time now);

    // Connections, from the transport.
    void on_connected(ConnectionId connection, const NodeId& certified, bool outgoing,
                      const std::string& remote, Time now);
    void on_dial_failed(const std::string& address, const NodeId& expected, const std::string& why, Time now);
    void on_closed(ConnectionId connection, const std::string& why, Time now);
    void on_heard(ConnectionId connection,
                  Time now);                          // any authenticated packet; may be called once per turn
    void on_sent(ConnectionId connection, Time now);  // anything sent that the peer will authenticate
    void on_rtt(ConnectionId connection, Duration rtt);
    // A whole control message. Nothing: it was ours. Otherwise who sent it: rendezvous and groups are the
    // engine's.
    std::optional<NodeId> on_message(ConnectionId connection, const wire::Message& message, Time now);
    void on_time(Time now);
    void say_goodbye(const std::string& reason, Time now);

    // Groups, from the engine. Lives of the nodes are filled in from the peer table where they are zero.
    void on_group(const GroupId& group, GroupEpoch epoch, std::vector<GroupNode> nodes, Time now);
    void on_group_gone(const GroupId& group);
    void on_rank_lost(const GroupId& group, Rank rank, const NodeId& node, const std::string& reason,
                      Time now);

    std::optional<Action> poll_action();
    Time wake_at() const;

    // To a node, over the connection in use; false: there is none.
    bool send(const NodeId& to, wire::Message message, Time now);

    const PeerTable& table() const { return table_; }
    const FailureDetector& detector() const { return detector_; }
    const Arbiter& arbiter() const { return arbiter_; }
    // For names in texts: "host (ab12cd)", or the NodeId alone.
    std::string name_of(const NodeId& node) const;

  private:
    void drain(Time now);
    void drain_table(Time now);
    void take(const TableAction& action, Time now);
    void drain_detector(Time now);
    void drain_arbiter(Time now);

    MembershipConfig config_;
    PeerTable table_;
    FailureDetector detector_;
    Arbiter arbiter_;
    std::map<PeerIndex, std::pair<NodeId, Incarnation>> lives_;
    std::deque<Action> actions_;
    uint64_t heartbeats_ = 0;
};

}  // namespace nexar::membership
