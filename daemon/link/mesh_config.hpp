// The configuration of a mesh: the transfer table's, and what its carrier adds.
#pragma once

#include <cstddef>
#include <cstdint>

#include "link/control_log.hpp"
#include "link/table_config.hpp"

namespace nexar::link {

struct MeshConfig : TableConfig {
    uint64_t incarnation = 0;                  // of this node; in every header
    size_t message_bytes_max = 1 << 20;        // one message (Cap'n Proto)
    size_t message_queue_bytes_max = 4 << 20;  // messages waiting for room in the channel, per peer
    size_t class_floor_bytes = 1 << 20;  // a class passed over by this much of higher ones sends one chunk
    bool has_log = false;                // the control loop's mesh: it carries the control log with each peer
    ControlLogConfig log;
};

}  // namespace nexar::link
