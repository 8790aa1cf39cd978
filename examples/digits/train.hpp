// Data-parallel training. Every rank holds all parameters and all images, computes the gradient of its part
// of each global batch, and applies the same update to the sum of all gradients. The batches are the same
// whatever the number of ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "data.hpp"
#include "model.hpp"
#include "peers.hpp"

namespace digits {

struct TrainOptions {
    uint32_t epochs = 25;
    uint32_t batch = 96;
    uint64_t seed = 7;  // of the initial parameters
    Learning learning;
    std::function<void(uint32_t epoch, double loss)> on_epoch;  // may be empty
};

struct AllReduceStats {
    uint64_t calls = 0;
    uint64_t bytes = 0;  // of the reduced vector, once per call, whatever travels on the wire
    double seconds = 0;  // inside the calls on this rank: also waiting for ranks that are still computing

    // "Algorithm bandwidth": how fast this rank gets its vectors reduced. Not wire traffic; for a ring of n
    // nodes, that is 2(n-1)/n times as much.
    double gigabytes_per_second() const {
        return seconds > 0 ? static_cast<double>(bytes) / seconds / 1e9 : 0;
    }
};

struct Trained {
    std::vector<float> parameters;
    std::vector<double> loss;  // mean over the training images, per epoch, before each update
    AllReduceStats all_reduce;
    double seconds = 0;
};

Outcome<Trained> train(const Dataset& data, Peers& peers, const TrainOptions& options);

}  // namespace digits
