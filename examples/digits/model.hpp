// The network: 64 pixels - 128 hidden - 10 classes, softmax cross-entropy, SGD with momentum. Pure arithmetic
// on flat arrays: no clock, no file, no rank. Gradients are SUMS over images, so that the sums of all ranks'
// slices are the sum over the whole batch, whatever the number of ranks; the update divides by the batch.
//
// The activation is softsign, x / (1 + |x|) (Glorot, Bengio: "Understanding the difficulty of training deep
// feedforward neural networks", AISTATS 2010), not ReLU: several ranks add the same numbers in another order
// than one process does, and the two are compared afterwards. ReLU's slope jumps at 0, so a rounding error
// there can switch a unit's gradient on or off (seen: parameters 6e-3 apart); softsign's slope does not jump.
//
// Flat layout, the same in digits.py:  W1[64][128]  b1[128]  W2[128][10]  b2[10]
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "data.hpp"

namespace digits {

constexpr size_t hidden = 128;

constexpr size_t w1_at = 0;
constexpr size_t b1_at = w1_at + pixels_per_image * hidden;
constexpr size_t w2_at = b1_at + hidden;
constexpr size_t b2_at = w2_at + hidden * classes;
constexpr size_t parameter_count = b2_at + classes;

struct Learning {
    float rate = 0.1f;
    float momentum = 0.9f;
};

// Uniform in +-sqrt(6 / inputs); biases are zero.
std::vector<float> initial_parameters(uint64_t seed);

// Adds the gradient of one image's loss to `gradient` and returns that loss. T is float, or double for the
// test that compares with finite differences.
template <class T>
T accumulate_gradient(std::span<const T> parameters, const Image& image, std::span<T> gradient);

uint8_t classify(std::span<const float> parameters, const Image& image);
double accuracy(std::span<const float> parameters, std::span<const Image> images);

// One step of SGD with momentum:  v = momentum v - rate (g / batch);  p = p + v.
// Every rank runs this on identical input, and C++ and Python ranks must get identical bits: so each
// operation is rounded once to f32, in this order, without a fused multiply-add (-ffp-contract=off).
void update(std::span<float> parameters, std::span<float> velocity, std::span<const float> gradient_sum,
            float batch, const Learning& learning);

uint64_t hash(std::span<const float> parameters);

// The largest |a - b|; infinity if a value is not a number.
double largest_difference(std::span<const float> a, std::span<const float> b);

}  // namespace digits
