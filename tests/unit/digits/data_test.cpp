// The data file: what is in it, what is refused, and how it is divided.
#include "data.hpp"

#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "golden_bits.hpp"
#include "random.hpp"

using namespace digits;

namespace {

std::vector<std::byte> the_file() {
    auto file = read_file(DIGITS_BIN);
    REQUIRE(file);
    return std::move(*file);
}

// Makes a changed file pass the checksum, so that the check behind it is reached.
void seal(std::vector<std::byte>& file) {
    const uint64_t hash = fnv1a(std::span(file).first(file.size() - 8));
    for (size_t i = 0; i < 8; ++i) file[file.size() - 8 + i] = static_cast<std::byte>(hash >> (8 * i));
}

std::string refusal(const std::vector<std::byte>& file) {
    auto images = parse_images(file);
    REQUIRE_FALSE(images);
    return images.error();
}

}  // namespace

TEST_CASE("the data file is the one that DATA.md describes", "[digits]") {
    const auto file = the_file();
    REQUIRE(file.size() == 116'829);
    REQUIRE(fnv1a(std::span(file).first(file.size() - 8)) == 0xd3ae3a78c8c1ad47u);

    const auto images = parse_images(file);
    REQUIRE(images);
    REQUIRE(images->size() == 1797);
    std::array<int, 10> of_digit{};
    for (const Image& image : *images) ++of_digit[image.digit];
    REQUIRE(of_digit ==
            std::array<int, 10>{178, 182, 177, 183, 181, 182, 181, 179, 174, 180});  // as UCI states
}

TEST_CASE("a damaged data file is refused with the reason", "[digits]") {
    auto file = the_file();
    const auto damaged = [&](size_t at, uint8_t value, bool sealed) {
        auto copy = file;
        copy[at] = std::byte{value};
        if (sealed) seal(copy);
        return refusal(copy);
    };

    REQUIRE(damaged(0, 'X', true) == "data file: does not begin with NXDIGIT1");
    REQUIRE(damaged(12, 65, true) == "data file: 65 pixels per image; only 64 is allowed");
    REQUIRE(damaged(8, 6, true) == "data file: 116829 bytes long; 1798 images need 116894");
    REQUIRE(damaged(11, 255, true).starts_with("data file: 4278191877 images; 1 to 100000"));
    REQUIRE(damaged(5000, 16, false) == "data file: its checksum does not match its content");
    REQUIRE(damaged(16 + 64 * 3, 17, true) == "data file: image 3 has a pixel above 16");
    REQUIRE(damaged(16 + 64 * 1797 + 4, 10, true) == "data file: image 4 has a digit above 9");
    for (size_t length : {size_t{0}, size_t{7}, size_t{23}, size_t{24}, file.size() - 1}) {
        CAPTURE(length);
        REQUIRE_FALSE(parse_images(std::span(file).first(length)));
    }
}

TEST_CASE("a missing data file is named", "[digits]") {
    auto data = load_dataset("/nowhere/digits.bin");
    REQUIRE_FALSE(data);
    REQUIRE(data.error().starts_with("/nowhere/digits.bin: cannot be opened"));
}

TEST_CASE("the split is fixed: 1437 to train on, 360 held out, none lost", "[digits]") {
    auto images = parse_images(the_file());
    REQUIRE(images);
    const Dataset data = split(*images);
    REQUIRE(data.train.size() == 1437);
    REQUIRE(data.held_out.size() == 360);

    std::vector<float> pixels;
    for (const Image& image : data.train)
        pixels.insert(pixels.end(), image.pixels.begin(), image.pixels.end());
    REQUIRE(fnv1a(std::as_bytes(std::span(pixels))) == golden::train_images_hash);
    std::vector<uint8_t> held_out;
    for (const Image& image : data.held_out) held_out.push_back(image.digit);
    REQUIRE(fnv1a(std::as_bytes(std::span(held_out))) == golden::held_out_digits_hash);
}

TEST_CASE("an epoch visits every image once, in an order of its own", "[digits]") {
    const auto order = epoch_order(1437, 3);
    REQUIRE(fnv1a(std::as_bytes(std::span(order))) == golden::epoch_order_hash);
    REQUIRE(std::set(order.begin(), order.end()).size() == 1437);
    REQUIRE(*std::ranges::max_element(order) == 1436);
    REQUIRE(order != epoch_order(1437, 4));
}

TEST_CASE("the parts of a batch meet end to end and differ by at most one", "[digits]") {
    for (size_t count : {0u, 1u, 93u, 96u})
        for (size_t ranks = 1; ranks <= 100; ++ranks) {
            CAPTURE(count, ranks);
            size_t next = 0;
            for (size_t rank = 0; rank < ranks; ++rank) {
                const Part part = part_of(count, rank, ranks);
                REQUIRE(part.begin == next);
                next = part.end;
                REQUIRE(part.end - part.begin >= count / ranks);
                REQUIRE(part.end - part.begin <= count / ranks + 1);
            }
            REQUIRE(next == count);
        }
}
