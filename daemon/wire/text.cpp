// UTF-8 checks, RFC 3629 section 4. See text.hpp.
#include "wire/text.hpp"

#include <cstdint>

namespace nexar::wire {
namespace {

uint8_t byte_at(std::string_view text, size_t i) {
    return i < text.size() ? static_cast<uint8_t>(text[i]) : 0;
}
bool continues(uint8_t byte) {
    return (byte & 0xC0) == 0x80;
}

// Bytes of the clean character at the front; 0 if there is none.
size_t clean_character(std::string_view text) {
    const uint8_t a = byte_at(text, 0), b = byte_at(text, 1), c = byte_at(text, 2), d = byte_at(text, 3);
    if (a >= 0x20 && a < 0x7F) return 1;
    if (a >= 0xC2 && a <= 0xDF && continues(b)) return a == 0xC2 && b < 0xA0 ? 0 : 2;  // C1 controls
    if (a >= 0xE0 && a <= 0xEF && continues(b) && continues(c)) {
        if (a == 0xE0 && b < 0xA0) return 0;   // overlong
        if (a == 0xED && b >= 0xA0) return 0;  // surrogates
        return 3;
    }
    if (a >= 0xF0 && a <= 0xF4 && continues(b) && continues(c) && continues(d)) {
        if (a == 0xF0 && b < 0x90) return 0;   // overlong
        if (a == 0xF4 && b >= 0x90) return 0;  // beyond U+10FFFF
        return 4;
    }
    return 0;
}

}  // namespace

bool is_clean_text(std::string_view text) {
    while (!text.empty()) {
        const size_t n = clean_character(text);
        if (n == 0) return false;
        text.remove_prefix(n);
    }
    return true;
}

std::string clean_text(std::string_view text, size_t bytes_max) {
    std::string out;
    while (!text.empty()) {
        const size_t n = clean_character(text);
        if (out.size() + (n == 0 ? 1 : n) > bytes_max) break;
        if (n == 0)
            out += '?';
        else
            out += text.substr(0, n);
        text.remove_prefix(n == 0 ? 1 : n);
    }
    return out;
}

}  // namespace nexar::wire
