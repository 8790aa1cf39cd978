// Newcomers: connections that the server has accepted, and whose handshake has not begun. A user begins a
// bounded number of handshakes in a time [N15]. And while nothing is left of his share of sessions they wait
// for a moment instead of being refused at once [N3]: what he closed a moment ago may count still [S19]. Each
// user's wait in the order in which they came, and for nobody else's.
//
// Thread: the control loop's.
#pragma once

#include <cstddef>
#include <vector>

#include "core/paced_queue.hpp"
#include "core/tenant.hpp"
#include "local/courier.hpp"

namespace nexar::local {

struct Newcomer {
    ConnectionRef connection;
    TenantRef tenant;
    size_t listener = 0;  // that it came to
    Time until{};         // it waits for a place
};

class Newcomers {
  public:
    // As of Pace.
    Newcomers(Duration interval, unsigned at_once) : queue_(interval, at_once) {}

    // As of PacedQueue.
    bool add(Time now, Newcomer& one, size_t of_user_max) {
        return queue_.add(one.tenant->number, now, one, of_user_max);
    }
    using Question = PacedQueue<Newcomer>::Question;
    void ask(Time now, size_t of_user_max, const Question& has_begun) {
        queue_.ask(now, of_user_max, has_begun);
    }
    std::vector<Newcomer> take_all() { return queue_.take_all(); }
    Time next() const { return queue_.next(); }
    bool is_at_pace(const Tenant& user, Time now) const { return queue_.is_at_pace(user.number, now); }
    size_t waiting(const Tenant& user) const { return queue_.waiting(user.number); }
    size_t waiting() const { return queue_.waiting(); }

  private:
    PacedQueue<Newcomer> queue_;  // by tenant
};

}  // namespace nexar::local
