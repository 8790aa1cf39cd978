// CreditTable: how many unexpected messages each rank of other nodes may send here
// (docs/protocol/control_log.md [L9]). Limits are cumulative counts, so the newest one is enough.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>

#include "core/check.hpp"

namespace nexar::engine {

// Unexpected messages of one rank that a node keeps. Both sides compute it.
constexpr uint64_t credit_window(size_t unexpected_per_group_max, uint32_t group_size) {
    constexpr uint64_t window_max = 256;
    return std::clamp<uint64_t>(unexpected_per_group_max / group_size, 1, window_max);
}

// Of them, those that a sender keeps for the other ranks of the node while messages to one have not ended.
constexpr uint64_t credit_reserve(uint64_t window, uint64_t ranks_of_node) {
    return std::min(ranks_of_node - 1, window / 2);
}

class CreditTable {
  public:
    explicit CreditTable(uint64_t window, uint64_t reserve = 0) : window_(window), reserve_(reserve) {}

    // A message of this rank arrived. False: without a credit.
    bool arrived(uint32_t rank) {
        Use& use = uses_[rank];
        if (use.arrived >= use.returned_and_sent + window_) return false;
        ++use.arrived;
        return true;
    }
    // It is not unexpected any more: matched, withdrawn or refused.
    void returned(uint32_t rank) {
        Use& use = uses_[rank];
        NEXAR_CHECK(use.returned < use.arrived);
        ++use.returned;
    }
    // The rank's new limit, if it is to be sent now: by half windows, or at once to a rank that has used up
    // what it was granted, but for the reserve: it may be waiting. To be asked after each of the two.
    std::optional<uint64_t> take_limit(uint32_t rank) {
        Use& use = uses_[rank];
        const uint64_t due = use.returned - use.returned_and_sent;
        const bool is_dry = use.arrived + reserve_ >= use.returned_and_sent + window_;
        if (due == 0 || (!is_dry && due < (window_ + 1) / 2)) return {};
        use.returned_and_sent = use.returned;
        return use.returned + window_;
    }
    void check_invariants() const {
        for (const auto& [rank, use] : uses_) {
            NEXAR_CHECK(use.returned_and_sent <= use.returned && use.returned <= use.arrived);
            NEXAR_CHECK(use.arrived <= use.returned_and_sent + window_);
            NEXAR_CHECK(use.arrived - use.returned <= window_);
        }
    }

  private:
    struct Use {
        uint64_t arrived = 0;            // messages
        uint64_t returned = 0;           // of them, how many left the unexpected ones
        uint64_t returned_and_sent = 0;  // `returned` when the newest limit was sent
    };
    uint64_t window_, reserve_;
    std::map<uint32_t, Use> uses_;  // of ranks that have sent something here
};

}  // namespace nexar::engine
