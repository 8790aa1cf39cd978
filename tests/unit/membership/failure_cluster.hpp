// A small cluster of detectors, arbiters and group lifecycles in virtual time: every pair has a delay and can
// be cut in either direction; nodes can be killed (redials are refused), stopped (silence) and continued.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "core/random.hpp"
#include "membership/arbiter.hpp"
#include "membership/failure_detector.hpp"
#include "membership/group_lifecycle.hpp"

namespace nexar::membership {

NodeId node_id(unsigned n);  // ascending in n
constexpr Duration ms(int64_t n) {
    return std::chrono::milliseconds(n);
}
constexpr Time at_ms(int64_t n) {
    return Time(ms(n));
}

class FailureCluster {
  public:
    FailureCluster(unsigned nodes, uint64_t seed);

    // Nodes in rank order, one rank each, or with these lowest ranks. All nodes start the group at once.
    GroupId make_group(std::vector<unsigned> members, std::vector<uint32_t> lowest_ranks = {});

    void kill(unsigned node);              // kill -9: connections are refused from now on
    void stop(unsigned node);              // SIGSTOP: silent, and its own timers stand still
    void go_on(unsigned node);             // SIGCONT
    void cut(unsigned from, unsigned to);  // one way
    void cut_both(unsigned a, unsigned b);
    void join(unsigned a, unsigned b);
    void rank_lost(unsigned at, const GroupId& group, uint32_t rank, unsigned on, const std::string& why);
    void run(Duration span);

    Time now() const { return now_; }
    // What the group ended with on this node.
    const Error* end_of(unsigned node, const GroupId& group) const;
    void depart(unsigned node, const GroupId& group);  // all its ranks have freed the group
    std::optional<Time> decided_at(unsigned node, const GroupId& group) const;
    size_t reports_sent() const { return reports_; }
    void lose_one_in(uint64_t n) { lose_one_in_ = n; }

  private:
    // A group on one node; it has no collectives.
    struct Member final : LifecycleHost {
        Member(FailureCluster& c, unsigned at, const GroupId& id, std::vector<GroupNode> list,
               std::vector<unsigned> members);
        bool suspects(uint32_t other) const override;
        uint64_t handed_over() const override { return 0; }
        uint64_t ended_below() const override { return 0; }
        void freeze() override {}
        void run_below(uint64_t) override {}
        void cut(const wire::Cut&) override;

        FailureCluster& cluster;
        unsigned node;                  // of the cluster
        std::vector<GroupNode> nodes;   // by number in the group
        std::vector<unsigned> members;  // by number in the group: of the cluster
        std::optional<Time> ended;
        GroupLifecycle lifecycle;
    };
    struct Node {
        NodeId id;
        std::unique_ptr<FailureDetector> detector;
        std::unique_ptr<Arbiter> arbiter;
        bool dead = false, stopped = false;
        std::map<GroupId, std::unique_ptr<Member>> groups;
    };
    struct Packet {
        unsigned from, to;
        std::optional<wire::Message> message;  // nothing: a heartbeat, or a refused redial (`refused`)
        bool refused = false;
    };
    void send(unsigned from, unsigned to, std::optional<wire::Message> message);
    void fly(Packet packet);
    void deliver(const Packet& packet);
    void drain(unsigned node);
    void drain_group(unsigned node, const GroupId& id, Member& member);
    void to_group(unsigned to, unsigned from, const wire::Message& message);
    void redial(unsigned from, unsigned to);
    bool open(unsigned from, unsigned to) const { return !cut_[from][to]; }

    Random random_;
    Time now_{};
    std::vector<Node> nodes_;
    std::vector<std::vector<bool>> cut_;
    std::multimap<Time, Packet> flying_;
    struct ControlLog {
        std::vector<Packet> waiting;  // while the way is cut
        Time last{};                  // the newest one arrives then
    };
    std::map<std::pair<unsigned, unsigned>, ControlLog> logs_;  // from, to
    std::vector<Packet> parked_;                                // at stopped nodes, until they continue
    uint64_t groups_made_ = 0;
    uint64_t lose_one_in_ = 0;
    size_t reports_ = 0;
};

}  // namespace nexar::membership
