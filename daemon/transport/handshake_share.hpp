// HandshakeShare: what connections that have not attached may take of their thread, `share` of each
// `interval`. What a step takes is known only afterwards; who has taken more waits so much longer, at most
// `debt_max` intervals. A step that nobody waits for is forgotten with its interval. Dry.
#pragma once

#include <algorithm>

#include "core/time.hpp"

namespace nexar::transport {

class HandshakeShare {
  public:
    static constexpr int64_t debt_max = 10;

    // `share` zero: no limit.
    HandshakeShare(Duration share, Duration interval) : share_(share), interval_(interval) {}

    bool allows(Time now) {
        if (now >= since_ + interval_ && now >= free_at_) {
            since_ = now;
            taken_ = {};
        }
        return share_ == Duration{} || taken_ < share_;
    }
    // By what allows() has allowed.
    void take(Duration processor_time) {
        if (share_ == Duration{}) return;
        taken_ = std::min(taken_ + processor_time, debt_max * share_);
        if (taken_ >= share_)
            free_at_ = since_ + Duration(interval_.count() * taken_.count() / share_.count());
    }
    Time free_at() const { return free_at_; }  // when it allows again, after it did not

  private:
    Duration share_, interval_;
    Duration taken_{};  // since since_
    Time since_{}, free_at_{};
};

}  // namespace nexar::transport
