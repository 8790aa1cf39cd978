// CRC-32C (Castagnoli), as RFC 3720 §B.4 has its test vectors. It finds errors, not forgers.
#pragma once

#include <cstdint>

#include "core/bytes.hpp"

namespace nexar::tcp {

// `crc`: of the bytes before.
uint32_t crc32c(Bytes bytes, uint32_t crc = 0);

}  // namespace nexar::tcp
