// GroupIndex: the engine's groups by user and by what they are called, so that a question of nexarctl looks
// at what it shows, and at nothing else ([N17] in docs/protocol/tenants.md).
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>

#include "core/ids.hpp"
#include "core/tenant.hpp"

namespace nexar::engine {

class GroupIndex {
  public:
    // The groups of one user, or of all.
    class Scope {
      public:
        size_t size() const { return ranks_.size(); }
        // By id; of one name or id, or of all if `called` is empty. f returns whether it wants more.
        template <class F>
        void each(const std::string& called, F f) const;
        size_t count(const std::string& called) const;

      private:
        friend class GroupIndex;
        std::map<GroupId, size_t> ranks_;                  // how many the user has here
        std::map<std::string, std::set<GroupId>> called_;  // by name, and by id
    };

    void add(const GroupId& id, const std::string& name) { add_to(all_, id, name); }
    void remove(const GroupId& id, const std::string& name) { remove_from(all_, id, name); }
    // A rank of this node has come to the group, or has left it.
    void add_rank(const GroupId& id, const std::string& name, const TenantName& of);
    void remove_rank(const GroupId& id, const std::string& name, const TenantName& of);

    const Scope& all() const { return all_; }
    const Scope& of(const TenantName& tenant) const;

  private:
    static void add_to(Scope& scope, const GroupId& id, const std::string& name);
    static void remove_from(Scope& scope, const GroupId& id, const std::string& name);

    Scope all_;
    const Scope none_{};
    std::map<TenantName, Scope> of_tenant_;
};

template <class F>
void GroupIndex::Scope::each(const std::string& called, F f) const {
    if (called.empty()) {
        for (const auto& [id, ranks] : ranks_)
            if (!f(id)) return;
    } else if (const auto at = called_.find(called); at != called_.end()) {
        for (const GroupId& id : at->second)
            if (!f(id)) return;
    }
}

}  // namespace nexar::engine
