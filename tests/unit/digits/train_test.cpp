// Training: what the reference reaches, that it repeats, that ranks change it by rounding only, and that
// every failure of the peers comes out.
#include "train.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <span>
#include <string>
#include <vector>

#include "report.hpp"

using namespace digits;

namespace {

const Dataset& data() {
    static const Dataset loaded = load_dataset(DIGITS_BIN).value();
    return loaded;
}

Trained train_alone(uint32_t epochs) {
    Alone alone;
    TrainOptions options;
    options.epochs = epochs;
    auto trained = train(data(), alone, options);
    REQUIRE(trained);
    return std::move(*trained);
}

// What `ranks` ranks would arrive at, one after the other in this thread: their parts' sums are added in rank
// order, or from the last rank to the first.
std::vector<float> train_in_parts(size_t ranks, uint32_t epochs, bool backwards) {
    const TrainOptions options;
    auto parameters = initial_parameters(options.seed);
    std::vector<float> velocity(parameter_count), part(parameter_count), sum(parameter_count);
    for (uint32_t epoch = 0; epoch < epochs; ++epoch) {
        const auto order = epoch_order(data().train.size(), epoch);
        for (size_t at = 0; at < order.size(); at += options.batch) {
            const size_t count = std::min<size_t>(options.batch, order.size() - at);
            std::ranges::fill(sum, 0.0f);
            for (size_t r = 0; r < ranks; ++r) {
                const auto [begin, end] = part_of(count, backwards ? ranks - 1 - r : r, ranks);
                std::ranges::fill(part, 0.0f);
                for (size_t i = begin; i < end; ++i)
                    accumulate_gradient<float>(parameters, data().train[order[at + i]], part);
                for (size_t i = 0; i < parameter_count; ++i) sum[i] += part[i];
            }
            update(parameters, velocity, sum, static_cast<float>(count), options.learning);
        }
    }
    return parameters;
}

// Peers that fail or lie at one place.
struct Faulty : Alone {
    int allocations_left = 100, reductions_left = 100'000;
    bool broadcast_fails = false;
    float reduced_times = 1;

    Outcome<std::span<float>> allocate(size_t count) override {
        if (allocations_left-- == 0) return std::unexpected("no memory");
        return Alone::allocate(count);
    }
    Outcome<> all_reduce_sum(std::span<float> values) override {
        if (reductions_left-- == 0) return std::unexpected("rank 3 is lost");
        for (float& value : values) value *= reduced_times;
        return {};
    }
    Outcome<> broadcast_from_first(std::span<float>) override {
        if (broadcast_fails) return std::unexpected("rank 2 is lost");
        return {};
    }
};

std::string failure(Faulty& peers) {
    auto trained = train(data(), peers, TrainOptions{});
    REQUIRE_FALSE(trained);
    return trained.error();
}

}  // namespace

TEST_CASE("one process reaches 95 % on held-out images in 25 epochs, and the loss falls", "[digits]") {
    const Trained trained = train_alone(25);

    REQUIRE(accuracy(trained.parameters, data().held_out) >= accuracy_wanted);
    REQUIRE(trained.loss.size() == 25);
    REQUIRE(trained.loss.back() < trained.loss.front() / 10);
    REQUIRE(trained.all_reduce.calls == 25 * 15);
    REQUIRE(trained.all_reduce.bytes == 25 * 15 * (parameter_count + 2) * sizeof(float));
}

TEST_CASE("the same training twice gives the same bits", "[digits]") {
    REQUIRE(hash(train_alone(3).parameters) == hash(train_alone(3).parameters));
    REQUIRE(hash(train_alone(3).parameters) != hash(train_alone(4).parameters));
}

TEST_CASE("any number of ranks stays within the stated tolerance of one process", "[digits]") {
    const auto alone = train_alone(25).parameters;
    REQUIRE(largest_difference(train_in_parts(1, 25, false), alone) <= reference_tolerance);
    for (size_t ranks : {2u, 5u, 6u, 17u, 100u})
        for (bool backwards : {false, true}) {
            const double difference = largest_difference(train_in_parts(ranks, 25, backwards), alone);
            CAPTURE(ranks, backwards, difference);
            if (backwards) REQUIRE(difference > 0);  // another order of additions: not the same bits
            REQUIRE(difference <= reference_tolerance);
        }
}

TEST_CASE("the tolerance detects one image too few", "[digits]") {
    Dataset without_one = data();
    without_one.train[700].pixels = {};
    Alone alone;
    auto trained = train(without_one, alone, TrainOptions{});
    REQUIRE(trained);
    REQUIRE(largest_difference(trained->parameters, train_alone(25).parameters) > 10 * reference_tolerance);
}

TEST_CASE("whatever the peers fail at ends the training with their words", "[digits]") {
    Faulty peers;
    SECTION("first allocation") {
        peers.allocations_left = 0;
        REQUIRE(failure(peers) == "no memory");
    }
    SECTION("second allocation") {
        peers.allocations_left = 1;
        REQUIRE(failure(peers) == "no memory");
    }
    SECTION("broadcast") {
        peers.broadcast_fails = true;
        REQUIRE(failure(peers) == "rank 2 is lost");
    }
    SECTION("an all_reduce in the third epoch") {
        peers.reductions_left = 31;
        REQUIRE(failure(peers) == "epoch 3: rank 3 is lost");
    }
    SECTION("a part that is added twice") {
        peers.reduced_times = 2;
        REQUIRE(failure(peers) == "epoch 1: all_reduce counted 192 images in a batch of 96");
    }
}

TEST_CASE("the report fails on low accuracy, on one different hash, and beyond the tolerance", "[digits]") {
    Report report{.ranks = 3, .accuracy = 0.98, .hashes = {5, 5, 5}, .reference_difference = 1e-6};
    REQUIRE(report.passed());

    SECTION("accuracy") {
        report.accuracy = 0.949;
    }
    SECTION("hash") {
        report.hashes[2] = 6;
    }
    SECTION("reference") {
        report.reference_difference = 1.1e-4;
    }
    REQUIRE_FALSE(report.passed());
}
