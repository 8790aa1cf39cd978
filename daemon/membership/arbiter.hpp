// Arbiter: turns the suspicion of a single node into what has failed of a group: a node, or a link
// (docs/protocol/failure.md [F8]-[F14]). Both roles of every node: accuser and arbiter. What the group makes
// of it is GroupLifecycle's. Sans-io.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/ids.hpp"
#include "core/result.hpp"
#include "core/time.hpp"
#include "membership/failure_texts.hpp"
#include "membership/outgoing.hpp"
#include "membership/prober.hpp"

namespace nexar::membership {

struct ArbiterConfig {
    Duration arbiter_timeout{1'000'000'000};  // V: how long an accuser waits for one arbiter
    unsigned arbiters_max = 3;                // then it finds out itself
    ProbeConfig probe;
};

class Arbiter {
  public:
    struct Found {
        GroupId group;
        Error error;      // peer_lost, or link_lost
        NodeId excluded;  // the node that is lost; of a lost link the one with the higher lowest rank
    };
    // An accusation about a group that this node does not know, not any more or not yet.
    struct Unknown {
        NodeId from;
        GroupId group;
        uint32_t epoch = 0;
    };

    Arbiter(const ArbiterConfig& config, const NodeId& self, Incarnation life);

    // Input. Groups: from the commit to the end of the last rank here. Order of `nodes` does not matter.
    void on_group(const GroupId& group, GroupEpoch epoch, std::vector<GroupNode> nodes, Time now);
    void on_group_gone(const GroupId& group);
    // This node's view of a peer's life. A suspicion is remembered for groups made later.
    void on_suspect(const NodeId& node, Incarnation life, const std::string& reason, Time now);
    void on_dead(const NodeId& node, Incarnation life, const std::string& proof, Time now);
    void on_clear(const NodeId& node, Time now);  // heard again
    // The control log with this incarnation was discarded: what the groups that span both nodes sent each
    // other is lost, and they end [F20].
    void on_log_discarded(const NodeId& node, Incarnation life);
    // The group knows that this node has failed: nobody is asked about it any more.
    void on_excluded(const GroupId& group, const NodeId& node);
    // The node has left the group: it is no arbiter of it.
    void on_departed(const NodeId& from, const GroupId& group, Time now);
    // Accusation, ProbeRequest, ProbeReply from the node `from`. False: not for us.
    bool on_message(const NodeId& from, const wire::Message& message, Time now);
    void on_time(Time now);

    // Output.
    std::optional<Outgoing> poll_send();
    std::optional<Found> poll_found();
    std::optional<Unknown> poll_unknown();
    Time wake_at() const;
    void check_invariants() const;  // for tests; walks all groups

  private:
    // What this node holds against a node, until the group knows that it has failed.
    struct Complaint {
        wire::Accusation accusation;
        std::vector<NodeId> asked;  // arbiters so far; the last one may answer still
        Time deadline = never;
    };
    // One question about one node that this node was asked to find out.
    struct Trial {
        NodeId accused;
        std::vector<NodeId> accusers;  // in order of arrival
        uint64_t question = 0;
    };
    struct Group {
        GroupEpoch epoch;
        std::vector<GroupNode> nodes;  // by lowest rank [F8]
        std::vector<Complaint> complaints;
        std::vector<Trial> trials;
        std::set<NodeId> excluded;  // found or known to have failed
    };
    struct Suspicion {
        Incarnation life;
        std::string reason;
        bool proof = false;
    };

    void complain(const GroupId& id, Group& group, const NodeId& accused, const Suspicion& why, Time now);
    void lodge(const GroupId& id, Group& group, size_t complaint, Time now);
    void judge(const GroupId& id, Group& group, const wire::Accusation& accusation, Time now);
    void conclude(const GroupId& id, Group& group, size_t trial, const Prober::Answer& answer, Time now);
    void dismiss(Group& group, const NodeId& accused);
    void find(const GroupId& id, Group& group, Error error, const NodeId& excluded);
    void find_link(const GroupId& id, Group& group, const GroupNode& a, const GroupNode& b,
                   const std::string& why = "both live, but do not reach each other");
    void on_accusation(const NodeId& from, const wire::Accusation& accusation, Time now);
    template <class F>
    void for_groups_with(const NodeId& node, F f);
    void read_answers(Time now);
    bool suspects(const GroupNode& node) const;
    bool is_dead(const GroupNode& node) const;

    ArbiterConfig config_;
    NodeId self_;
    Prober prober_;
    std::map<GroupId, Group> groups_;
    std::map<NodeId, std::set<GroupId>> by_node_;  // of every node of every group
    std::set<GroupId> troubled_;                   // all with complaints or trials, and some without
    std::map<NodeId, Suspicion> suspicions_;       // of the life last spoken of
    std::map<NodeId, uint64_t> dead_;  // the last life of each that is proved dead, and all before it
    std::deque<Outgoing> sends_;
    std::deque<Found> found_;
    std::deque<Unknown> unknown_;
};

}  // namespace nexar::membership
