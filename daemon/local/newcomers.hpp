// Newcomers: connections that the server has accepted, and whose handshake has not begun. A user begins a
// bounded number of handshakes in a time [N15]. And while nothing is left of his share of sessions they wait
// for a moment instead of being refused at once [N3]: what he closed a moment ago may count still [S19]. Each
// user's wait in the order in which they came, and for nobody else's.
//
// Thread: the control loop's.
#pragma once

#include <cstddef>

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

using Newcomers = PacedQueue<Newcomer>;  // by the number of the tenant

}  // namespace nexar::local
