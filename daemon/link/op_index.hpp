// The transfers of each op; which ops were withdrawn and which groups forgotten, so that late chunks of them
// are dropped.
#pragma once

#include <deque>
#include <set>
#include <unordered_map>

#include "link/rows.hpp"

namespace nexar::link {

class OpIndex {
  public:
    static constexpr size_t withdrawn_per_group_max = 4096;
    static constexpr size_t groups_forgotten_max = 4096;

    OpRecord& record_of(const OpKey& op);  // a new one if there is none
    OpRecord* find(const OpKey& op);
    void release_if_empty(OpRecord& op);
    size_t size() const { return ops_.size(); }

    bool is_gone(const OpKey& op) const;  // withdrawn, or its group was forgotten
    void remember_withdrawn(const OpKey& op);
    void remember_forgotten(const GroupId& group);

  private:
    struct Withdrawn {
        std::set<OpKey> ops;
        std::deque<OpKey> order;
    };
    Slab<OpRecord> records_;
    FlatMap<OpKey, OpRecord*, OpKeyHash> ops_;          // ops with a transfer
    std::unordered_map<GroupId, Withdrawn> withdrawn_;  // of groups that are not forgotten
    std::set<GroupId> forgotten_;
    std::deque<GroupId> forgotten_order_;  // oldest first
};

}  // namespace nexar::link
