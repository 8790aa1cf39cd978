// Limits log lines to so many per second, and counts those that are left out. Dry: the caller passes the
// time. Thread: one at a time.
#pragma once

#include <cstdint>
#include <utility>

#include "core/time.hpp"

namespace nexar {

class LineLimit {
  public:
    explicit LineLimit(uint64_t lines_per_second) : per_second_(lines_per_second) {}

    // False: the caller leaves this line out. A second begins with its first line, and with left-out lines it
    // lasts until they are taken.
    bool allows(Time now) {
        if (left_out_ == 0 && has_ended(now)) begin(now);
        if (lines_ < per_second_) {
            ++lines_;
            return true;
        }
        ++left_out_;
        ++left_out_in_all_;
        return false;
    }
    // The lines left out of a second that has ended; the next one begins. 0: none.
    uint64_t take_left_out(Time now) {
        if (left_out_ == 0 || !has_ended(now)) return 0;
        begin(now);
        return std::exchange(left_out_, 0);
    }
    bool has_left_out() const { return left_out_ > 0; }  // not taken yet
    uint64_t left_out_in_all() const { return left_out_in_all_; }

  private:
    bool has_ended(Time now) const { return now - begin_ >= std::chrono::seconds(1); }
    void begin(Time now) {
        begin_ = now;
        lines_ = 0;
    }
    uint64_t per_second_;
    Time begin_{};                  // of this second
    uint64_t lines_ = 0;            // allowed in it
    uint64_t left_out_ = 0;         // of it
    uint64_t left_out_in_all_ = 0;  // since the beginning
};

}  // namespace nexar
