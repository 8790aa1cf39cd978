// Arrivals: connections that the server has accepted, and whose handshake has not begun. A user begins a
// bounded number of handshakes in a time; later ones wait [N15].
//
// Thread: the control loop's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "core/pace.hpp"
#include "core/tenant.hpp"
#include "local/courier.hpp"

namespace nexar::local {

struct Arrival {
    ConnectionRef connection;
    TenantRef tenant;
    size_t listener = 0;  // that it came to
};

class Arrivals {
  public:
    // As of Pace.
    Arrivals(Duration interval, unsigned at_once) : pace_(interval, at_once) {}

    void add(Arrival arrival);
    // Those whose handshake begins now: at most so many of each user, in the order in which they came.
    std::vector<Arrival> take(Time now, size_t of_user_max);
    std::vector<Arrival> take_all();
    Time next() const;  // when the next one begins; never: none waits
    size_t waiting(uint64_t tenant) const;
    size_t waiting() const { return count_; }

  private:
    Pace pace_;
    std::map<uint64_t, std::deque<Arrival>> rows_;  // by tenant; none is empty
    size_t count_ = 0;                              // in all rows
};

}  // namespace nexar::local
