// A link's frame as a daemon of a later version may send it: with fields behind those that this version
// knows, in its header and in each entry of its list (docs/protocol/wire.md [V3]).
#pragma once

#include <cstring>
#include <vector>

#include "link/frame.hpp"

namespace nexar::test {

struct More {
    size_t in_header = 24, in_entry = 16;  // bytes, multiples of 8
};

inline std::vector<std::byte> longer(Bytes frame, More more = {}) {
    constexpr std::byte unknown{0xEE};
    std::vector<std::byte> out;
    const auto append = [&out](Bytes bytes) { out.insert(out.end(), bytes.begin(), bytes.end()); };
    const auto start = link::read_at<link::FrameStart>(frame, 0);
    const auto kind = static_cast<link::FrameKind>(start.kind);
    const size_t header = link::header_bytes_of(start);
    const bool is_list = link::header_bytes_of(kind) == sizeof(link::ListFrame) &&
                         kind >= link::FrameKind::grant && kind <= link::FrameKind::ask;
    append(frame.first(header));
    out.resize(out.size() + more.in_header, unknown);
    Bytes rest = frame.subspan(header);
    if (is_list) {
        const auto list = link::read_at<link::ListFrame>(frame, 0);
        while (!rest.empty()) {
            size_t words = 0;
            if (kind == link::FrameKind::grant) words = link::read_at<link::GrantEntry>(rest, 0).words;
            append(rest.first(list.entry_bytes));
            out.resize(out.size() + more.in_entry, unknown);
            append(rest.subspan(list.entry_bytes, words * sizeof(uint64_t)));
            rest = rest.subspan(list.entry_bytes + words * sizeof(uint64_t));
        }
        const auto entry_bytes = static_cast<uint16_t>(list.entry_bytes + more.in_entry);
        std::memcpy(out.data() + offsetof(link::ListFrame, entry_bytes), &entry_bytes, sizeof entry_bytes);
    } else {
        append(rest);
    }
    if (is_list && out.size() > link::list_bytes_max) return {frame.begin(), frame.end()};  // it would be two
    const uint64_t length = out.size() - link::length_bytes;
    std::memcpy(out.data(), &length, sizeof length);
    out[offsetof(link::FrameStart, header_words)] = static_cast<std::byte>((header + more.in_header) / 8);
    return out;
}

}  // namespace nexar::test
