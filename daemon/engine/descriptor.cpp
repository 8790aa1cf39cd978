// The words of an op's descriptor, as numbers for the wire and as text for people.
#include <bit>

#include "engine/ports.hpp"

namespace nexar::engine {
namespace {

const char* kind_text(OpKind kind) {
    switch (kind) {
        case OpKind::barrier:
            return "barrier";
        case OpKind::all_reduce:
            return "all_reduce";
        case OpKind::reduce:
            return "reduce";
        case OpKind::broadcast:
            return "broadcast";
        case OpKind::all_gather:
            return "all_gather";
        case OpKind::reduce_scatter:
            return "reduce_scatter";
        case OpKind::send:
            return "send";
        case OpKind::recv:
            return "recv";
    }
    return "unknown";
}

bool reduces(OpKind kind) {
    return kind == OpKind::all_reduce || kind == OpKind::reduce || kind == OpKind::reduce_scatter;
}
bool rooted(OpKind kind) {
    return kind == OpKind::reduce || kind == OpKind::broadcast;
}

}  // namespace

uint64_t OpDescriptor::hash() const {
    uint64_t h = 0x9e3779b97f4a7c15u;
    for (uint64_t word : {uint64_t(kind), uint64_t(dtype), uint64_t(op), count, uint64_t{root}, match_id}) {
        h ^= word;
        h *= 0xff51afd7ed558ccdu;
        h = std::rotl(h, 29) + 0x632be59bd9b4e019u;
    }
    return h;
}

std::string OpDescriptor::text() const {
    std::string out = kind_text(kind);
    if (kind != OpKind::barrier) {
        out += " " + std::string(reduce::name_of(dtype));
        if (reduces(kind)) out += " " + std::string(reduce::name_of(op));
        out += " count " + std::to_string(count);
        if (rooted(kind)) out += " root " + std::to_string(root);
    }
    if (match_id != 0) out += " match_id " + std::to_string(match_id);
    return out;
}

}  // namespace nexar::engine
