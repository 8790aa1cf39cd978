// UsedNumbers: which of the numbers that a client gives to its regions were used already. They are used once
// each, about in order: threads of one client may overtake each other by a little.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>

namespace nexar::local {

class UsedNumbers {
  public:
    explicit UsedNumbers(size_t gaps_max = 1024) : gaps_max_(gaps_max) {}

    // False: it was used before, or is 0.
    bool try_use(uint32_t number) {
        if (number < first_free_ || !above_.insert(number).second) return false;
        while (!above_.empty() && (*above_.begin() == first_free_ || above_.size() > gaps_max_)) {
            first_free_ = uint64_t{*above_.begin()} + 1;  // what was passed over for so long never comes
            above_.erase(above_.begin());
        }
        return true;
    }

  private:
    size_t gaps_max_;
    uint64_t first_free_ = 1;   // all below were used
    std::set<uint32_t> above_;  // and these, at most gaps_max
};

}  // namespace nexar::local
