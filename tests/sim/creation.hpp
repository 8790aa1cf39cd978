// Creation: groups that ranks of a group create from a list of ranks, over a Cluster.
#pragma once

#include <catch2/catch_test_macros.hpp>
#include <map>

#include "family.hpp"

namespace nexar::sim {

struct CreateCall {
    std::vector<uint32_t> ranks;
    uint64_t tag = 0;
    Duration timeout{-1};
    engine::Timeouts asked{Duration{-1}, Duration{-1}, Duration{-1}};
    uint32_t pid = 0;  // 0: the rank's own, where the parent is one of Cluster::make_group
    uint32_t uid = 0;  // whose call it is; 0: the parent's user's
};

// A rank's call of nexar_group_create, without what follows from an input. The answer is in Host::opened.
inline Cluster::Open begin_create(Cluster& cluster, const SimGroup& parent, uint32_t rank,
                                  const CreateCall& call) {
    const uint32_t at = parent.placement[rank];
    Host& host = *cluster.hosts[at];
    Cluster::Open out{at, parent.sessions[rank], host.next_ticket++, {}};
    engine::OpenRequest request;
    request.session = out.session;
    request.ticket = out.ticket;
    request.tenant =
        host.tenants.of("", call.uid != 0 ? call.uid : 1000 + static_cast<uint32_t>(parent.id.counter % 3));
    request.pid = call.pid != 0 ? call.pid : 1000 + rank;
    request.timeout = call.timeout;
    request.asked = call.asked;
    request.create = std::make_shared<const engine::CreateRequest>(
        engine::CreateRequest{parent.id, rank, call.ranks, call.tag});
    out.accepted = host.engine->open(cluster.clock.now(), request);
    return out;
}
inline Cluster::Open create(Cluster& cluster, const SimGroup& parent, uint32_t rank, const CreateCall& call) {
    Cluster::Open out = begin_create(cluster, parent, rank, call);
    cluster.hosts[out.host]->after_input();
    return out;
}

inline void cancel(Cluster& cluster, const Cluster::Open& open) {
    cluster.hosts[open.host]->engine->cancel(cluster.clock.now(), open.session, open.ticket);
    cluster.hosts[open.host]->after_input();
}

class Creation {
  public:
    using Ranks = std::vector<uint32_t>;
    static constexpr engine::Timeouts no_timeouts{Duration{-1}, Duration{-1}, Duration{-1}};

    Creation(Cluster& c, SimGroup group, Ranks list, uint64_t t = 0)
        : cluster(c), parent(std::move(group)), ranks(std::move(list)), tag(t) {}

    // One rank's call.
    Result<void> start(uint32_t rank, Duration timeout = Duration{-1}, uint32_t pid = 0) {
        calls[rank] = create(cluster, parent, rank, {ranks, tag, timeout, no_timeouts, pid});
        return calls[rank].accepted;
    }
    void start_all() {
        for (const uint32_t rank : ranks) REQUIRE(start(rank));
    }
    const Result<engine::GroupInfo>* answer(uint32_t rank) const {
        const auto at = calls.find(rank);
        return at == calls.end() ? nullptr : cluster.answer(at->second);
    }
    bool ok(uint32_t rank) const { return answer(rank) != nullptr && answer(rank)->has_value(); }
    bool all_ok() const {
        return std::ranges::all_of(ranks, [this](uint32_t rank) { return ok(rank); });
    }
    // Requires: it has one.
    const Error& error(uint32_t rank) const { return answer(rank)->error(); }
    // The new group, for programs. Requires: one of its ranks has it.
    SimGroup made() const {
        SimGroup out;
        for (const uint32_t rank : ranks) {
            out.placement.push_back(parent.placement[rank]);
            out.sessions.push_back(parent.sessions[rank]);
            if (ok(rank)) out.id = (*answer(rank))->id;
        }
        return out;
    }

    Cluster& cluster;
    SimGroup parent;
    Ranks ranks;
    uint64_t tag;
    std::map<uint32_t, Cluster::Open> calls;  // by rank of the parent
};

inline Error refused(const Cluster::Open& call) {
    REQUIRE_FALSE(call.accepted);
    return call.accepted.error();
}

}  // namespace nexar::sim
