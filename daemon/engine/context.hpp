// What all parts of the engine share: the ports, the moment, the numbers of transfers and jobs under way, and
// who the peers are. One per engine, on its thread.
#pragma once

#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "core/random.hpp"
#include "engine/engine.hpp"
#include "engine/scratch.hpp"
#include "task/executor.hpp"

namespace nexar::engine {

// Something outside that will end: a transfer or a worker job. Whoever made it keeps it until then.
class Pending {
  public:
    virtual void on_completed(Result<void> result) = 0;

  protected:
    ~Pending() = default;
};

// Collects what is posted until the task suspends, and hands it over as one batch.
class Poster {
  public:
    virtual void flush() = 0;

  protected:
    ~Poster() = default;
};

struct PeerState {
    NodeId node;
    Incarnation incarnation;
    bool known = false, up = false;
};

constexpr size_t inline_job_bytes_max =
    64 * 1024;  // a job of this size takes about 10 us: below a hand-over's cost
constexpr size_t scratch_kept_max = 64 * 1024 * 1024;

class Context {
  public:
    Context(const EngineConfig& c, const EnginePorts& p, uint64_t seed)
        : config(c), ports(p), random(seed), scratch(scratch_kept_max) {}

    const EngineConfig config;
    const EnginePorts ports;
    Random random;
    Executor executor;
    Time now{};
    ScratchPool scratch;

    // Transfers and jobs under way share one numbering.
    uint64_t allot_handles(size_t n) {
        const uint64_t first = next_handle_;
        next_handle_ += n;
        return first;
    }
    void expect(uint64_t handle, Pending& pending) { pending_.emplace(handle, &pending); }
    // False: nobody waits for it.
    bool finished(uint64_t handle, Result<void> result);
    size_t pending() const { return pending_.size(); }

    // A job on the workers, or at once when it is small: then `pending` is over when this returns.
    void submit_job(WorkerJob job, Pending& pending);

    // Whose sends wait for room in a control log.
    std::set<GroupId> groups_without_room;

    void mark_dirty(Poster& poster) { dirty_.push_back(&poster); }
    void forget_dirty(const Poster& poster);
    // Everything that is ready runs, and everything posted leaves.
    void run_ready();
    bool idle() const { return executor.idle() && dirty_.empty(); }

    // Peers.
    PeerState& peer(link::PeerIndex index);
    std::optional<link::PeerIndex> find_peer(const NodeId& node) const;
    void set_peer(const NodeId& node, link::PeerIndex index) { by_node_[node] = index; }
    std::string host_of(const NodeId& node) const {
        if (node == config.self) return config.hostname;
        return config.host_of ? config.host_of(node) : std::string();
    }
    // By the control log, if it is a message of a group (wire::is_logged). With an account: charged to what
    // was reserved for it; otherwise to the daemon's reserve.
    void send(link::PeerIndex to, const wire::Message& message, std::optional<link::Account> account = {});

    // `shards`: how many all nodes of the group have (GroupFacts::bulk_shards).
    size_t mesh_for(link::Class cls, uint64_t lane, uint32_t shards) const;

  private:
    uint64_t next_handle_ = 1;
    std::unordered_map<uint64_t, Pending*> pending_;
    std::vector<Poster*> dirty_;
    std::vector<PeerState> peers_;
    std::unordered_map<NodeId, link::PeerIndex> by_node_;
};

constexpr size_t peers_max = 65536;  // incarnations of nodes met in one life of the daemon

}  // namespace nexar::engine
