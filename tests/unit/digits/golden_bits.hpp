// Bits that C++ and Python must both produce (model_test.cpp, golden_bits.py): FNV-1a of the little-endian
// arrays. Mixed groups stay bit-identical only because these agree.
#pragma once

#include <cstdint>

namespace digits::golden {

constexpr uint64_t initial_hash = 0x3c0c975300edc9a8;
constexpr uint64_t updated_parameters_hash = 0xf815815fb74310d1;
constexpr uint64_t updated_velocity_hash = 0x7b61053a448b22be;
constexpr uint64_t epoch_order_hash = 0x1ca2e34d7d403f12;
constexpr uint64_t train_images_hash = 0xcab9af40912b8cdb;
constexpr uint64_t held_out_digits_hash = 0x603b1ce18f4d4734;

}  // namespace digits::golden
