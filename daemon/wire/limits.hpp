// Every size and count limit on the control wire, in one place. decode() refuses what is over; encode() cuts
// free text to size and checks (our own bug) everything else.
#pragma once

#include <cstddef>
#include <cstdint>

namespace nexar::wire {

// The largest message is a GroupPrepare of ranks_max members: 65,536 x 24 bytes = 1.5 MiB, and its node
// table.
constexpr size_t message_bytes_max = 2 << 20;
// Of one group. The ABI has 4,096 (NEXAR_RANKS_MAX), so no session asks for more: what is here bounds what
// another node says, and leaves later versions room for larger groups without a change of the wire.
constexpr size_t ranks_max = 65536;
constexpr size_t group_nodes_max = 4096;    // nodes of one group
constexpr size_t roster_nodes_max = 1024;   // node records in one message; a longer roster takes several
constexpr size_t addresses_max = 8;         // per node
constexpr size_t address_bytes_max = 64;    // "[v6%zone]:port"
constexpr size_t hostname_bytes_max = 255;  // RFC 1035 section 2.3.4
constexpr size_t group_name_bytes_max = 128;
constexpr size_t text_bytes_max = 1024;         // reasons and error texts
constexpr size_t csr_bytes_max = 4096;          // a certificate request, PEM
constexpr size_t certificate_bytes_max = 8192;  // PEM
constexpr uint16_t bulk_shards_max = 64;

constexpr int64_t timeout_ms_max = int64_t{1} << 31;  // of a group's operations

}  // namespace nexar::wire
