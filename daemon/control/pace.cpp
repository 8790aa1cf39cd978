// See pace.hpp.
#include "control/pace.hpp"

#include <algorithm>

namespace nexar::control {

Time Pace::next(uint32_t uid, Time now) const {
    const auto found = used_until_.find(uid);
    if (found == used_until_.end() || burst_ == 0) return now;
    return std::max(now, found->second - interval_ * (burst_ - 1));
}

void Pace::take(uint32_t uid, Time now) {
    if (interval_ == Duration{0}) return;
    std::erase_if(used_until_, [&](const auto& user) { return user.second <= now; });
    Time& until = used_until_[uid];
    until = std::max(until, now) + interval_;
}

}  // namespace nexar::control
