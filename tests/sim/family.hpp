// Family: groups and their children over a Cluster: starts splits and dups on ranks, and makes SimGroups of
// what they return, so that programs run on children.
#pragma once

#include <catch2/catch_test_macros.hpp>
#include <functional>

#include "post.hpp"

namespace nexar::sim {

struct ChildCall {
    uint32_t colour = 0;
    int64_t key = 0;
    engine::Timeouts asked{Duration{-1}, Duration{-1}, Duration{-1}};
};

class Family {
  public:
    Family(Cluster& c, SimGroup group) : cluster(c), parent(std::move(group)), calls(parent.size()) {}

    // One rank's call.
    Call& start(OpKind kind, uint32_t rank, const ChildCall& wish = {}, Duration timeout = Duration{-1}) {
        engine::OpRequest request = request_of({kind, Dtype::f32, ReduceOp::sum, 0, 0});
        request.timeout = timeout;
        auto child = std::make_shared<engine::ChildRequest>();
        child->colour = wish.colour;
        child->key = wish.key;
        child->asked = wish.asked;
        request.child = child;
        calls[rank] = &cluster.submit(parent, rank, request, {}, 0);
        return *calls[rank];
    }
    void split(const std::function<ChildCall(uint32_t)>& wish) {
        for (uint32_t rank = 0; rank < parent.size(); ++rank) start(OpKind::group_split, rank, wish(rank));
    }
    void dup() {
        for (uint32_t rank = 0; rank < parent.size(); ++rank) start(OpKind::group_dup, rank);
    }

    const engine::GroupInfo* info(uint32_t rank) const { return calls[rank]->outcome.child.get(); }
    // The child of this parent's rank, for programs. Requires: it has one.
    SimGroup child_of(uint32_t rank) const {
        SimGroup out;
        out.id = info(rank)->id;
        out.placement.resize(info(rank)->size);
        out.sessions.resize(info(rank)->size);
        for (uint32_t r = 0; r < parent.size(); ++r) {
            if (calls[r] == nullptr || !calls[r]->ok() || !info(r) || info(r)->id != out.id) continue;
            out.placement[info(r)->rank.value] = parent.placement[r];
            out.sessions[info(r)->rank.value] = parent.sessions[r];
        }
        return out;
    }
    bool all_ok() const {
        return std::ranges::all_of(calls, [](const Call* call) { return call != nullptr && call->ok(); });
    }

    Cluster& cluster;
    SimGroup parent;
    std::vector<Call*> calls;  // by rank; null: it has not called
};

// One of every kind of collective on the group, with data that differ between groups.
inline std::string run_everything(Cluster& cluster, const SimGroup& group) {
    Program program(cluster, group);
    for (const OpKind kind : collective_kinds)
        program.add({kind, Dtype::i64, ReduceOp::sum, count_for(kind, 17), group.size() - 1});
    program.start(Duration{5000});
    if (!cluster.run()) return cluster.unfinished();
    return program.wrong();
}

}  // namespace nexar::sim
