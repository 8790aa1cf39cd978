#include "engine/early_messages.hpp"

namespace nexar::engine {

bool EarlyMessages::keep(PeerIndex from, const GroupId& group, const wire::Message& message, size_t bytes) {
    bytes += overhead_bytes;
    if (bytes_of(from) + bytes > peer_bytes_max_) return false;
    bytes_[from] += bytes;
    kept_.push_back({from, group, message, bytes});
    return true;
}

std::vector<EarlyMessages::Kept> EarlyMessages::take(const GroupId& group) {
    return take_if([&](const GroupId& other) { return other == group; });
}

std::vector<EarlyMessages::Kept> EarlyMessages::take_if(
    const std::function<bool(const GroupId&)>& predicate) {
    std::vector<Kept> out;
    drop_if([&](const Kept& kept) {
        if (!predicate(kept.group)) return false;
        out.push_back(kept);
        return true;
    });
    return out;
}

void EarlyMessages::drop_if(const std::function<bool(const Kept&)>& predicate) {
    std::erase_if(kept_, [&](const Kept& kept) {
        if (!predicate(kept)) return false;
        const auto used = bytes_.find(kept.from);
        used->second -= kept.bytes;
        if (used->second == 0) bytes_.erase(used);
        return true;
    });
}

size_t EarlyMessages::bytes_of(PeerIndex peer) const {
    const auto at = bytes_.find(peer);
    return at == bytes_.end() ? 0 : at->second;
}

}  // namespace nexar::engine
