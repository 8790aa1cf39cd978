// The matrix of ends: what ends an operation early, on which rank, and at which event. A trial is
// run once undisturbed, which counts its events; then it is run again for each of them, the same up to there.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "cluster.hpp"
#include "seeds.hpp"

namespace nexar::sim {

enum class Blow : uint8_t {
    cancel,
    deadline,
    both,
    count
};  // both: a cancel here, a deadline on the next rank

struct Hit {
    Blow blow = Blow::cancel;
    uint32_t rank = 0;
    uint64_t event = 0;
    Time at;  // of that event
};

// Runs the cluster's events until so many have happened.
inline void run_to_event(Cluster& cluster, uint64_t events) {
    while (cluster.clock.steps < events && cluster.clock.step()) {
    }
}

// The times of all events up to the moment when `over`, and a few after it.
template <class Over>
std::vector<Time> events_of(Cluster& cluster, Over over) {
    constexpr size_t afterwards = 12;
    std::vector<Time> out;
    for (size_t left = afterwards; left > 0; left -= over() ? 1 : 0) {
        if (!cluster.clock.step()) break;
        out.push_back(cluster.clock.now());
    }
    return out;
}

// Every event meets one blow on one rank: which, turns with the event and the round, so that so many rounds
// as there are pairs meet all of them; another schedule begins after all pairs. NEXAR_SIM_SEEDS is the number
// of rounds, and then every event has its trial; without it, only as many of them as an everyday run has time
// for.
class Rounds {
  public:
    explicit Rounds(uint32_t ranks) : ranks_(ranks) {}

    uint64_t pairs() const { return uint64_t{ranks_} * uint64_t(Blow::count); }
    uint64_t schedule(uint64_t round) const { return 1 + (round - 1) / pairs(); }
    Hit hit(uint64_t round, uint64_t event, Time at) const {
        const uint64_t pair = (round - 1 + event) % pairs();
        return {static_cast<Blow>(pair / ranks_), static_cast<uint32_t>(pair % ranks_), event, at};
    }

    std::vector<uint64_t> events(uint64_t first, uint64_t count) const {
        constexpr uint64_t everyday = 90 / seeds_share;
        const bool all = std::getenv("NEXAR_SIM_SEEDS") != nullptr;
        const uint64_t stride = all ? 1 : std::max<uint64_t>(1, count / everyday);
        std::vector<uint64_t> out;
        for (uint64_t event = first % stride; event < count; event += stride) out.push_back(event);
        return out;
    }

  private:
    uint32_t ranks_;
};

}  // namespace nexar::sim
