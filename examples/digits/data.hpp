// The images: reading digits.bin (its layout is in DATA.md), the fixed split into training and held-out
// images, and the order in which an epoch visits them. Nothing here knows about ranks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <expected>
#include <span>
#include <string>
#include <vector>

namespace digits {

constexpr size_t pixels_per_image = 64;
constexpr size_t classes = 10;
constexpr size_t images_max = 100'000;

// A value, or a sentence saying what was wrong and what is allowed.
template <class T = void>
using Outcome = std::expected<T, std::string>;

struct Image {
    std::array<float, pixels_per_image> pixels;  // 0..1 in steps of 1/16, which f32 holds exactly
    uint8_t digit;
};

struct Dataset {
    std::vector<Image> train;
    std::vector<Image> held_out;
};

// Bytes of a data file to images; every field is checked.
Outcome<std::vector<Image>> parse_images(std::span<const std::byte> file);

Outcome<std::vector<std::byte>> read_file(const std::string& path);

// One image in five is held out. Which ones depends only on how many there are.
Dataset split(std::vector<Image> images);

Outcome<Dataset> load_dataset(const std::string& path);

// The order of `count` training images in epoch `epoch`: the same on every rank.
std::vector<uint32_t> epoch_order(size_t count, uint32_t epoch);

// The part [begin, end) of `count` things that falls to one rank: parts differ by at most one, in rank order.
struct Part {
    size_t begin, end;
};
constexpr Part part_of(size_t count, size_t rank, size_t ranks) {
    return {count * rank / ranks, count * (rank + 1) / ranks};
}

}  // namespace digits
