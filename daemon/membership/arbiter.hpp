// Arbiter: turns one node's suspicion into the failure of a group: a lost node, or a lost link
// (docs/protocol/failure.md [F8]-[F14]). Every node has both roles: reporter and arbiter. GroupLifecycle acts
// on the failure. Sans-io.
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
    Duration arbiter_timeout{1'000'000'000};  // V: how long a reporter waits for one arbiter
    unsigned arbiters_max = 3;                // then the reporter inquires itself
    ProbeConfig probe;
};

class Arbiter {
  public:
    struct Found {
        GroupId group;
        Error error;      // peer_lost, or link_lost
        NodeId excluded;  // the node that is lost; of a lost link the one with the higher lowest rank
    };
    // A report about a group that this node does not know: it has left it, or has not made it yet.
    struct Unknown {
        NodeId from;
        GroupId group;
        uint32_t epoch = 0;
    };

    Arbiter(const ArbiterConfig& config, const NodeId& self, Incarnation incarnation);

    // Input. A group exists from its commit to the end of the last rank here. `nodes`: in any order.
    void on_group(const GroupId& group, GroupEpoch epoch, std::vector<GroupNode> nodes, Time now);
    void on_group_gone(const GroupId& group);
    // This node's view of a peer's incarnation. A suspicion also counts for groups made later.
    void on_suspect(const NodeId& node, Incarnation incarnation, const std::string& reason, Time now);
    void on_dead(const NodeId& node, Incarnation incarnation, const std::string& proof, Time now);
    void on_clear(const NodeId& node);  // received from again
    // The control log with this incarnation was discarded: messages of the groups that span both nodes are
    // lost, and these groups end [F20].
    void on_log_discarded(const NodeId& node, Incarnation incarnation);
    // Transfers of this group do not get through to this incarnation, and it answers otherwise [F21].
    void on_link_lost(const NodeId& node, Incarnation incarnation, const GroupId& group,
                      const std::string& why);
    // The group excludes this node: its reports and inquiries end.
    void on_excluded(const GroupId& group, const NodeId& node);
    // The node has left the group: it is no arbiter of it.
    void on_departed(const NodeId& from, const GroupId& group, Time now);
    // SuspicionReport, ProbeRequest, ProbeReply from the node `from`. False: another kind of message.
    bool on_message(const NodeId& from, const wire::Message& message, Time now);
    void on_time(Time now);

    // Output.
    std::optional<Outgoing> poll_send();
    std::optional<Found> poll_found();
    std::optional<Unknown> poll_unknown();
    Time wake_at() const;
    void check_invariants() const;  // for tests; walks all groups

  private:
    // This node's report about a suspect, until the group excludes the suspect.
    struct Report {
        wire::SuspicionReport message;
        std::vector<NodeId> asked;  // arbiters that it was sent to, in order; at most `arbiters_max`
        Time deadline = never;      // of the last of them; never: this node has its own inquiry
    };
    // This node is the arbiter of one suspect: one question to the prober, about the suspect, and when that
    // has answered somebody, about each reporter: whether it still does not reach the suspect.
    struct Inquiry {
        NodeId suspect;
        std::vector<NodeId> reporters{};  // in order of arrival; at least one
        uint64_t question = 0;            // of the prober
        Prober::Asks asks{};              // itself: this node reports, too; helper: the first reporter
    };
    struct Group {
        GroupEpoch epoch;
        std::vector<GroupNode> nodes;    // by lowest rank [F8]
        std::vector<Report> reports;     // one for each suspect [F14]
        std::vector<Inquiry> inquiries;  // one for each suspect [F14]
        std::set<NodeId> excluded;       // by a failure found here, or by the group; only grows
    };
    struct Suspicion {
        Incarnation incarnation;
        std::string reason;
        bool proof = false;
    };

    void add_report(const GroupId& id, Group& group, const NodeId& suspect, const Suspicion& why, Time now);
    void send_report(const GroupId& id, Group& group, size_t report, Time now);
    void inquire(const GroupId& id, Group& group, const wire::SuspicionReport& message, Time now);
    void ask_suspect(const Group& group, Inquiry& inquiry, Time now);
    void ask_reporter(const Group& group, Inquiry& inquiry, Time now);
    void conclude(const GroupId& id, Group& group, size_t inquiry, const Prober::Answer& answer, Time now);
    void retract(Group& group, const NodeId& suspect);
    void find(const GroupId& id, Group& group, Error error, const NodeId& excluded);
    void find_link(const GroupId& id, Group& group, const GroupNode& a, const GroupNode& b,
                   const std::string& why = no_way_between);
    void on_report(const NodeId& from, const wire::SuspicionReport& message, Time now);
    template <class F>
    void for_groups_with(const NodeId& node, F f);
    void read_answers(Time now);
    bool suspects(const GroupNode& node) const;
    bool counts(const Group& group, const NodeId& reporter) const;
    bool is_dead(const GroupNode& node) const;

    ArbiterConfig config_;
    NodeId self_;
    Prober prober_;
    std::map<GroupId, Group> groups_;
    std::map<NodeId, std::set<GroupId>> by_node_;  // the groups of each node
    std::set<GroupId> busy_;                       // all groups with reports or inquiries, and some without
    std::map<NodeId, Suspicion> suspicions_;       // of the incarnation last reported; erased by on_clear()
    std::map<NodeId, uint64_t> dead_;              // proved: this incarnation counter and all before it
    // Not polled yet.
    std::deque<Outgoing> sends_;
    std::deque<Found> found_;
    std::deque<Unknown> unknown_;
};

}  // namespace nexar::membership
