// Characters that do something to a terminal, or to the order in which a line is read: what others have
// written (a peer's reason, a name) must not have them where people read it.
// Source: Unicode 15.1, "Control Codes" (C0, C1), UAX #9 (what changes the direction), and U+2028, U+2029.
//
// Thread: any.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace nexar {

// The bytes of the one that UTF-8 text begins with; 0: it begins with none.
constexpr size_t control_at(std::string_view text) {
    const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
    const auto is = [&](size_t i, unsigned from, unsigned to) { return byte(i) >= from && byte(i) <= to; };
    if (text.empty()) return 0;
    if (byte(0) < 0x20 || byte(0) == 0x7f) return 1;
    if (byte(0) == 0xc2 && is(1, 0x80, 0x9f)) return 2;
    if (byte(0) == 0xd8 && byte(1) == 0x9c) return 2;  // U+061C
    if (byte(0) != 0xe2) return 0;
    if (byte(1) == 0x80 && (is(2, 0x8e, 0x8f) || is(2, 0xa8, 0xae))) return 3;
    return byte(1) == 0x81 && is(2, 0xa6, 0xa9) ? 3 : 0;
}

// Each is one `instead`.
inline std::string without_controls(std::string text, char instead) {
    for (size_t i = 0; i < text.size(); ++i)
        if (const size_t bytes = control_at(std::string_view(text).substr(i)); bytes > 0)
            text.replace(i, bytes, 1, instead);
    return text;
}

}  // namespace nexar
