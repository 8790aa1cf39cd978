// The parts of a dialler's first packet that an endpoint needs, and the parameters that both sides start
// with. Private to quic/.
#pragma once

#include <ngtcp2/ngtcp2.h>

#include "quic/connection.hpp"

namespace nexar::quic {

constexpr size_t connection_id_bytes = 12;

// An unidentified peer may have this much in flight to this side; a joiner never gets more.
constexpr uint64_t unidentified_stream_window = 128 * 1024;
constexpr uint64_t unidentified_window = 256 * 1024;

struct Connection::Initial {
    ngtcp2_cid client_dcid{};  // as the dialler chose it
    ngtcp2_cid client_scid{};
    uint32_t version = 0;
    // After a Retry: original_dcid is the dialler's first choice, client_dcid the Retry's.
    bool after_retry = false;
    ngtcp2_cid original_dcid{};
    const uint8_t* token = nullptr;
    size_t token_size = 0;
};

inline Bytes bytes_of(const uint8_t* data, size_t size) {
    return {reinterpret_cast<const std::byte*>(data), size};
}
inline const uint8_t* data_of(Bytes bytes) {
    return reinterpret_cast<const uint8_t*>(bytes.data());
}
inline uint8_t* data_of(MutableBytes bytes) {
    return reinterpret_cast<uint8_t*>(bytes.data());
}

// The callbacks that every connection passes to ngtcp2; the user data is the Connection.
const ngtcp2_callbacks& connection_callbacks();

}  // namespace nexar::quic
