// See pace.hpp.
#include "core/pace.hpp"

#include <algorithm>

namespace nexar {

Time Pace::next(uint64_t user, Time now) const {
    const auto found = used_until_.find(user);
    if (found == used_until_.end() || burst_ == 0) return now;
    return std::max(now, found->second - interval_ * (burst_ - 1));
}

void Pace::take(uint64_t user, Time now) {
    if (interval_ == Duration{0}) return;
    std::erase_if(used_until_, [&](const auto& row) { return row.second <= now; });
    Time& until = used_until_[user];
    until = std::max(until, now) + interval_;
}

}  // namespace nexar
