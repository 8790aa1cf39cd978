// What an endpoint takes from a dialler's first packet, and the parameters both sides start from. Private to
// quic/.
#pragma once

#include <ngtcp2/ngtcp2.h>

#include "quic/connection.hpp"

namespace nexar::quic {

constexpr size_t connection_id_bytes = 12;

// Until a peer is known to be a member it may have this much in flight to us; a joiner never gets more.
constexpr uint64_t unidentified_stream_window = 128 * 1024;
constexpr uint64_t unidentified_window = 256 * 1024;

struct Connection::Initial {
    ngtcp2_cid client_dcid{};  // as the dialler chose it
    ngtcp2_cid client_scid{};
    uint32_t version = 0;
    // After a Retry: what it chose first; our Retry's id is client_dcid then.
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

// The callbacks that every connection gives to ngtcp2; user data is the Connection.
const ngtcp2_callbacks& connection_callbacks();

}  // namespace nexar::quic
