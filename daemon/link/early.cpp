// See early.hpp; docs/protocol/wire.md, "What happens" and "Bounds".
#include "link/early.hpp"

#include "core/check.hpp"

namespace nexar::link {

namespace {

size_t cost(const EarlyRecv& recv) {
    size_t n = 0;
    for (const auto& [number, chunk] : recv.chunks) n += chunk.bytes.size() + Early::chunk_overhead_bytes;
    return n;
}

size_t whole_cost(const EarlyRecv& recv) {
    return cost(recv) + (recv.wanted ? Early::want_bytes : 0);
}

TransferKey first_of(const OpKey& op) {
    return {op, 0};
}

}  // namespace

bool Early::has_room(const TransferKey& key, size_t payload) const {
    if (payload > config_->eager_bytes_max) return false;
    const size_t need = payload + chunk_overhead_bytes;
    if (bytes_ + need > config_->early_bytes_max) return false;
    const auto at = groups_.find(key.op.group);
    if (at == groups_.end())
        return groups_.size() < config_->eager_groups_max && need <= config_->eager_room_per_group;
    return at->second.unexpected_bytes + need <= config_->eager_room_per_group;
}

bool Early::holds(const TransferKey& key, uint32_t chunk) const {
    const auto group = groups_.find(key.op.group);
    if (group == groups_.end()) return false;
    const auto at = group->second.recvs.find(key);
    return at != group->second.recvs.end() && at->second.chunks.contains(chunk);
}

void Early::keep(EarlyChunk chunk) {
    const TransferKey& key = chunk.header.key;
    Group* group = group_of(key);
    NEXAR_CHECK(group != nullptr);
    group->unexpected_bytes += chunk.bytes.size() + chunk_overhead_bytes;
    bytes_ += chunk.bytes.size() + chunk_overhead_bytes;
    const bool is_new = group->recvs[key].chunks.emplace(chunk.header.chunk, std::move(chunk)).second;
    NEXAR_CHECK(is_new);
}

void Early::want(const TransferKey& key) {
    Group* group = group_of(key);
    if (group == nullptr) {
        wants_forgotten_ = true;
        return;
    }
    const auto known = group->recvs.find(key);
    if (known != group->recvs.end() && known->second.wanted) return;
    const bool too_many = known == group->recvs.end() && group->recvs.size() >= config_->wanted_per_group_max;
    if (too_many || bytes_ + want_bytes > config_->early_bytes_max) {
        wants_forgotten_ = true;
        drop_if_empty(groups_.find(key.op.group));
        return;
    }
    bytes_ += want_bytes;
    group->recvs[key].wanted = true;
}

void Early::keep_grant(const TransferKey& key, const EarlyGrant& grant) {
    Group* group = group_of(key);
    // An older one may name memory that its receive has given up: it is replaced, whatever the limits are.
    const bool known = group != nullptr && group->grants.contains(key);
    const bool fits = group != nullptr && grants_ < config_->grants_unclaimed_max &&
                      group->grants.size() < config_->grants_per_group_max;
    if (!known && !fits) {
        grants_forgotten_ = true;
        if (group != nullptr) drop_if_empty(groups_.find(key.op.group));
        return;
    }
    if (group->grants.insert_or_assign(key, grant).second) ++grants_;
}

std::optional<EarlyRecv> Early::take_recv(const TransferKey& key) {
    if (groups_.empty()) return {};
    const auto group = groups_.find(key.op.group);
    if (group == groups_.end()) return {};
    const auto at = group->second.recvs.find(key);
    if (at == group->second.recvs.end()) return {};
    std::optional<EarlyRecv> out = std::move(at->second);
    group->second.unexpected_bytes -= cost(*out);
    bytes_ -= whole_cost(*out);
    group->second.recvs.erase(at);
    drop_if_empty(group);
    return out;
}

std::optional<EarlyGrant> Early::take_grant(const TransferKey& key) {
    if (groups_.empty()) return {};
    const auto group = groups_.find(key.op.group);
    if (group == groups_.end()) return {};
    const auto at = group->second.grants.find(key);
    if (at == group->second.grants.end()) return {};
    const EarlyGrant out = at->second;
    group->second.grants.erase(at);
    --grants_;
    drop_if_empty(group);
    return out;
}

size_t Early::unexpected_bytes() const {
    size_t n = 0;
    for (const auto& [id, group] : groups_) n += group.unexpected_bytes;
    return n;
}

void Early::drop_op(const OpKey& op) {
    const auto group = groups_.find(op.group);
    if (group == groups_.end()) return;
    auto& [recvs, grants, unexpected_bytes] = group->second;
    for (auto at = recvs.lower_bound(first_of(op)); at != recvs.end() && at->first.op == op;) {
        unexpected_bytes -= cost(at->second);
        bytes_ -= whole_cost(at->second);
        at = recvs.erase(at);
    }
    for (auto at = grants.lower_bound(first_of(op)); at != grants.end() && at->first.op == op;) {
        --grants_;
        at = grants.erase(at);
    }
    drop_if_empty(group);
}

void Early::drop_grants() {
    for (auto at = groups_.begin(); at != groups_.end();) {
        at->second.grants.clear();
        at = at->second.recvs.empty() ? groups_.erase(at) : std::next(at);
    }
    grants_ = 0;
    grants_forgotten_ = false;
}

void Early::clear() {
    groups_.clear();
    grants_ = 0;
    bytes_ = 0;
    wants_forgotten_ = false;
    grants_forgotten_ = false;
}

Early::Group* Early::group_of(const TransferKey& key) {
    const auto at = groups_.find(key.op.group);
    if (at != groups_.end()) return &at->second;
    if (groups_.size() >= config_->eager_groups_max) return nullptr;
    return &groups_[key.op.group];
}

void Early::drop_group_at(Groups::iterator at) {
    if (at == groups_.end()) return;
    grants_ -= at->second.grants.size();
    for (const auto& [key, recv] : at->second.recvs) bytes_ -= whole_cost(recv);
    groups_.erase(at);
}

void Early::drop_if_empty(Groups::iterator at) {
    if (at->second.recvs.empty() && at->second.grants.empty()) groups_.erase(at);
}

void Early::check_invariants() const {
    size_t all_bytes = 0, all_grants = 0;
    for (const auto& [id, group] : groups_) {
        NEXAR_CHECK(!group.recvs.empty() || !group.grants.empty());
        NEXAR_CHECK(group.grants.size() <= config_->grants_per_group_max);
        size_t unexpected = 0;
        for (const auto& [key, recv] : group.recvs) {
            NEXAR_CHECK(key.op.group == id && (recv.wanted || !recv.chunks.empty()));
            unexpected += cost(recv);
            all_bytes += whole_cost(recv);
        }
        NEXAR_CHECK(group.unexpected_bytes == unexpected && unexpected <= config_->eager_room_per_group);
        all_grants += group.grants.size();
    }
    NEXAR_CHECK(bytes_ == all_bytes && bytes_ <= config_->early_bytes_max);  // [W8]
    NEXAR_CHECK(grants_ == all_grants && grants_ <= config_->grants_unclaimed_max);
    NEXAR_CHECK(groups_.size() <= config_->eager_groups_max);
}

}  // namespace nexar::link
