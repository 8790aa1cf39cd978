// The name of a child group, for people: the parent's, the number of the collective that made it, and its
// colour. Also used by libnexar_c.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace nexar {

constexpr size_t group_name_bytes_max = 128;

namespace child_names {

// A parent's name that is too long is cut, and "~" stands for the rest.
inline std::string join(const std::string& parent, const std::string& end) {
    if (parent.size() + end.size() <= group_name_bytes_max) return parent + end;
    size_t kept = group_name_bytes_max - end.size() - 1;
    while (kept > 0 && (static_cast<unsigned char>(parent[kept]) & 0xC0) == 0x80) --kept;  // whole characters
    return parent.substr(0, kept) + "~" + end;
}

}  // namespace child_names

// "train/7.2"; of a duplicate, which has no colour, "train/7".
inline std::string child_name(const std::string& parent, uint64_t sequence, std::optional<uint32_t> colour) {
    std::string end = "/" + std::to_string(sequence);
    if (colour) end += "." + std::to_string(*colour);
    return child_names::join(parent, end);
}

// Of a group that was created from a list of ranks: "train/t5", with its tag.
inline std::string created_name(const std::string& parent, uint64_t tag) {
    return child_names::join(parent, "/t" + std::to_string(tag));
}

}  // namespace nexar
