// What the log says of a peer's bulk connection. Sans-io.
#pragma once

#include "connections/bulk.hpp"
#include "core/log.hpp"

namespace nexar::node {

// One that is up is so anew, or something else has become known of it. A connection that is not up is down
// only if it was up before: otherwise it is awaited, and only why there is none is known. `was_up`: before
// `state`.
void log_bulk(Log& log, bool was_up, const connections::BulkState& state);

}  // namespace nexar::node
