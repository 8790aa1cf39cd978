// The leader's side: collects opens by key, forms groups, runs prepare and commit
// (docs/protocol/rendezvous.md [R3]- [R7]). Part of Rendezvous, which gives it the opens and carries its
// messages. Sans-io.
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
#include "wire/messages.hpp"

namespace nexar::rendezvous {

// How this node stands to one life of another.
enum class Reach : uint8_t {
    here,     // connected, or this node itself
    not_yet,  // connected to an earlier life, or lost one: the later one may be on its way
    over,     // a later life is known
    nowhere,  // no connection
};

struct DirectoryConfig {
    NodeId self;
    uint64_t incarnation = 0;
    wire::PlanTableRecord plan;
    wire::TimeoutsRecord timeouts;  // where members do not say
    Duration prepare_timeout{};
    Duration retry_delay{};
    size_t opens_max = 0;
    std::function<std::string(const NodeId&)> name_of;
    Duration ghost_time{2'000'000'000};
    size_t ghosts_max = 1024;
};

class Directory {
  public:
    struct Outgoing {
        NodeId to;
        wire::Message message;
    };

    explicit Directory(DirectoryConfig config) : config_(std::move(config)) {}

    // `via`: where answers about this open go (the node that sent it here).
    void add(const wire::GroupOpen& open, const NodeId& via, Time now);
    // From a node that may speak for the open: its own, or the one it came through. Anybody else changes
    // nothing. `expired`: it came and its time was over; status() names it for `ghost_time` more, so that
    // openers whose time is over at about the same moment all see who came.
    void remove(const wire::RequestId& request, const NodeId& from, bool expired, Time now);
    void remove_via(const NodeId& via, Incarnation life, Time now);  // that life is not connected any more
    // Another node leads now: the opens that wait here and are not ours to lead. Attempts under way go on.
    std::vector<std::pair<wire::GroupOpen, NodeId>> take_waiting();
    void on_prepared(const NodeId& from, const wire::GroupPrepared& prepared, Time now);
    void on_connected(const NodeId& node);  // prepares without an answer go out (again)
    void on_time(Time now);
    wire::GroupStatus status(const wire::RequestId& request, const wire::GroupKey& key, Time now) const;
    bool is_forming(const GroupId& group) const { return forming_.contains(group); }

    struct Committed {
        GroupId group;
        std::vector<NodeId> nodes;
    };
    std::optional<Outgoing> poll_send();
    std::optional<Committed> poll_committed();
    // Of a called off attempt, when another node leads by now.
    std::optional<std::pair<wire::GroupOpen, NodeId>> poll_orphan();
    Time wake_at() const;
    void check_invariants() const;  // for tests; walks everything

    // Set by the owner. Is this life of the node connected? Is this open ours to lead?
    std::function<Reach(const NodeId&, Incarnation)> reach;
    std::function<bool(const wire::GroupOpen&)> leads;

  private:
    struct Entry {
        wire::GroupOpen open;
        NodeId via;
        uint64_t arrival = 0;
    };
    struct Ghost {
        wire::GroupOpen open;
        Time until;
    };
    // What the entries say of one time-out: the same, or nothing.
    struct Said {
        int64_t ms = -1;
        size_t entries = 0;
    };
    struct Gathering {
        uint32_t size = 0;
        std::array<Said, 3> timeouts{};
        std::map<uint64_t, Entry> entries;   // by arrival
        std::map<uint32_t, uint64_t> taken;  // explicit rank -> arrival
        std::map<NodeId, size_t> nodes;      // how many entries each has
        Time not_before{};                   // after an attempt was called off
    };
    struct Forming {
        wire::GroupPrepare prepare;
        std::vector<Entry> entries;
        std::map<NodeId, Incarnation> nodes;
        std::set<NodeId> waiting_for, unsent;
        Time deadline;
    };

    Error clash(const wire::GroupOpen& open, const Entry& with, const std::string& what) const;
    std::optional<Error> difference(const wire::GroupOpen& open, const Gathering& gathering) const;
    void refuse_all(const wire::GroupKey& key, const Error& error);
    std::string who(const wire::GroupOpen& open) const;
    void place(const wire::GroupKey& key, Entry entry);
    void put_back(std::vector<Entry> entries, Time now);
    static void move_via(Entry& entry, const NodeId& via);
    void erase_waiting(const wire::RequestId& request);
    static void leave(Gathering& gathering, const wire::GroupOpen& open);
    void forget_rumours(const wire::GroupOpen& open, Time now);
    bool forget_earlier_lives(const wire::GroupOpen& open, Time now);
    Error unsent_fault(const Forming& forming) const;
    void form_if_complete(const wire::GroupKey& key, Time now);
    void prepare(std::vector<Entry> entries, Time now);
    wire::TimeoutsRecord agreed(const std::vector<wire::GroupOpen>& opens) const;
    void commit(const GroupId& group);
    void call_off(const GroupId& group, const Error& error, const std::set<wire::RequestId>& out, Time now);
    void refuse(const Entry& entry, Error error);

    DirectoryConfig config_;
    uint64_t next_arrival_ = 1, next_group_ = 1;
    std::map<wire::GroupKey, Gathering> gatherings_;
    std::map<wire::RequestId, std::pair<wire::GroupKey, uint64_t>> where_;  // in gatherings_
    std::map<GroupId, Forming> forming_;
    std::deque<Ghost> ghosts_;
    std::deque<Outgoing> sends_;
    std::deque<Committed> committed_;
    std::deque<std::pair<wire::GroupOpen, NodeId>> orphans_;
};

// What all nodes of a group have [V5].
uint64_t common_features(const std::vector<wire::GroupMemberRecord>& members);

// Who gets which rank [R4]: explicit ranks stay, automatic ones fill the free numbers, grouped by node.
std::vector<uint32_t> assign_ranks(const std::vector<wire::GroupOpen>& opens_by_arrival, uint32_t size);

}  // namespace nexar::rendezvous
