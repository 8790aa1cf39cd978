// See group_index.hpp.
#include "engine/group_index.hpp"

namespace nexar::engine {

size_t GroupIndex::Scope::count(const std::string& called) const {
    if (called.empty()) return ranks_.size();
    const auto at = called_.find(called);
    return at == called_.end() ? 0 : at->second.size();
}

void GroupIndex::add_to(Scope& scope, const GroupId& id, const std::string& name) {
    if (++scope.ranks_[id] > 1) return;
    scope.called_[name].insert(id);
    scope.called_[id.text()].insert(id);
}

void GroupIndex::remove_from(Scope& scope, const GroupId& id, const std::string& name) {
    const auto ranks = scope.ranks_.find(id);
    if (ranks == scope.ranks_.end() || --ranks->second > 0) return;
    scope.ranks_.erase(ranks);
    for (const std::string& called : {name, id.text()}) {
        const auto at = scope.called_.find(called);
        if (at == scope.called_.end()) continue;  // its name is its id
        at->second.erase(id);
        if (at->second.empty()) scope.called_.erase(at);
    }
}

void GroupIndex::add_rank(const GroupId& id, const std::string& name, const TenantName& of) {
    add_to(of_tenant_[of], id, name);
}

void GroupIndex::remove_rank(const GroupId& id, const std::string& name, const TenantName& of) {
    const auto own = of_tenant_.find(of);
    if (own == of_tenant_.end()) return;
    remove_from(own->second, id, name);
    if (own->second.size() == 0) of_tenant_.erase(own);
}

const GroupIndex::Scope& GroupIndex::of(const TenantName& tenant) const {
    const auto at = of_tenant_.find(tenant);
    return at == of_tenant_.end() ? none_ : at->second;
}

}  // namespace nexar::engine
