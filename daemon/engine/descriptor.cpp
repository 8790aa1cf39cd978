// OpDescriptor: its fields as numbers for the wire, and as text for errors and nexarctl.
#include <bit>

#include "engine/ports.hpp"

namespace nexar::engine {

uint64_t OpDescriptor::hash() const {
    uint64_t h = 0x9e3779b97f4a7c15u;
    const auto add = [&h](uint64_t word) {
        h ^= word;
        h *= 0xff51afd7ed558ccdu;
        h = std::rotl(h, 29) + 0x632be59bd9b4e019u;
    };
    for (uint64_t word : {uint64_t(kind), uint64_t(dtype), uint64_t(op), count, uint64_t{root}, match_id})
        add(word);
    if (counts != 0)
        add(counts);  // so that daemons without such operations have the same hash for all others
    if (partials != Partials::native) add(uint64_t(partials));
    return h;
}

std::string OpDescriptor::text() const {
    std::string out = name_of(kind);
    const OpRow* row = find_operation(uint64_t(kind));
    if (row == nullptr || row->has_elements) {
        out += " " + std::string(reduce::name_of(dtype));
        if (row != nullptr && row->reduces) out += " " + std::string(reduce::name_of(op));
        if (row == nullptr || !has_own_counts(*row)) out += " count " + std::to_string(count);
        if (row != nullptr && row->rooted) out += " root " + std::to_string(root);
    }
    if (counts != 0) out += " in counts of digest " + std::to_string(counts);
    if (partials != Partials::native) out += std::string(", ") + text_of(partials);
    if (match_id != 0) out += " match_id " + std::to_string(match_id);
    return out;
}

}  // namespace nexar::engine
