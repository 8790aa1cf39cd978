// The arithmetic: gradients against finite differences, and the bits that Python must also get.
#include "model.hpp"

#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "golden_bits.hpp"
#include "random.hpp"

using namespace digits;

namespace {

Image image_from(Random& random, uint8_t digit) {
    Image image{.pixels = {}, .digit = digit};
    for (float& pixel : image.pixels) pixel = static_cast<float>(random.below(17)) / 16.0f;
    return image;
}

std::vector<float> uniform(Random& random, size_t count) {
    std::vector<float> values(count);
    for (float& value : values) value = random.symmetric();
    return values;
}

double loss_of(std::span<const double> parameters, const Image& image) {
    std::vector<double> unused(parameter_count);
    return accumulate_gradient<double>(parameters, image, unused);
}

}  // namespace

TEST_CASE("the gradient is the slope of the loss, for weights and biases of both layers", "[digits]") {
    Random random(11);
    const auto start = initial_parameters(3);
    std::vector<double> parameters(start.begin(), start.end());
    for (double& p : parameters) p += 0.01 * double{random.symmetric()};  // biases too
    const Image image = image_from(random, 4);
    std::vector<double> gradient(parameter_count);
    accumulate_gradient<double>(parameters, image, gradient);

    constexpr double h = 1e-6;
    std::vector<size_t> places = {w1_at, b1_at - 1, b1_at, w2_at - 1, w2_at, b2_at - 1};
    for (size_t k = 0; k < classes; ++k) places.push_back(b2_at + k);
    for (int i = 0; i < 600; ++i) places.push_back(random.below(parameter_count));
    size_t not_zero = 0;
    for (size_t place : places) {
        const double kept = parameters[place];
        parameters[place] = kept + h;
        const double above = loss_of(parameters, image);
        parameters[place] = kept - h;
        const double below = loss_of(parameters, image);
        parameters[place] = kept;

        const double slope = (above - below) / (2 * h);
        CAPTURE(place, slope, gradient[place]);
        REQUIRE(std::abs(slope - gradient[place]) <= 1e-8 + 1e-6 * std::abs(slope));
        not_zero += std::abs(slope) > 1e-6;
    }
    REQUIRE(not_zero > places.size() / 2);  // the test did look at something
}

TEST_CASE("gradients add up over images, and the loss is the gradient's", "[digits]") {
    Random random(12);
    const auto start = initial_parameters(3);
    const std::vector<double> parameters(start.begin(), start.end());
    const Image a = image_from(random, 1), b = image_from(random, 8);
    std::vector<double> of_a(parameter_count), of_b(parameter_count), of_both(parameter_count);

    const double loss_a = accumulate_gradient<double>(parameters, a, of_a);
    const double loss_b = accumulate_gradient<double>(parameters, b, of_b);
    REQUIRE(accumulate_gradient<double>(parameters, a, of_both) == loss_a);
    REQUIRE(accumulate_gradient<double>(parameters, b, of_both) == loss_b);

    for (size_t i = 0; i < parameter_count; ++i) REQUIRE(of_both[i] == of_a[i] + of_b[i]);
    REQUIRE(loss_a != loss_b);
}

TEST_CASE("very large scores overflow nothing", "[digits]") {
    Random random(13);
    auto parameters = initial_parameters(3);
    for (float& p : parameters) p *= 1e6f;
    std::vector<float> gradient(parameter_count);
    const float loss = accumulate_gradient<float>(parameters, image_from(random, 2), gradient);
    REQUIRE(std::isfinite(loss));
    REQUIRE(std::ranges::all_of(gradient, [](float g) { return std::isfinite(g); }));
}

TEST_CASE("initial parameters have the golden bits", "[digits]") {
    REQUIRE(hash(initial_parameters(7)) == golden::initial_hash);
    REQUIRE(hash(initial_parameters(8)) != golden::initial_hash);
}

// Distinct numbers at every place, eight steps with uneven batches: any other order of operations, a fused
// multiply-add or a reciprocal instead of a division changes the hash. golden_bits.py does the same in numpy.
TEST_CASE("the update has the golden bits", "[digits]") {
    Random random(42);
    auto parameters = uniform(random, 4096), velocity = uniform(random, 4096);
    for (float batch : {96.0f, 93.0f, 7.0f, 1.0f, 96.0f, 96.0f, 13.0f, 50.0f}) {
        auto gradient = uniform(random, 4096);
        for (float& g : gradient) g *= batch;
        update(parameters, velocity, gradient, batch, Learning{});
    }
    REQUIRE(hash(parameters) == golden::updated_parameters_hash);
    REQUIRE(hash(velocity) == golden::updated_velocity_hash);
}

TEST_CASE("the golden bits detect a fused multiply-add", "[digits]") {
    Random random(42);
    const auto velocity = uniform(random, 4096), gradient = uniform(random, 4096);
    size_t different = 0;
    for (size_t i = 0; i < 4096; ++i)
        different +=
            std::fma(0.9f, velocity[i], -0.1f * gradient[i]) != 0.9f * velocity[i] - 0.1f * gradient[i];
    REQUIRE(different > 400);
}

TEST_CASE("the largest difference sees NaN and infinity", "[digits]") {
    const std::vector<float> a = {1, 2, 3};
    REQUIRE(largest_difference(a, a) == 0);
    REQUIRE(largest_difference(a, std::vector<float>{1, 2.5f, 3}) == 0.5);
    REQUIRE(std::isinf(largest_difference(a, std::vector<float>{1, 2, std::nanf("")})));
    REQUIRE(
        std::isinf(largest_difference(a, std::vector<float>{1, 2, std::numeric_limits<float>::infinity()})));
}
