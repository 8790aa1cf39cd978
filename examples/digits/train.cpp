// The training loop.
#include "train.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string>

namespace digits {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

// What is reduced per batch: the gradient, and behind it two numbers that ride along for nothing: the loss,
// and how many images were counted, which shows that no rank's part is missing or counted twice.
constexpr size_t loss_at = parameter_count;
constexpr size_t images_at = parameter_count + 1;
constexpr size_t reduced_count = parameter_count + 2;

class Trainer {
  public:
    Trainer(const Dataset& data, Peers& peers, const TrainOptions& options)
        : data_(&data), peers_(&peers), options_(&options), velocity_(parameter_count, 0.0f) {}

    Outcome<> prepare() {
        auto parameters = peers_->allocate(parameter_count);
        if (!parameters) return std::unexpected(parameters.error());
        auto sums = peers_->allocate(reduced_count);
        if (!sums) return std::unexpected(sums.error());
        parameters_ = *parameters;
        sums_ = *sums;
        if (peers_->rank() == 0) std::ranges::copy(initial_parameters(options_->seed), parameters_.begin());
        return peers_->broadcast_from_first(parameters_);
    }

    // The mean loss of the epoch.
    Outcome<double> epoch(uint32_t number) {
        const auto order = epoch_order(data_->train.size(), number);
        double loss = 0;
        for (size_t at = 0; at < order.size(); at += options_->batch) {
            const size_t count = std::min<size_t>(options_->batch, order.size() - at);
            if (auto done = step(std::span(order).subspan(at, count)); !done)
                return std::unexpected(done.error());
            loss += double{sums_[loss_at]};
        }
        return loss / static_cast<double>(order.size());
    }

    Trained finish(std::vector<double> loss) && {
        return {{parameters_.begin(), parameters_.end()}, std::move(loss), stats_, 0};
    }

  private:
    Outcome<> step(std::span<const uint32_t> batch) {
        std::ranges::fill(sums_, 0.0f);
        const Part mine = part_of(batch.size(), peers_->rank(), peers_->ranks());
        for (uint32_t index : batch.subspan(mine.begin, mine.end - mine.begin))
            sums_[loss_at] += accumulate_gradient<float>(parameters_, data_->train[index], sums_);
        sums_[images_at] = static_cast<float>(mine.end - mine.begin);

        if (auto done = reduce(); !done) return done;

        const auto images = static_cast<float>(batch.size());  // small integers: exact in f32
        if (sums_[images_at] != images)
            return std::unexpected("all_reduce counted " + std::to_string(std::lround(sums_[images_at])) +
                                   " images in a batch of " + std::to_string(batch.size()));
        update(parameters_, velocity_, sums_.first(parameter_count), images, options_->learning);
        return {};
    }

    Outcome<> reduce() {
        const auto start = Clock::now();
        auto done = peers_->all_reduce_sum(sums_);
        stats_.seconds += seconds_since(start);
        stats_.calls += 1;
        stats_.bytes += sums_.size_bytes();
        return done;
    }

    const Dataset* data_;
    Peers* peers_;
    const TrainOptions* options_;
    std::span<float> parameters_, sums_;
    std::vector<float> velocity_;
    AllReduceStats stats_;
};

}  // namespace

Outcome<Trained> train(const Dataset& data, Peers& peers, const TrainOptions& options) {
    const auto start = Clock::now();
    Trainer trainer(data, peers, options);
    if (auto ready = trainer.prepare(); !ready) return std::unexpected(ready.error());

    std::vector<double> loss;
    for (uint32_t epoch = 0; epoch < options.epochs; ++epoch) {
        auto mean = trainer.epoch(epoch);
        if (!mean) return std::unexpected("epoch " + std::to_string(epoch + 1) + ": " + mean.error());
        loss.push_back(*mean);
        if (options.on_epoch) options.on_epoch(epoch + 1, *mean);
    }
    Trained result = std::move(trainer).finish(std::move(loss));
    result.seconds = seconds_since(start);
    return result;
}

}  // namespace digits
