// UsedNumbers: the region numbers that a client has used. Each is used once, almost in order: threads of one
// client may overtake each other.
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
            first_free_ = uint64_t{*above_.begin()} + 1;  // a skipped number counts as used from here on
            above_.erase(above_.begin());
        }
        return true;
    }
    bool is_used(uint32_t number) const {
        return number != 0 && (number < first_free_ || above_.contains(number));
    }

  private:
    size_t gaps_max_;           // a gap closes when so many numbers above it are used
    uint64_t first_free_ = 1;   // all numbers below are used
    std::set<uint32_t> above_;  // the used numbers above first_free_, at most gaps_max_
};

}  // namespace nexar::local
