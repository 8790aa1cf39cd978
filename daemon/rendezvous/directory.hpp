// Directory: the leader's side of the rendezvous. It collects opens by key, forms groups, and runs prepare
// and commit (docs/protocol/rendezvous.md [R3]-[R7]). A part of Rendezvous, which passes opens to it and
// sends its messages. Sans-io.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/ids.hpp"
#include "core/result.hpp"
#include "core/time.hpp"
#include "rendezvous/due_turns.hpp"
#include "rendezvous/forming.hpp"
#include "rendezvous/listed.hpp"
#include "wire/messages.hpp"

namespace nexar::rendezvous {

// The connection of this node to one incarnation of another node.
enum class Reach : uint8_t {
    here,     // connected, or this node itself
    not_yet,  // connected to an earlier incarnation, or just disconnected from one: this one may connect soon
    over,     // a later incarnation is known
    nowhere,  // not connected
};

// The next groups of that name go by size with this limit, on any number of hosts: what nexarctl tune races.
struct Trial {
    std::string group;
    uint64_t doubling_bytes_max = 0;
};

struct DirectoryConfig {
    NodeId self;
    std::function<GroupId()> next_group;  // [R13]
    wire::PlanTableRecord plan;
    wire::TimeoutsRecord timeouts;  // for time-outs that no member sets
    Duration prepare_timeout{};
    Duration retry_delay{};
    size_t opens_max = 0;       // of all nodes [R25]
    size_t node_opens_max = 0;  // that came through one other node
    std::function<std::string(const NodeId&)> name_of;
    std::function<std::string(const NodeId&)>
        host_of{};                         // for the order of automatic ranks; empty: by NodeId alone
    Duration expired_kept{2'000'000'000};  // how long status() still shows an open that has expired
    size_t expired_max = 1024;
    size_t ended_max = 1024;  // opens that ended because a link is missing
    size_t retries_at_once_max = 64;
};

class Directory {
  public:
    struct Outgoing {
        NodeId to;
        wire::Message message;
    };

    explicit Directory(DirectoryConfig config) : config_(std::move(config)) {}

    void set_plan(const wire::PlanTableRecord& plan) { config_.plan = plan; }  // of groups made from now on
    void set_trial(Trial trial) { trial_ = std::move(trial); }                 // in place of the one before

    // `via`: the node that sent the open here; replies about the open go there.
    void add(const wire::GroupOpen& open, const NodeId& via, Time now);
    // Only the open's own node and the node that sent it here may remove it; a call for another node is
    // ignored. `expired`: its deadline has passed. status() shows it for expired_kept more, so that openers
    // whose deadlines pass at about the same moment all see all arrived ranks.
    void remove(const wire::RequestId& request, const NodeId& from, bool expired, Time now);
    // That incarnation was disconnected: what came through it so far is removed by forget_lost_listings().
    void lose(const NodeId& via, Incarnation incarnation);
    bool has_lost_listings() const { return !lost_listings_.empty(); }
    void forget_lost_listings(size_t most, Time now);  // looks at so many opens at most
    // Another node leads now. Removes and returns waiting opens; attempts in progress continue.
    std::vector<Listed> take_waiting(size_t most);
    bool has_waiting() const { return !where_.empty(); }
    void on_prepared(const NodeId& from, const wire::GroupPrepared& prepared, Time now);
    void on_connected(const NodeId& node);  // prepares without an answer go out (again)
    void on_time(Time now);
    wire::GroupStatus status(const wire::RequestId& request, const wire::GroupKey& key, Time now);
    // What status() says of this open's key, in part, at a bounded cost.
    Arrived arrived(const wire::GroupOpen& open, Time now);
    bool is_forming(const GroupId& group) const { return forming_.contains(group); }
    bool has_attempt_with(const wire::RequestId& request) const { return attempt_of_.contains(request); }

    struct Committed {
        GroupId group;
        std::vector<NodeId> nodes;    // ascending
        std::vector<wire::Tag> tags;  // of the nodes, one for one
    };
    std::optional<Outgoing> poll_send();
    std::optional<Committed> poll_committed();
    // An open of an aborted attempt that another node leads now.
    std::optional<Listed> poll_orphan();
    Time wake_at() const;
    void check_invariants() const;                 // for tests; walks everything
    uint64_t visited() const { return visited_; }  // opens and attempts that inputs looked at; for tests

    // Requires: set by the owner. The connection to an incarnation of a node; whether this node leads an
    // open.
    std::function<Reach(const NodeId&, Incarnation)> reach;
    std::function<bool(const wire::GroupOpen&)> leads;
    std::function<bool(const NodeId&)> may_prepare;  // there is room for a prepare to it [R24]
    // The first of the nodes whose tag is wrong; nothing: all are right, or this node cannot verify them,
    // because it is no member.
    std::function<std::optional<NodeId>(const GroupId&, const std::vector<wire::Tag>&)> unproven;

  private:
    struct Entry : Listed {
        uint64_t arrival = 0;
    };
    struct Expired {
        wire::GroupOpen open;
        Time until;
    };
    // Opens that wait, or have expired, with one name of one opener's mark.
    struct Namesakes {
        size_t opens = 0;
        std::map<wire::GroupKey, size_t> of_key;
    };
    // One time-out of the entries of a key: all that set it have the same value.
    struct Agreed {
        int64_t ms = -1;     // valid if entries > 0
        size_t entries = 0;  // entries that set it
    };
    struct Gathering {
        uint32_t size = 0;                   // of all entries
        std::array<Agreed, 3> timeouts{};    // collective, barrier, rpc
        std::map<uint64_t, Entry> entries;   // by arrival
        std::map<uint32_t, uint64_t> taken;  // arrivals by explicit rank
        std::map<NodeId, size_t> nodes;      // numbers of entries by node
        Time not_before{};                   // the next attempt is not made before; zero: at any time
        TurnOf whose;                        // in retries_, with not_before
    };
    struct LostListings {
        Incarnation incarnation;
        uint64_t before = 0;                 // arrivals; what was listed since then stays
        std::vector<wire::RequestId> opens;  // of the node and through it
        size_t next = 0;                     // of them
    };
    struct Forming {
        wire::GroupPrepare prepare;
        std::vector<Entry> entries;           // in order of arrival
        std::map<NodeId, Incarnation> nodes;  // the member nodes
        std::set<NodeId> waiting_for;         // nodes without a GroupPrepared
        std::map<NodeId, wire::Tag> tags;     // of the other nodes
        std::set<NodeId> unsent;  // nodes that the prepare was not sent to, because they are not connected
        Time deadline;            // the attempt is aborted then
        TurnOf whose;             // in deadlines_
    };

    Error clash(const wire::GroupOpen& open, const Entry& with, const std::string& what) const;
    std::optional<Error> difference(const wire::GroupOpen& open, const Gathering& gathering) const;
    void refuse_all(const wire::GroupKey& key, const Error& error);
    // Indexes of names (forming.cpp).
    void add_name(const wire::GroupOpen& open);
    void remove_name(const wire::GroupOpen& open);
    uint32_t others_of(const wire::GroupOpen& open) const;
    std::vector<const wire::GroupOpen*> first_of(const Gathering& gathering);
    std::vector<uint32_t> first_missing(const Gathering& gathering, uint32_t size,
                                        const std::set<int64_t>& expired);
    void keep_expired(const wire::GroupOpen& open, Time now);
    void forget_expired(size_t most, Time now);
    template <class F>
    void for_expired(const wire::GroupKey& key, F present) const;
    std::string who(const wire::GroupOpen& open) const;
    void place(const wire::GroupKey& key, Entry entry);
    void reinsert(std::vector<Entry> entries, Time now);
    void erase_waiting(const wire::RequestId& request);
    void erase_all(const std::vector<wire::RequestId>& requests, const Error& error, Time now);
    void check_indexes() const;
    void enrol(const Entry& entry);
    void strike(const Entry& entry);
    bool drop_via(Entry& entry, const NodeId& way);
    void add_via(Entry& entry, const wire::GroupOpen& again, const NodeId& way);
    std::optional<Error> no_room(const NodeId& origin, const NodeId& via, bool known) const;
    Entry* find(const wire::RequestId& request);
    static TurnOf turn_of(const Entry& first);
    void not_before(const wire::GroupKey& key, Gathering& gathering, Time when);
    void erase(std::map<wire::GroupKey, Gathering>::iterator gathering);
    Forming take(const GroupId& group);
    void abort_late(const GroupId& group, Time now);
    void again(const wire::GroupKey& key, Time now);
    static void leave(Gathering& gathering, const wire::GroupOpen& open);
    bool agree(const std::vector<Entry>& entries, const Gathering& gathering) const;
    void forget_next(const NodeId& via, LostListings& lost, Time now);
    void remove_contradicted(const wire::GroupOpen& open, Time now);
    bool remove_earlier_incarnations(const wire::GroupOpen& open, const NodeId& via, Time now);
    Error unsent_fault(const Forming& forming) const;
    bool form_if_complete(const wire::GroupKey& key, Time now);  // true: it was
    void limit_doubling(wire::PlanTableRecord& plan, const Forming& forming) const;
    void prepare(std::vector<Entry> entries, Time now);
    wire::TimeoutsRecord agreed(const std::vector<wire::GroupOpen>& opens) const;
    void decide(const GroupId& group, Time now);
    void expel(const GroupId& group, const NodeId& node, Time now);
    void commit(const GroupId& group, std::vector<wire::Tag> tags);
    void abort_attempt(const GroupId& group, const Error& error, const std::set<wire::RequestId>& out,
                       Time now);
    void refuse(const Entry& entry, Error error);
    void end_unlinked(const Entry& entry, const Error& error);
    const Error* ended(const wire::GroupOpen& open) const;

    DirectoryConfig config_;
    std::optional<Trial> trial_;
    uint64_t next_arrival_ = 1;
    std::map<wire::GroupKey, Gathering> gatherings_;  // waiting opens
    std::map<wire::RequestId, std::pair<wire::GroupKey, uint64_t>>
        where_;                           // (key, arrival) of each waiting open
    std::map<GroupId, Forming> forming_;  // attempts between prepare and commit
    // What is due, and where, so that no input looks at all opens.
    DueTurns<GroupId> deadlines_;       // of forming_
    DueTurns<wire::GroupKey> retries_;  // not_before of gatherings_, if there is one
    std::map<wire::RequestId, std::pair<GroupId, size_t>> attempt_of_;  // and index, of each open in forming_
    std::map<NodeId, std::map<Incarnation, std::set<wire::RequestId>>> origins_;  // all opens, by their node
    Ways ways_;                                                                   // of all opens
    std::map<NodeId, LostListings> lost_listings_;
    uint64_t visited_ = 0;
    std::map<std::pair<wire::GroupKey, uint64_t>, Expired> expired_;  // by key and number
    std::deque<std::pair<wire::GroupKey, uint64_t>> expired_order_;   // the oldest first
    uint64_t next_expired_ = 1;
    std::map<std::pair<uint64_t, std::string>, Namesakes> names_;         // of gatherings_ and expired_
    std::map<wire::RequestId, std::pair<wire::GroupOpen, Error>> ended_;  // without a link [R27]
    std::deque<wire::RequestId> ended_order_;                             // the oldest first
    std::deque<Outgoing> sends_;                                          // not polled yet
    std::deque<Committed> committed_;                                     // not polled yet
    std::deque<Listed> orphans_;                                          // not polled yet
};

// The features that all nodes of a group have [V5].
uint64_t common_features(const std::vector<wire::GroupMemberRecord>& members);

// The rank of each open [R4]: explicit ranks stay, automatic ones get the free numbers by host name, NodeId,
// process, and number of the open, in whatever order they came.
std::vector<uint32_t> assign_ranks(const std::vector<wire::GroupOpen>& opens, uint32_t size,
                                   const std::function<std::string(const NodeId&)>& host_of = {});

}  // namespace nexar::rendezvous
