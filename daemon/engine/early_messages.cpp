#include "engine/early_messages.hpp"

#include <algorithm>
#include <iterator>
#include <limits>

namespace nexar::engine {

bool EarlyMessages::keep(PeerIndex from, const GroupId& group, const wire::Message& message, size_t bytes) {
    bytes += overhead_bytes;
    if (bytes_of(from) + bytes > peer_bytes_max_) return false;
    Sender& sender = senders_[from];
    sender.bytes += bytes;
    sender.groups.insert(group);
    rows_[{group, from}].push_back({from, group, message, bytes, ++last_});
    ++size_;
    return true;
}

std::vector<EarlyMessages::Kept> EarlyMessages::take(const GroupId& group) {
    return take_between(group, group);
}

std::vector<EarlyMessages::Kept> EarlyMessages::take(const Family& family) {
    return take_between({family.creator, family.incarnation, 0},
                        {family.creator, family.incarnation, std::numeric_limits<uint64_t>::max()});
}

// Of all senders.
std::vector<EarlyMessages::Kept> EarlyMessages::take_between(const GroupId& first, const GroupId& last) {
    std::vector<Kept> out;
    for (auto row = rows_.lower_bound({first, PeerIndex(0)}); row != rows_.end() && row->first.first <= last;
         row = rows_.erase(row)) {
        forget(*row);
        std::ranges::move(row->second, std::back_inserter(out));
    }
    std::ranges::sort(out, {}, &Kept::number);
    return out;
}

void EarlyMessages::drop_if(PeerIndex from, const std::function<bool(const GroupId&)>& predicate) {
    const auto sender = senders_.find(from);
    if (sender == senders_.end()) return;
    for (const GroupId& group : std::set(sender->second.groups)) {
        if (!predicate(group)) continue;
        const auto row = rows_.find({group, from});
        forget(*row);
        rows_.erase(row);
    }
}

void EarlyMessages::forget(const Rows::value_type& row) {
    const auto& [key, kept] = row;
    const auto sender = senders_.find(key.second);
    sender->second.groups.erase(key.first);
    for (const Kept& each : kept) sender->second.bytes -= each.bytes;
    if (sender->second.groups.empty()) senders_.erase(sender);
    size_ -= kept.size();
    looked_at_ += kept.size();
}

size_t EarlyMessages::bytes_of(PeerIndex peer) const {
    const auto at = senders_.find(peer);
    return at == senders_.end() ? 0 : at->second.bytes;
}

}  // namespace nexar::engine
