// Arbiter: turns the suspicions of single nodes into one error per group, the same on every survivor
// (docs/protocol/failure.md [F8]-[F14]). Both roles of every node: accuser and judge. Sans-io.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/ids.hpp"
#include "core/result.hpp"
#include "core/time.hpp"
#include "membership/outgoing.hpp"
#include "membership/prober.hpp"

namespace nexar::membership {

struct ArbiterConfig {
    Duration verdict_timeout{1'000'000'000};  // V: how long an accuser waits for one arbiter
    unsigned arbiters_max = 3;                // then it decides itself
    size_t early_verdicts_max = 256;          // of each node, for groups that this one does not know yet
    ProbeConfig probe;
};

// One node of a group. `life`: the one that the group was made with (zero: any).
struct GroupNode {
    NodeId node;
    Incarnation life;
    uint32_t lowest_rank = 0;
    std::string hostname;  // for texts; the same on all nodes of the group, or empty
};

class Arbiter {
  public:
    struct Decided {
        GroupId group;
        Error error;  // peer_lost or link_lost: final, for every pending and later call of the group
        bool whole_node = false;  // all ranks of error.node are lost
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
    // A process ended and an operation of the group needs it: `reason` goes into the error's text.
    void on_rank_lost(const GroupId& group, Rank rank, const NodeId& node, const std::string& reason,
                      Time now);
    // Accusation, Verdict, ProbeRequest, ProbeReply from the node `from`. False: not for us.
    bool on_message(const NodeId& from, const wire::Message& message, Time now);
    void on_time(Time now);

    // Output.
    std::optional<Outgoing> poll_send();
    std::optional<Decided> poll_decided();
    Time wake_at() const;

    // The error that ended a group, if one did.
    const Error* verdict_of(const GroupId& group) const;

  private:
    // What this node holds against a node or a rank, until there is a verdict.
    struct Complaint {
        wire::Accusation accusation;
        std::vector<NodeId> asked;  // arbiters so far; the last one may answer still
        Time deadline = never;
    };
    // What this node judges: one question about one node.
    struct Trial {
        NodeId accused;
        std::vector<NodeId> accusers;  // in order of arrival
        uint64_t question = 0;
    };
    struct Group {
        GroupEpoch epoch;
        std::vector<GroupNode> nodes;  // by lowest rank [F8]
        std::optional<wire::Verdict> verdict;
        std::vector<Complaint> complaints;
        std::vector<Trial> trials;
    };
    struct Suspicion {
        Incarnation life;
        std::string reason;
        bool proof = false;
    };

    void complain(const GroupId& id, Group& group, const NodeId& accused, int64_t rank, const Suspicion& why,
                  Time now);
    void lodge(const GroupId& id, Group& group, size_t complaint, Time now);
    void judge(const GroupId& id, Group& group, const wire::Accusation& accusation, Time now);
    void conclude(const GroupId& id, Group& group, size_t trial, const Prober::Answer& answer, Time now);
    void dismiss(Group& group, const NodeId& accused);
    void decide(const GroupId& id, Group& group, Error error, bool whole_node = false);
    void adopt(const GroupId& id, Group& group, const wire::Verdict& verdict, const NodeId& from);
    void on_accusation(const NodeId& from, const wire::Accusation& accusation, Time now);
    void on_verdict(const NodeId& from, const wire::Verdict& verdict, Time now);
    std::optional<wire::Verdict> take_early(const NodeId& from, const GroupId& group);
    void read_answers(Time now);
    bool suspects(const GroupNode& node) const;
    bool is_dead(const GroupNode& node) const;

    ArbiterConfig config_;
    NodeId self_;
    Prober prober_;
    std::map<GroupId, Group> groups_;
    std::map<NodeId, Suspicion> suspicions_;  // of the life last spoken of
    std::map<NodeId, uint64_t> dead_;         // the last life of each that is proved dead, and all before it
    std::map<NodeId, std::deque<wire::Verdict>> early_;  // [F11], by who said so: whether it may shows later
    std::deque<Outgoing> sends_;
    std::deque<Decided> decided_;
};

}  // namespace nexar::membership
