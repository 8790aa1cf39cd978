// Rank 0's report at the end, and whether every check passed.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "data.hpp"
#include "train.hpp"

namespace digits {

constexpr double accuracy_wanted = 0.95;

// Ranks and a single process add the same gradients in a different order, so they differ in rounding: 2^-24
// relative per addition, grown by 375 steps of a smooth map. Measured over 4 seeds, 4 rates and 2 to 12
// ranks: at most 8e-6. A wrong batch, a lost part or a part added twice is off by more than 1e-3.
constexpr double reference_tolerance = 1e-4;

struct Report {
    uint32_t ranks = 1;
    size_t train_images = 0, held_out_images = 0;
    const Trained* trained = nullptr;
    double accuracy = 0;
    std::vector<uint64_t> hashes;                // of the parameters, of every rank
    std::optional<double> reference_difference;  // largest |a - b|, if the reference was run

    bool accurate() const { return accuracy >= accuracy_wanted; }
    bool identical() const;
    bool near_reference() const {
        return !reference_difference || *reference_difference <= reference_tolerance;
    }
    bool passed() const { return accurate() && identical() && near_reference(); }
};

void print_text(const Report& report);
void print_json(const Report& report);

}  // namespace digits
