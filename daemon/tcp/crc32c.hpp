// CRC-32C (Castagnoli), as RFC 3720 §B.4 has its test vectors. It finds errors, not forgers.
#pragma once

#include <cstdint>
#include <vector>

#include "core/bytes.hpp"

namespace nexar::tcp {

// `crc`: of the bytes before.
uint32_t crc32c(Bytes bytes, uint32_t crc = 0);

// Copies the bytes, and sums what was copied: their owner may change them meanwhile.
uint32_t crc32c_copy(std::byte* to, Bytes from, uint32_t crc = 0);

// What moves the register, which is the inverse of a checksum, past bytes: each way that this processor has,
// the fastest first. All give the same.
using Crc32c = uint32_t (*)(Bytes bytes, uint32_t crc);
std::vector<Crc32c> crc32c_ways();
using Crc32cCopy = uint32_t (*)(std::byte* to, Bytes from, uint32_t crc);
std::vector<Crc32cCopy> crc32c_copy_ways();

}  // namespace nexar::tcp
