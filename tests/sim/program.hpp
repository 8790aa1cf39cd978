// Program: the same list of collectives on every rank of a group, posted with random pauses, one after the
// other or several at a time; then every result is compared with the reference.
#pragma once

#include <optional>
#include <string>

#include "cluster.hpp"
#include "collectives/plan.hpp"
#include "core/region.hpp"
#include "engine/known_operation.hpp"
#include "reference.hpp"

namespace nexar::sim {

struct Step {
    OpDescriptor words;
    uint64_t salt = 1;
    bool in_place = false;
    Duration timeout{-1};
    std::vector<std::optional<Priority>> priorities;  // by rank; empty: the operation's own
    std::vector<Call*> calls;                         // by rank; null: not posted (yet)

    std::optional<uint32_t> impatient{};  // the only rank that has the timeout; none: all have it
};

// The memory of both sides, one of which may be this rank's block of the other one, at own_at.
std::vector<std::byte> lay_out_in_place(const OpRow& row, size_t own_at, size_t out,
                                        std::vector<std::byte> in, engine::OpRequest& request);

class Program {
  public:
    Program(Cluster& cluster, SimGroup group) : cluster_(cluster), group(std::move(group)) {}

    SimGroup group_copy() const { return group; }
    void add(const OpDescriptor& words, bool in_place = false) {
        Step step;
        step.words = words;
        step.salt = 1000 * group.id.counter + steps.size();
        step.in_place = in_place;
        step.calls.resize(group.size());
        steps.push_back(std::move(step));
    }
    // From now on half of the calls are staged, a side or both, with 1 to `windows` windows.
    void stage(uint32_t windows) { windows_max_ = windows; }
    // From now on each rank's steps are starts of one persistent operation. Requires: they are alike.
    void persist() {
        for (uint32_t rank = 0; rank < group.size(); ++rank)
            known_.push_back(std::make_shared<engine::KnownOperation>());
    }
    // Every rank begins within `pause`, and waits up to `pause` before each next one. `depth`: in flight per
    // rank.
    void start(Duration pause, size_t depth = 1) {
        pause_ = pause;
        depth_ = depth;
        next_.assign(group.size(), 0);
        for (uint32_t rank = 0; rank < group.size(); ++rank) schedule(rank, pause);
    }
    // A rank that has stopped posts nothing more.
    void stop_rank(uint32_t rank) { stopped.insert(rank); }

    Call& post(size_t step, uint32_t rank);

    // Empty: as it must be. Otherwise what is wrong.
    std::string wrong(const Step& step) const;
    std::string wrong() const {
        for (const Step& step : steps)
            if (const std::string w = wrong(step); !w.empty()) return step.words.text() + ": " + w;
        return {};
    }
    std::string wrong_result(const Step& step, uint32_t rank) const;  // of one call that ended well
    // Payload bytes that all steps should have put between two hosts.
    uint64_t predicted_bytes(uint32_t from_host, uint32_t to_host) const;

    const Cluster& cluster() const { return cluster_; }

  private:
    void schedule(uint32_t rank, Duration pause);
    std::shared_ptr<StagedMemory> lend(const OpDescriptor& d, const CountsRef& counts, uint32_t rank,
                                       std::vector<std::byte>& in, size_t out_bytes,
                                       engine::OpRequest& request);
    Cluster& cluster_;
    Duration pause_{0};
    size_t depth_ = 1;
    uint32_t windows_max_ = 0;                                    // nothing is staged
    std::vector<std::shared_ptr<engine::KnownOperation>> known_;  // by rank; empty: each step is another one
    Regions staged_regions_;
    std::vector<size_t> next_;

  public:
    SimGroup group;
    std::vector<Step> steps;
    std::set<uint32_t> stopped;
};

inline engine::OpRequest request_of(const OpDescriptor& words) {
    engine::OpRequest request;
    request.descriptor = words;
    return request;
}

}  // namespace nexar::sim
