#include "core/ids.hpp"

#include <string_view>

namespace nexar {
namespace {

std::string to_hex(const uint8_t* data, size_t n) {
    static constexpr char digits[] = "0123456789abcdef";
    std::string out;
    out.reserve(2 * n);
    for (size_t i = 0; i < n; ++i) {
        out += digits[data[i] >> 4];
        out += digits[data[i] & 15];
    }
    return out;
}

int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

}  // namespace

std::string NodeId::hex() const {
    return to_hex(bytes.data(), bytes.size());
}
std::string NodeId::short_hex() const {
    return to_hex(bytes.data(), 6);
}

bool NodeId::parse_hex(std::string_view text, NodeId& out) {
    if (text.size() != 64) return false;
    NodeId id;
    for (size_t i = 0; i < 32; ++i) {
        const int high = hex_digit(text[2 * i]);
        const int low = hex_digit(text[2 * i + 1]);
        if (high < 0 || low < 0) return false;
        id.bytes[i] = static_cast<uint8_t>(high * 16 + low);
    }
    out = id;
    return true;
}

std::string GroupId::text() const {
    return to_hex(reinterpret_cast<const uint8_t*>(&creator), 4) + "-" + std::to_string(counter);
}

}  // namespace nexar
