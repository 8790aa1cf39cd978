// Rendezvous: the opens of one node's processes and, while this node is the leader, the directory of all
// nodes' opens (docs/protocol/rendezvous.md; [R..] are its invariants). Sans-io: after every input the owner
// polls poll_action() until it is empty, then sleeps until wake_at().
//
// Thread: the owner's (the engine).
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
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
#include "rendezvous/due_turns.hpp"
#include "rendezvous/forming.hpp"
#include "rendezvous/listed.hpp"
#include "rendezvous/proof.hpp"
#include "rendezvous/refusals.hpp"
#include "rendezvous/texts.hpp"
#include "rendezvous/waiting.hpp"
#include "wire/messages.hpp"

namespace nexar::rendezvous {

struct Config {
    NodeId self;
    Incarnation incarnation;                                // this node's; its nonce is a part of group ids
    uint16_t bulk_shards = 1;                               // of this node
    uint64_t features = known_features();                   // the same
    wire::PlanTableRecord plan;                             // for groups that this node leads
    wire::TimeoutsRecord timeouts{30'000, 30'000, 30'000};  // for time-outs that no member sets
    std::function<std::string(const NodeId&)> name_of;      // for error texts; empty: the NodeId
    std::function<std::string(const NodeId&)>
        host_of;                       // for the order of automatic ranks [R4]; "": not known
    std::function<bool()> in_cluster;  // this node, for error texts; empty: it is
    // Whether a node below this one is known that may be there, connected or not. Empty: those that were
    // connected.
    std::function<bool()> knows_lower;
    ProofPort proof;  // required
    // What the control log with that node takes now. None: any.
    std::function<LogRoom(const NodeId&)> log_room;
    size_t open_log_bytes_max = 0;  // that an open, or its withdrawal, takes of that log; required
    Duration link_wait{1'000'000'000};
    Duration prepare_timeout{2'000'000'000};
    Duration retry_delay{100'000'000};
    Duration decision_timeout{3'000'000'000};
    Duration query_timeout{1'000'000'000};
    Duration status_wait{300'000'000};
    Duration second_wait{2'000'000'000};     // until opens are listed with a second leader [R36]
    Duration unproven_delay{1'000'000'000};  // until an open is listed again, after a proof that was wrong
    Duration timeout_max{std::chrono::hours(24)};
    // Opens that are kept for another node, as its leader or on their way there; and for all nodes [R25].
    size_t node_opens_max = 65536;
    size_t directory_max = 16 * node_opens_max;
    uint64_t first_group = 1;  // counter of the first group's id; not to be guessed [G12]
    size_t decisions_max = 4096;
    size_t promises_max = 256;  // of each node
    // Opens of each kind that one turn lists again, passes on again or forgets [R26].
    size_t relists_at_once_max = 128;
    // Opens of this node whose time is over that end in one turn, and as many reservations [N16].
    size_t due_at_once_max = 4;
};

// Who pays for the messages of an open: the owner's. It exists until none of them can come any more.
class Payer {
  public:
    virtual ~Payer() = default;
};
using PayerRef = std::shared_ptr<Payer>;

struct OpenSpec {
    SessionId session;
    wire::GroupKey key{};
    bool local = false;  // the key is valid on this node only
    std::string name;
    uint32_t size = 0;
    int64_t rank = -1;
    uint32_t pid = 0;
    Duration timeout{30'000'000'000};  // 0: none
    wire::TimeoutsRecord timeouts{};
    ProofKey proof{};  // not for a local key
    PayerRef payer{};  // or none
    // TenantName::mark(); 0: not known. Openers' opens are listed again in turns [R26].
    uint64_t opener_mark = 0;
    // Of a group from a list: its ranks, as ranks of the parent [Y9]; empty: of any other group.
    SharedList<uint32_t> parent_ranks{};
};

// Actions for the owner.
struct Send {  // by the control log: once and in order to that incarnation of the node
    NodeId to;
    wire::Message message;
    PayerRef payer{};  // of an open of this node; none: an answer, or for another node
};
struct Opened {  // a group is committed; once on each node with members
    wire::GroupPrepare group;
    std::vector<std::pair<wire::RequestId, Rank>> ranks;  // ranks of this node
    std::vector<Rank> gone;           // ranks of this node whose process ended meanwhile [R12]
    std::optional<ProofKey> proof{};  // of these ranks; none: a local group, or all of them are gone
};
struct Failed {  // an open of this node has failed
    wire::RequestId request;
    Error error;
};
// A committed group that another member node has aborted [R9]. The owner reports it to the arbiter as the
// loss of that node's lowest rank, so that all members get one error.
struct Disowned {
    GroupId group;
    NodeId node;
    std::string text;
};
// A node did not prove that it has the job's secret, so this attempt is over; for the log.
struct Unproven {
    GroupId group;
    NodeId node;
    NodeId leader;  // may have sent another tag than the node's
};
using Action = std::variant<Send, Opened, Failed, Disowned, Unproven>;

class Rendezvous {
  public:
    explicit Rendezvous(Config config);
    Rendezvous(const Rendezvous&) = delete;
    void set_plan(const wire::PlanTableRecord& plan) {  // of groups that this node leads from now on
        directory_.set_plan(plan);
        local_.set_plan(plan);
    }
    void set_trial(Trial trial) { directory_.set_trial(std::move(trial)); }
    Rendezvous& operator=(const Rendezvous&) = delete;

    // Input. Ensures: each open has one Opened that lists it, or one Failed, or neither after withdraw().
    Result<wire::RequestId> open(const OpenSpec& spec, Time now);
    void withdraw(const wire::RequestId& request, Time now);
    void withdraw_session(SessionId session, Time now);
    // [R37] The open fails with the owner's error; one that is in an attempt does when that is aborted.
    void end(const wire::RequestId& request, Error error, Time now);
    bool is_reserved(const wire::RequestId& request) const;  // in an attempt
    void on_peer_up(const NodeId& node, Incarnation incarnation, Time now);
    void on_peer_down(const NodeId& node, Incarnation incarnation, Time now);  // another incarnation: ignored
    bool on_message(const NodeId& from, const wire::Message& message,
                    Time now);  // false: another kind of message
    void on_time(Time now);
    // A group of which there was an Opened is no more, or was never made. Until then its commit is kept
    // [R32].
    void group_ended(const GroupId& group);

    // Output.
    std::optional<Action> poll_action();
    Time wake_at() const;

    void check_invariants() const;  // for tests; walks everything
    // Opens and attempts that inputs looked at; for tests.
    uint64_t visited() const { return visited_ + directory_.visited() + local_.visited(); }

    NodeId leader() const { return leader_; }
    size_t pending() const { return own_.size(); }
    size_t groups() const { return groups_; }  // of which there was an Opened, and that have not ended
    // This node has prepared the group and waits for its commit.
    bool awaits(const GroupId& group) const { return reservations_.contains(group); }

    // For nexarctl (forming.cpp). inquire() asks the leader which ranks have come to the groups that this
    // node's opens wait for, first to those of the scope's name; inquire_also() asks for these alone, beside
    // the inquiry in progress. is_inquiring(): it has not answered for all of them.
    void inquire(const FormingScope& scope = {});
    void inquire_also(const FormingScope& scope);
    bool is_inquiring() const { return !asked_.empty(); }
    // The groups for which an open of the scope waits, with all opens of this node for them [N17].
    FormingList forming(Time now, const FormingScope& scope = {});

  private:
    struct Own {  // an open of this node
        wire::GroupOpen open;
        SessionId session;
        bool local = false;
        NodeId listed;         // the node that it was listed with last; only that one may lead it
        uint64_t sent_in = 0;  // leader_changes_ then
        FormerLeaders former_leaders{};
        NodeId second;     // the other leader that it is listed with; zero: none [R36]
        Duration timeout;  // as requested, for the error's text
        Time deadline;
        Time since;                         // when it was opened
        Time free_since;                    // since when it is in no attempt
        Time status_until = never;          // waits for the leader's GroupStatus until then [R11]
        std::optional<GroupId> reserved;    // the attempt that it is prepared in
        bool withdrawn = false;             // its process ended while it was reserved [R12]
        std::optional<Error> ending;        // the owner's, when its attempt is aborted [R37]
        SharedList<uint32_t> parent_ranks;  // OpenSpec::parent_ranks
        Time list_at = never;               // it is not listed until then [R20]
        Time due_at = never;                // where it is in due_
        ProofKey proof{};                   // not of a local one
        std::string trouble;                // why the last attempt was aborted; empty: none was
        PayerRef payer;                     // of all messages about it
    };
    struct Reservation {
        wire::GroupPrepare prepare;
        NodeId leader;
        std::map<NodeId, Incarnation> nodes;  // the member nodes without this one
        Time link_deadline = never;  // waits for connections until then; never: the prepare was answered
        Time decision_deadline;      // the leader's decision is due then
        Time query_until = never;    // the other members were asked; waits for them until then [R8]
        std::set<NodeId> asking;     // members that get the decision when there is one [R34]
        std::optional<Proof> proof;  // none: of local opens, led here
        TurnOf whose{};              // of the first open here
        Time due_at = never;         // where it is in reservations_due_
    };
    enum class Outcome : uint8_t { committed, aborted };
    struct Decision {
        Outcome outcome = Outcome::aborted;
        std::vector<NodeId> nodes;    // of a committed group: its member nodes, ascending
        std::vector<wire::Tag> tags;  // of the nodes, one for one; none: a local group
        NodeId leader;                // of a committed group: may also report about it
        Time at{};                    // when it was decided
        bool has_group = false;       // this node has the group: kept until group_ended() [R32]
    };

    // Member side (member.cpp).
    void on_prepare(const NodeId& from, const wire::GroupPrepare& prepare, Time now);
    bool may_make(const NodeId& leader, const GroupId& group) const;
    std::string fault_of(const NodeId& from, const wire::GroupPrepare& prepare, Time now);
    std::optional<std::string> fault_of_members(const wire::GroupPrepare& prepare) const;
    bool has_own_nonces(const wire::GroupPrepare& prepare) const;
    static std::string contradiction(const wire::GroupOpen& open, const wire::GroupPrepare& prepare,
                                     const wire::GroupMemberRecord& member);
    void answer_prepare(const GroupId& group, Reservation& reservation, Time now);
    void on_commit(const NodeId& from, const wire::GroupCommit& message, Time now);
    std::optional<NodeId> first_unproven(const Reservation& reservation,
                                         const std::vector<wire::Tag>& tags) const;
    void end_unproven(const GroupId& group, const NodeId& node, Time now);
    void on_refused(const NodeId& from, const wire::GroupRefused& refused, Time now);
    void on_open_refused(const NodeId& from, const wire::GroupRefused& refused);
    bool decides(const NodeId& node, const Own& own, const Error& error) const;
    // Two leaders that do not reach each other (second_leader.cpp) [R36].
    void on_leader(const NodeId& from, const wire::GroupLeader& message, Time now);
    void announce();
    void announce_later(Time now);
    void stop_announcing();
    void update_second(Time now);
    NodeId find_second() const;
    bool choose_second();
    std::pair<NodeId, NodeId> leaders_reported() const;
    void list_with_second(Time now);
    void leave_second(Own& own, bool expired);
    std::pair<NodeId, NodeId> apart() const;
    void on_unlisted(const NodeId& from, const wire::RequestId& request, Time now);
    void commit(const GroupId& group, const std::vector<wire::Tag>& tags, Time now);
    void disown(const NodeId& from, const GroupId& group, const NodeId& by, const Error& error);
    void abort_attempt(const GroupId& group, const Error& error, Time now);
    Error link_fault(const Reservation& reservation, const NodeId& node, Reach reach) const;
    Reach reach_of(const NodeId& node, Incarnation incarnation) const;
    // Members that ask each other (queries.cpp).
    void promise(const NodeId& to, const GroupId& group);
    bool has_promised(const NodeId& from, const wire::GroupPrepare& prepare) const;
    void resume(const NodeId& node, const GroupId& group, Reservation& reservation, Time now);
    void query_members(const GroupId& group, Reservation& reservation, Time now);
    void on_query(const NodeId& from, const GroupId& group);
    bool may_learn(const Reservation& reservation) const;
    bool is_of(const NodeId& node, const GroupId& group, const Reservation& reservation) const;
    void on_reservation_time(const GroupId& group, Time now);
    // Opens (rendezvous.cpp).
    DirectoryConfig directory_config();
    Directory& directory_of(const Own& own) { return own.local ? local_ : directory_; }
    void list(Own& own, Time now);
    void pass_on(const wire::GroupOpen& open, const NodeId& via, Time now);
    std::optional<Error> no_room_to_pass_on(const NodeId& origin, const NodeId& via, bool known) const;
    // What follows from another leader, or the loss of a node, for many opens (relisting.cpp) [R26].
    struct LostRelays {
        std::vector<wire::RequestId> opens;  // passed on for a node that is lost
        size_t next = 0;                     // of them
    };
    void update_leader(Time now);
    void go_on(Time now);
    void list_again(size_t most, Time now);
    void leave_former(const Listed& listed);
    void pass_on_again(size_t most);
    void hand_over(size_t most, Time now);
    void take_over(Time now);
    void forget_lost_relays(const NodeId& node, LostRelays& lost);
    void move(Own& own, Time now);
    void move(const Listed& listed, Time now);
    bool is_relisting() const;
    size_t at_once(size_t room) const;
    void on_open(const NodeId& from, const wire::GroupOpen& open, Time now);
    void on_withdraw(const NodeId& from, const wire::GroupWithdraw& withdraw, Time now);
    void on_status_request(const NodeId& from, const wire::GroupStatusRequest& request, Time now);
    void answer_status(const NodeId& from, const wire::GroupStatusRequest& request, Time now);
    void on_status(const NodeId& from, const wire::GroupStatus& status, Time now);
    void keep_arrived(const NodeId& from, const wire::GroupStatus& status);
    const Waiting::Names* names_of(const FormingScope& scope) const;
    FormingGroup forming_group(const wire::GroupKey& key, Time now);
    void ask_for(const wire::GroupKey& key);
    void fail_open(const wire::RequestId& request, Error error);
    void check_indexes() const;
    using Owned = std::map<wire::RequestId, Own>::iterator;
    void forget(Owned own);
    Reservation take(const GroupId& group);
    // Deadlines (deadlines.cpp) [R11].
    struct Muster;
    Muster& muster_of(const Own& own) { return musters_.at({own.local, own.open.key}); }
    TurnOf turn_of(const Own& own) const { return {config_.self, {config_.self, own.open.opener_mark}}; }
    void reschedule(Own& own);
    void reschedule(const GroupId& group, Reservation& reservation);
    void end_due(Time now);
    void on_due(Own& own, Time now);
    void on_deadline(Own& own, Time now);
    void report(Muster& muster, const Own& own, const wire::GroupStatus& status, Time now);
    static bool was_due(const Muster& muster, const Own& own);
    void ask_status(Own& own, Muster& muster, Time now);
    void ask(Muster& muster, const Own& by);
    void wake(const Muster& muster, Own& own);
    void leave_question(const Own& own);
    void expire(Own& own, const RollCall* roll);
    void send(const NodeId& to, wire::Message message, const PayerRef& payer = {});
    bool hold(const NodeId& to, const wire::Message& message);
    void send_refusals(Time now);
    LogRoom room_of(const NodeId& node) const;
    void on_prepared(const NodeId& from, const wire::GroupPrepared& prepared, Time now);
    bool read(Directory& directory, Time now);
    void settle(Time now);
    void decided(const GroupId& group, Decision decision);
    void forget_later(const GroupId& group);
    void forget_order(const GroupId& group);
    bool has_committed(const GroupId& group) const;
    bool has_forgotten(const GroupId& group) const;
    std::string name_of(const NodeId& node) const;
    const NodeId& leader_of(const Own& own) const { return own.local ? config_.self : leader_; }

    Config config_;
    NodeId leader_;                        // the lowest of this node and its peers
    std::map<NodeId, Incarnation> peers_;  // connected nodes and their incarnations
    std::map<NodeId, Incarnation> lost_;   // nodes that were connected; at most as many as the peer table has
    // Increases from incarnation to incarnation, so that an open of an earlier one never equals one of this.
    uint64_t next_request_;
    std::map<wire::RequestId, Own> own_;                          // opens of this node without an outcome
    DueTurns<wire::RequestId> due_;                               // of own_, those that wait for a time
    std::set<std::pair<SessionId, wire::RequestId>> by_session_;  // own_
    std::set<std::pair<uint64_t, wire::RequestId>> by_mark_;      // own_ without local ones, by opener's mark
    Waiting waiting_;                                             // own_ without withdrawn ones [N17]
    // This node's opens of one key. Those that expire together share one question, and one report: what it
    // has of the others is right for each of them, however many turns it takes to end them [R11].
    struct Muster {
        size_t opens = 0;                     // how many there are
        std::set<wire::RequestId> waiting{};  // for the answer to a question
        wire::RequestId by{};                 // one of them, in whose name `to` was asked
        NodeId to{};
        bool is_answered = false;
        std::optional<RollCall> roll{};  // of the last report
        Time reported_at{};
        Time fresh_until{};  // an open that expires until then needs no other one
    };
    std::map<std::pair<bool, wire::GroupKey>, Muster>
        musters_;  // local ones are apart; none is without opens
    Relayed
        relayed_;  // passed on to the leader [R1]; empty while this node leads, when it has taken all over
    std::map<GroupId, Reservation> reservations_;  // prepared here, not decided
    DueTurns<GroupId> reservations_due_;
    std::map<GroupId, Decision> decisions_;  // of the groups that this node has, and the last decisions_max
    std::map<uint64_t, std::deque<GroupId>> decision_order_;  // of the others, by maker, the oldest first
    size_t groups_ = 0;                                       // decisions_ with a group
    // By node: attempts that this node has promised not to join. A promise counts if that node is in the
    // attempt, so the questions of other nodes have no effect, and each node has its own promises_max.
    std::map<NodeId, std::deque<GroupId>> promised_;
    uint64_t next_group_;
    Directory directory_;  // of opens with a secret
    Directory local_;      // of this node's own opens without one: nothing from outside gets here
    std::map<NodeId, Time> status_paid_;  // until when the reports that a node got are paid; as many as lost_
    std::map<wire::RequestId, wire::GroupKey> asked_;  // of inquire(), without an answer
    std::map<wire::GroupKey, Arrived> arrived_;        // the leader's answers since the last inquire()
    std::deque<wire::Message> inbox_;  // messages of this node to itself; empty between inputs
    std::deque<Action> actions_;       // not polled yet
    Refusals refusals_;                // for which there was no room
    Time refusals_at_ = never;         // when it is looked for again
    uint64_t leader_changes_ = 0;
    // By opener's mark, the last open that the present leader got; a mark without a line has no others.
    std::map<uint64_t, wire::RequestId> relisting_;
    uint64_t relisted_mark_ = 0;  // whose turn it was
    std::optional<wire::RequestId>
        passing_on_;  // the last of relayed_ that the present leader got; none: all
    std::map<NodeId, LostRelays> lost_relays_;
    Time relist_at_ = never;                   // when there is more of this to do
    bool announced_ = false;                   // to the other nodes: this one leads
    std::set<NodeId> leading_;                 // connected nodes that have stated so
    std::map<NodeId, NodeId> others_leading_;  // by who stated it: a leader that it reaches, for error texts
    // The leader beside leader_ that this node's opens are listed with; zero: none. And what was
    // reported to the two.
    NodeId second_;
    std::pair<NodeId, NodeId> reported_;
    wire::RequestId seconded_{};  // the last open that was looked at for it; zero: the next is the first
    Time second_at_ = never;      // when the next ones are
    uint64_t visited_ = 0;
};

}  // namespace nexar::rendezvous
