// See op_index.hpp.
#include "link/op_index.hpp"

namespace nexar::link {

OpRecord& OpIndex::record_of(const OpKey& op) {
    if (OpRecord** at = ops_.find(op)) return **at;
    OpRecord& record = records_.take();
    record.key = op;
    ops_.insert(op, &record);
    return record;
}

OpRecord* OpIndex::find(const OpKey& op) {
    OpRecord** at = ops_.find(op);
    return at != nullptr ? *at : nullptr;
}

void OpIndex::release_if_empty(OpRecord& op) {
    if (!op.sends.empty() || !op.recvs.empty()) return;
    ops_.erase(op.key);
    records_.release(op);
}

bool OpIndex::is_gone(const OpKey& op) const {
    if (!forgotten_.empty() && forgotten_.contains(op.group)) return true;
    if (withdrawn_.empty()) return false;
    const auto at = withdrawn_.find(op.group);
    return at != withdrawn_.end() && at->second.ops.contains(op);
}

void OpIndex::remember_withdrawn(const OpKey& op) {
    Withdrawn& w = withdrawn_[op.group];
    if (!w.ops.insert(op).second) return;
    w.order.push_back(op);
    if (w.order.size() <= withdrawn_per_group_max) return;
    w.ops.erase(w.order.front());
    w.order.pop_front();
}

void OpIndex::remember_forgotten(const GroupId& group) {
    withdrawn_.erase(group);
    if (!forgotten_.insert(group).second) return;
    forgotten_order_.push_back(group);
    if (forgotten_order_.size() <= groups_forgotten_max) return;
    forgotten_.erase(forgotten_order_.front());
    forgotten_order_.pop_front();
}

}  // namespace nexar::link
