// What the training needs from the other ranks. nexar_peers.hpp is the real thing, over include/nexar.h;
// Alone is the single process that the reference run uses.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "data.hpp"

namespace digits {

class Peers {
  public:
    virtual ~Peers() = default;

    virtual uint32_t rank() const = 0;
    virtual uint32_t ranks() const = 0;

    // Memory that all_reduce_sum works on in place; zeroed, and valid as long as the peers.
    virtual Outcome<std::span<float>> allocate(size_t count) = 0;

    // Each replaces or returns the same on every rank, or fails on every rank and names the lost rank.
    virtual Outcome<> all_reduce_sum(std::span<float> values) = 0;
    virtual Outcome<> broadcast_from_first(std::span<float> values) = 0;
    virtual Outcome<std::vector<uint64_t>> all_gather(uint64_t mine) = 0;
};

class Alone : public Peers {
  public:
    uint32_t rank() const override { return 0; }
    uint32_t ranks() const override { return 1; }
    Outcome<std::span<float>> allocate(size_t count) override { return memory_.emplace_back(count); }
    Outcome<> all_reduce_sum(std::span<float>) override { return {}; }
    Outcome<> broadcast_from_first(std::span<float>) override { return {}; }
    Outcome<std::vector<uint64_t>> all_gather(uint64_t mine) override { return std::vector{mine}; }

  private:
    std::deque<std::vector<float>> memory_;
};

}  // namespace digits
