// Rendezvous of one node: its own processes' opens, and, while this node is the leader, the directory of
// everybody's (docs/protocol/rendezvous.md; [R..] are its invariants). Sans-io: after every input collect
// poll_action() until it is empty, then sleep until wake_at(). One thread, owned by the engine.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "core/features.hpp"
#include "core/ids.hpp"
#include "core/result.hpp"
#include "core/time.hpp"
#include "rendezvous/directory.hpp"
#include "wire/messages.hpp"

namespace nexar::rendezvous {

struct Config {
    NodeId self;
    Incarnation life;                                       // its nonce goes into the ids of groups
    uint16_t bulk_shards = 1;                               // of this node
    uint64_t features = known_features();                   // the same
    wire::PlanTableRecord plan;                             // for groups led from here
    wire::TimeoutsRecord timeouts{30'000, 30'000, 30'000};  // where members do not say
    std::function<std::string(const NodeId&)> name_of;      // for texts; empty: the NodeId
    Duration link_wait{1'000'000'000};
    Duration prepare_timeout{2'000'000'000};
    Duration retry_delay{100'000'000};
    Duration decision_timeout{3'000'000'000};
    Duration query_timeout{1'000'000'000};
    Duration status_wait{300'000'000};
    Duration timeout_max{std::chrono::hours(24)};
    size_t opens_per_session_max = 256;
    size_t opens_per_node_max = 4096;
    size_t directory_max = 1 << 20;
    size_t decisions_max = 4096;
    size_t promises_max = 256;  // of each node
};

struct OpenSpec {
    SessionId session;
    wire::GroupKey key{};
    bool local = false;  // the key is of this node only
    std::string name;
    uint32_t size = 0;
    int64_t rank = -1;
    uint32_t pid = 0;
    Duration timeout{30'000'000'000};  // 0: none
    wire::TimeoutsRecord timeouts{};
};

// What the machine wants or tells.
struct Send {  // by the control log: once and in order, while the incarnation that it is for lives
    NodeId to;
    wire::Message message;
};
struct Opened {  // a group is committed; every node with members gets it once
    wire::GroupPrepare group;
    std::vector<std::pair<wire::RequestId, Rank>> ranks;  // of this node, still wanted
    std::vector<Rank> gone;                               // of this node: the process ended meanwhile [R12]
};
struct Failed {  // an open of this node is over
    wire::RequestId request;
    Error error;
};
// A committed group that another member node never joined [R9]. To be given to the arbiter as the loss of
// that node's lowest rank, so that all members end with one error.
struct Disowned {
    GroupId group;
    NodeId node;
    std::string text;
};
using Action = std::variant<Send, Opened, Failed, Disowned>;

class Rendezvous {
  public:
    explicit Rendezvous(Config config);
    Rendezvous(const Rendezvous&) = delete;
    Rendezvous& operator=(const Rendezvous&) = delete;

    // Input. The answer to an open is one Opened (listing it) or one Failed, or neither after withdraw().
    Result<wire::RequestId> open(const OpenSpec& spec, Time now);
    void withdraw(const wire::RequestId& request, Time now);
    void withdraw_session(SessionId session, Time now);
    void on_peer_up(const NodeId& node, Incarnation life, Time now);
    void on_peer_down(const NodeId& node, Incarnation life, Time now);            // of another life: no news
    bool on_message(const NodeId& from, const wire::Message& message, Time now);  // false: not for us
    void on_time(Time now);

    // Output.
    std::optional<Action> poll_action();
    Time wake_at() const;

    void check_invariants() const;  // for tests; walks everything

    NodeId leader() const { return leader_; }
    size_t pending() const { return own_.size(); }
    // This node has prepared the group and waits for its commit.
    bool awaits(const GroupId& group) const { return reservations_.contains(group); }
    // For nexarctl: the opens of this node.
    struct PendingOpen {
        wire::GroupOpen open;
        SessionId session;
        bool reserved = false;
        Time deadline;
    };
    std::vector<PendingOpen> pending_opens() const;

  private:
    struct Own {  // an open of this node
        wire::GroupOpen open;
        SessionId session;
        bool local = false;
        std::set<NodeId> listed;  // with whom: they may lead it, nobody else
        Duration timeout;
        Time deadline;
        Time status_until = never;  // asked the leader who is there [R11]
        std::optional<GroupId> reserved;
        bool withdrawn = false;  // while reserved [R12]
        std::string trouble;     // why the last attempt was called off
    };
    struct Relayed {  // passed on for another node [R1]
        wire::GroupOpen open;
        NodeId via;
    };
    struct Reservation {
        wire::GroupPrepare prepare;
        NodeId leader;
        std::map<NodeId, Incarnation> nodes;  // of the members, without self
        Time link_deadline = never;           // waiting for links; never: answered
        Time decision_deadline;
        Time query_until = never;  // asking the others [R8]
    };
    enum class Outcome : uint8_t { committed, called_off };
    struct Decision {
        Outcome outcome = Outcome::called_off;
        std::vector<NodeId> nodes;  // committed: whom it concerns
        NodeId leader;              // committed: who else may speak about it
        Time at{};
    };

    // Member side (member.cpp).
    void on_prepare(const NodeId& from, const wire::GroupPrepare& prepare, Time now);
    std::string fault_of(const NodeId& from, const wire::GroupPrepare& prepare, Time now);
    static std::string contradiction(const wire::GroupOpen& open, const wire::GroupPrepare& prepare,
                                     const wire::GroupMemberRecord& member);
    void promise(const NodeId& to, const GroupId& group);
    bool has_promised(const NodeId& from, const wire::GroupPrepare& prepare) const;
    void resume(const NodeId& node, const GroupId& group, Reservation& reservation, Time now);
    void answer_prepare(const GroupId& group, Reservation& reservation, Time now);
    void on_commit(const NodeId& from, const GroupId& group, Time now);
    void on_refused(const NodeId& from, const wire::GroupRefused& refused, Time now);
    void on_query(const NodeId& from, const GroupId& group);
    void on_unlisted(const NodeId& from, const wire::RequestId& request, Time now);
    void commit(const GroupId& group, Time now);
    void disown(const NodeId& from, const GroupId& group, const NodeId& by, const Error& error);
    void call_off(const GroupId& group, const Error& error, Time now);
    void on_reservation_time(const GroupId& group, Time now);
    void ask_members(const GroupId& group, Reservation& reservation, Time now);
    Error link_fault(const Reservation& reservation, const NodeId& node, Reach reach) const;
    Reach reach_of(const NodeId& node, Incarnation life) const;
    // Opens (rendezvous.cpp).
    void list(Own& own, Time now);
    void pass_on(const wire::GroupOpen& open, const NodeId& via, Time now);
    void relist_all(Time now);
    void on_open(const NodeId& from, const wire::GroupOpen& open, Time now);
    void on_withdraw(const NodeId& from, const wire::GroupWithdraw& withdraw, Time now);
    void on_status_request(const NodeId& from, const wire::GroupStatusRequest& request, Time now);
    void on_status(const NodeId& from, const wire::GroupStatus& status);
    void fail_open(const wire::RequestId& request, Error error);
    void expire(const wire::RequestId& request, const wire::GroupStatus* status);
    void expire_all(Time now);
    void update_leader(Time now);
    void send(const NodeId& to, wire::Message message);
    void settle(Time now);
    void decided(const GroupId& group, Decision decision);
    bool has_committed(const GroupId& group) const;
    std::string name_of(const NodeId& node) const;
    const NodeId& leader_of(const Own& own) const { return own.local ? config_.self : leader_; }

    Config config_;
    NodeId leader_;
    std::map<NodeId, Incarnation> peers_;  // connected, to this life
    std::map<NodeId, Incarnation> lost_;   // not connected any more; as many as the peer table knows
    // Counts on from life to life, so that an open of an earlier life is never taken for one of this.
    uint64_t next_request_;
    std::map<wire::RequestId, Own> own_;
    std::map<wire::RequestId, Relayed> relayed_;
    std::map<GroupId, Reservation> reservations_;
    std::map<GroupId, Decision> decisions_;
    std::deque<GroupId> decision_order_;
    // Attempts that will not be joined, because a node was told so that may be in them. By node: what a
    // stranger asks binds nobody, and takes no place from others.
    std::map<NodeId, std::deque<GroupId>> promised_;
    Directory directory_;
    std::deque<wire::Message> inbox_;  // to ourselves
    std::deque<Action> actions_;
};

}  // namespace nexar::rendezvous
