// CRC-32C (Castagnoli), as RFC 3720 §B.4 has its test vectors. It finds errors, not forgers.
#pragma once

#include <cstdint>
#include <vector>

#include "core/bytes.hpp"

namespace nexar::tcp {

// `crc`: of the bytes before.
uint32_t crc32c(Bytes bytes, uint32_t crc = 0);

// What moves the register, which is the inverse of a checksum, past bytes: each way that this processor has,
// the fastest first. All give the same.
using Crc32c = uint32_t (*)(Bytes bytes, uint32_t crc);
std::vector<Crc32c> crc32c_ways();

}  // namespace nexar::tcp
