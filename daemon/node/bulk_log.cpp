#include "node/bulk_log.hpp"

namespace nexar::node {

void log_bulk(Log& log, bool was_up, const connections::BulkState& state) {
    const char* carrier = state.carrier == connections::CarrierKind::quic ? "quic" : "tcp";
    if (state.up && !state.is_new)
        log.debug("bulk_carrier", {field("peer", state.peer), field("carrier", carrier),
                                   field("carrier_why", state.carrier_why)});
    else if (state.up)
        log.debug("bulk_up", {field("peer", state.peer), field("carrier", carrier),
                              field("carrier_why", state.carrier_why)});
    else if (was_up)
        log.debug("bulk_down", {field("peer", state.peer), field("why", state.why), field("carrier", carrier),
                                field("carrier_why", state.carrier_why)});
    else
        log.debug("bulk_awaited", {field("peer", state.peer), field("why", state.carrier_why)});
}

}  // namespace nexar::node
