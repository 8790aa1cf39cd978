// Reading, splitting and ordering the images.
#include "data.hpp"

#include <cstring>
#include <fstream>
#include <iterator>
#include <numeric>

#include "random.hpp"

namespace digits {
namespace {

constexpr char magic[] = "NXDIGIT1";
constexpr size_t header_bytes = 16;
constexpr size_t checksum_bytes = 8;
constexpr uint8_t pixel_max = 16;
constexpr uint64_t split_seed = 1;
constexpr uint64_t epoch_seed = 1000;

uint64_t little_endian(std::span<const std::byte> bytes) {
    uint64_t value = 0;
    for (size_t i = bytes.size(); i > 0; --i) value = value << 8 | static_cast<uint64_t>(bytes[i - 1]);
    return value;
}

std::unexpected<std::string> bad(std::string text) {
    return std::unexpected("data file: " + std::move(text));
}

}  // namespace

Outcome<std::vector<Image>> parse_images(std::span<const std::byte> file) {
    if (file.size() < header_bytes + checksum_bytes || std::memcmp(file.data(), magic, 8) != 0)
        return bad("does not begin with NXDIGIT1");
    const size_t count = little_endian(file.subspan(8, 4));
    const size_t pixels = little_endian(file.subspan(12, 4));
    if (pixels != pixels_per_image)
        return bad(std::to_string(pixels) + " pixels per image; only 64 is allowed");
    if (count == 0 || count > images_max)
        return bad(std::to_string(count) + " images; 1 to " + std::to_string(images_max) + " are allowed");
    const size_t want = header_bytes + count * (pixels + 1) + checksum_bytes;
    if (file.size() != want)
        return bad(std::to_string(file.size()) + " bytes long; " + std::to_string(count) + " images need " +
                   std::to_string(want));
    if (fnv1a(file.first(want - checksum_bytes)) != little_endian(file.last(checksum_bytes)))
        return bad("its checksum does not match its content");

    std::vector<Image> images(count);
    for (size_t i = 0; i < count; ++i) {
        for (size_t p = 0; p < pixels; ++p) {
            const auto value = static_cast<uint8_t>(file[header_bytes + i * pixels + p]);
            if (value > pixel_max) return bad("image " + std::to_string(i) + " has a pixel above 16");
            images[i].pixels[p] = static_cast<float>(value) / float{pixel_max};
        }
        images[i].digit = static_cast<uint8_t>(file[header_bytes + count * pixels + i]);
        if (images[i].digit >= classes) return bad("image " + std::to_string(i) + " has a digit above 9");
    }
    return images;
}

Outcome<std::vector<std::byte>> read_file(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    if (!in) return std::unexpected(path + ": cannot be opened: " + std::strerror(errno));
    std::vector<std::byte> bytes(header_bytes + images_max * (pixels_per_image + 1) + checksum_bytes + 1);
    in.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    bytes.resize(static_cast<size_t>(in.gcount()));
    return bytes;
}

Dataset split(std::vector<Image> images) {
    std::vector<uint32_t> order(images.size());
    std::iota(order.begin(), order.end(), 0u);
    Random random(split_seed);
    shuffle(std::span(order), random);

    Dataset result;
    const size_t held_out = (images.size() + 4) / 5;
    for (size_t i = 0; i < order.size(); ++i)
        (i < held_out ? result.held_out : result.train).push_back(images[order[i]]);
    return result;
}

Outcome<Dataset> load_dataset(const std::string& path) {
    auto file = read_file(path);
    if (!file) return std::unexpected(file.error());
    auto images = parse_images(*file);
    if (!images) return std::unexpected(path + ": " + images.error());
    return split(std::move(*images));
}

std::vector<uint32_t> epoch_order(size_t count, uint32_t epoch) {
    std::vector<uint32_t> order(count);
    std::iota(order.begin(), order.end(), 0u);
    Random random(epoch_seed + epoch);
    shuffle(std::span(order), random);
    return order;
}

}  // namespace digits
