// Context: what all parts of the engine share: the ports, the time of this input, the numbers of transfers
// and jobs in flight, and the peers. One per engine, on its thread.
#pragma once

#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/random.hpp"
#include "engine/engine.hpp"
#include "engine/scratch.hpp"
#include "engine/scratch_share.hpp"
#include "engine/turns.hpp"
#include "task/executor.hpp"

namespace nexar::engine {

// Waits for the end of a transfer or of a worker job. Requires: it exists until then.
class Pending {
  public:
    virtual void on_completed(Result<void> result) = 0;

  protected:
    ~Pending() = default;
};

// Collects transfers until the task suspends, and posts them as one batch.
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

// Of bytes that are read and written: a job of this size takes a few microseconds, less than handing it off.
constexpr size_t inline_job_bytes_max = 64 * 1024;
constexpr bool runs_at_once(size_t bytes) {
    return bytes <= inline_job_bytes_max;
}
constexpr size_t inline_slow_bytes_max = 8 * 1024;  // where each element takes many times as long
// A collective waits for its job. So a quick one of this size, the sum of two hosts' 256 KiB for four ranks,
// runs at once as well: where hosts have few processors, handing two of these over and back took 110 us more
// (2x4, 128 KiB). As much runs in a turn of the loop while all that is too long for submit_job() is of one
// group; of several groups half as much.
constexpr size_t inline_step_bytes_max = 6 * 256 * 1024;
constexpr size_t inline_turn_bytes_max = inline_step_bytes_max / 2;
constexpr size_t scratch_kept_max = 64 * 1024 * 1024;

// Counts its owner in a number, from begin() to end(). Requires: the number is there as long.
class Counted {
  public:
    Counted() = default;
    ~Counted() { end(); }
    Counted(const Counted&) = delete;
    Counted& operator=(const Counted&) = delete;
    void begin(size_t& number) {
        end();
        ++*(number_ = &number);
    }
    void end() {
        if (number_ != nullptr) --*std::exchange(number_, nullptr);
    }

  private:
    size_t* number_ = nullptr;  // null: it is not counted
};

class Context {
  public:
    Context(const EngineConfig& c, const EnginePorts& p, uint64_t seed)
        : config(c), ports(p), random(seed), scratch(regions, scratch_kept_max) {}

    const EngineConfig config;
    const EnginePorts ports;
    Random random;
    Executor executor;
    Time now{};
    Regions regions;  // of the daemon
    ScratchPool scratch;
    ScratchShare scratch_share{executor};
    Turns turns;
    size_t collectives = 0;           // in flight, of all groups
    size_t running = 0;               // of them: begun, and not over for the ranks here
    uint64_t offers_looked_at = 0;    // unexpected messages, by receives and probes
    uint64_t receives_looked_at = 0;  // by messages that come, or have been received
    uint64_t cancels_looked_at = 0;   // sends and receives, by cancels
    uint64_t creates_looked_at = 0;   // creates, their calls, listed ranks, words of lists

    // Transfers and jobs in flight share one numbering.
    uint64_t allot_handles(size_t n) {
        const uint64_t first = next_handle_;
        next_handle_ += n;
        return first;
    }
    void expect(uint64_t handle, Pending& pending) { pending_.emplace(handle, &pending); }
    // False: there is no Pending for it.
    bool complete(uint64_t handle, Result<void> result);
    size_t pending() const { return pending_.size(); }

    // Runs a job on the workers, or at once when it is small: then `pending` is completed before this
    // returns.
    void submit_job(WorkerJob job, Pending& pending);
    // The same for a job of a collective, up to inline_step_bytes_max.
    void submit_step(WorkerJob job, Pending& pending);

    // Groups with sends that wait for room in a control log.
    std::set<GroupId> groups_without_room;

    void mark_dirty(Poster& poster) { dirty_.push_back(&poster); }
    void forget_dirty(const Poster& poster);
    // Runs all tasks that are ready, and posts all batches.
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
    bool in_cluster() const { return !config.in_cluster || config.in_cluster(); }
    // In the control log, if wire::is_logged, charged to the daemon's reserve [L8].
    void send(link::PeerIndex to, const wire::Message& message);

    // Where a message, or a segment of a collective, of so many bytes is posted. `shards`: how many all nodes
    // of the group have (GroupFacts::bulk_shards).
    size_t mesh_for(Class cls, uint64_t bytes, uint64_t lane, uint32_t shards) const;

  private:
    static void run_at_once(const WorkerJob& job, Pending& pending);
    void hand_over(WorkerJob job, Pending& pending);

    uint64_t next_handle_ = 1;
    Time steps_at_{};            // the turn of the loop in which
    size_t steps_bytes_ = 0;     // so much was read and written by long jobs,
    uint64_t steps_of_ = 0;      // first of this group
    bool steps_of_all_ = false;  // and then of others as well
    std::unordered_map<uint64_t, Pending*, std::hash<uint64_t>, std::equal_to<>,
                       Recycled<std::pair<const uint64_t, Pending*>>>
        pending_;                                          // by handle: transfers and jobs in flight
    Vector<Poster*> dirty_;                                // have something to post; null: destroyed since
    std::vector<PeerState> peers_;                         // by PeerIndex
    std::unordered_map<NodeId, link::PeerIndex> by_node_;  // the newest incarnation of each node
};

constexpr size_t peers_max = 65536;  // incarnations of nodes that one incarnation of the daemon knows

}  // namespace nexar::engine
