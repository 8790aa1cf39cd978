// Newcomers: connections that the server has accepted, and whose handshake has not begun. A user begins a
// bounded number of handshakes in a time [N15]. And while nothing is left of his share of sessions they wait
// for a moment instead of being refused at once [N3]: what he closed a moment ago may count still [S19]. Each
// user's wait in the order in which they came, and for nobody else's.
//
// Thread: the control loop's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <vector>

#include "core/pace.hpp"
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
    Newcomers(Duration interval, unsigned at_once) : pace_(interval, at_once) {}

    // False: as many of its user wait, and it is left as it was; it counts as one that begins.
    bool add(Time now, Newcomer& one, size_t of_user_max);
    // Asks of each user those whose turn has come, at most so many, while the answer is yes: it waits no
    // more. After a no they are asked again when 10 ms have passed.
    using Question = std::function<bool(Newcomer&)>;
    void ask(Time now, size_t of_user_max, const Question& has_begun);
    std::vector<Newcomer> take_all();
    Time next() const;  // when to ask; never: none waits
    // He begins as many as he may.
    bool is_at_pace(const Tenant& user, Time now) const { return pace_.next(user.number, now) > now; }
    size_t waiting(const Tenant& user) const;
    size_t waiting() const { return count_; }

  private:
    struct Row {
        std::deque<Newcomer> waiting;  // not empty
        Time again{};                  // not to be asked before
    };

    Pace pace_;
    std::map<uint64_t, Row> rows_;  // by tenant
    size_t count_ = 0;              // in all rows
};

}  // namespace nexar::local
