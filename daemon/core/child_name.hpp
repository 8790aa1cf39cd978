// The name of a child group, for people: the parent's, the number of the collective that made it, and its
// colour. Also used by libnexar_c.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace nexar {

constexpr size_t group_name_bytes_max = 128;

// "train/7.2"; of a duplicate, which has no colour, "train/7". A parent's name that is too long for that is
// cut, and "~" stands for the rest.
inline std::string child_name(const std::string& parent, uint64_t sequence, std::optional<uint32_t> colour) {
    std::string end = "/" + std::to_string(sequence);
    if (colour) end += "." + std::to_string(*colour);
    if (parent.size() + end.size() <= group_name_bytes_max) return parent + end;
    size_t kept = group_name_bytes_max - end.size() - 1;
    while (kept > 0 && (static_cast<unsigned char>(parent[kept]) & 0xC0) == 0x80) --kept;  // whole characters
    return parent.substr(0, kept) + "~" + end;
}

}  // namespace nexar
