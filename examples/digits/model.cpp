// Forward, backward and update of the two-layer network.
#include "model.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "random.hpp"

namespace digits {
namespace {

template <class T>
using Hidden = std::array<T, hidden>;
template <class T>
using Scores = std::array<T, classes>;

// Zero pixels, about half of them, are skipped: they add nothing to the sums here and in the gradient.
template <class T>
Hidden<T> hidden_layer(std::span<const T> parameters, const Image& image) {
    Hidden<T> h;
    std::copy_n(parameters.data() + b1_at, hidden, h.begin());
    for (size_t p = 0; p < pixels_per_image; ++p) {
        const T x = static_cast<T>(image.pixels[p]);
        if (x == 0) continue;
        const T* w = parameters.data() + w1_at + p * hidden;
        for (size_t j = 0; j < hidden; ++j) h[j] += x * w[j];
    }
    for (T& value : h) value /= 1 + std::abs(value);
    return h;
}

template <class T>
Scores<T> output_layer(std::span<const T> parameters, const Hidden<T>& h) {
    Scores<T> z;
    std::copy_n(parameters.data() + b2_at, classes, z.begin());
    for (size_t j = 0; j < hidden; ++j) {
        const T* w = parameters.data() + w2_at + j * classes;
        for (size_t k = 0; k < classes; ++k) z[k] += h[j] * w[k];
    }
    return z;
}

// Turns scores into d loss / d score (softmax minus one-hot) and returns the loss. The largest score is
// subtracted first, so exp never overflows.
template <class T>
T softmax_loss(Scores<T>& z, uint8_t digit) {
    const T largest = *std::max_element(z.begin(), z.end());
    const T target = z[digit] - largest;
    T sum = 0;
    for (T& value : z) sum += value = std::exp(value - largest);
    for (T& value : z) value /= sum;
    z[digit] -= 1;
    return std::log(sum) - target;
}

}  // namespace

template <class T>
T accumulate_gradient(std::span<const T> parameters, const Image& image, std::span<T> gradient) {
    const Hidden<T> h = hidden_layer(parameters, image);
    Scores<T> dz = output_layer(parameters, h);
    const T loss = softmax_loss(dz, image.digit);

    Hidden<T> dh{};
    for (size_t j = 0; j < hidden; ++j) {
        const T* w = parameters.data() + w2_at + j * classes;
        T* dw = gradient.data() + w2_at + j * classes;
        for (size_t k = 0; k < classes; ++k) {
            dh[j] += w[k] * dz[k];
            dw[k] += h[j] * dz[k];
        }
        const T slope = 1 - std::abs(h[j]);
        dh[j] *= slope * slope;
    }
    for (size_t k = 0; k < classes; ++k) gradient[b2_at + k] += dz[k];
    for (size_t j = 0; j < hidden; ++j) gradient[b1_at + j] += dh[j];
    for (size_t p = 0; p < pixels_per_image; ++p) {
        const T x = static_cast<T>(image.pixels[p]);
        if (x == 0) continue;
        T* dw = gradient.data() + w1_at + p * hidden;
        for (size_t j = 0; j < hidden; ++j) dw[j] += x * dh[j];
    }
    return loss;
}

template float accumulate_gradient(std::span<const float>, const Image&, std::span<float>);
template double accumulate_gradient(std::span<const double>, const Image&, std::span<double>);

std::vector<float> initial_parameters(uint64_t seed) {
    std::vector<float> parameters(parameter_count, 0.0f);
    Random random(seed);
    const float bound1 = std::sqrt(6.0f / float{pixels_per_image});
    const float bound2 = std::sqrt(6.0f / float{hidden});
    for (size_t i = w1_at; i < b1_at; ++i) parameters[i] = random.symmetric() * bound1;
    for (size_t i = w2_at; i < b2_at; ++i) parameters[i] = random.symmetric() * bound2;
    return parameters;
}

uint8_t classify(std::span<const float> parameters, const Image& image) {
    const Scores<float> z = output_layer(parameters, hidden_layer(parameters, image));
    return static_cast<uint8_t>(std::max_element(z.begin(), z.end()) - z.begin());
}

double accuracy(std::span<const float> parameters, std::span<const Image> images) {
    size_t right = 0;
    for (const Image& image : images) right += classify(parameters, image) == image.digit;
    return images.empty() ? 0.0 : static_cast<double>(right) / static_cast<double>(images.size());
}

void update(std::span<float> parameters, std::span<float> velocity, std::span<const float> gradient_sum,
            float batch, const Learning& learning) {
    for (size_t i = 0; i < parameters.size(); ++i) {
        const float step = learning.rate * (gradient_sum[i] / batch);
        velocity[i] = learning.momentum * velocity[i] - step;
        parameters[i] += velocity[i];
    }
}

uint64_t hash(std::span<const float> parameters) {
    return fnv1a(std::as_bytes(parameters));
}

double largest_difference(std::span<const float> a, std::span<const float> b) {
    double largest = 0;
    for (size_t i = 0; i < a.size(); ++i) {
        const double difference = std::abs(double{a[i]} - double{b[i]});
        if (!std::isfinite(difference)) return std::numeric_limits<double>::infinity();
        largest = std::max(largest, difference);
    }
    return largest;
}

}  // namespace digits
