// See making.hpp.
#include "engine/making.hpp"

#include <algorithm>

#include "engine/group.hpp"

namespace nexar::engine {

Making::Making(Group& parent, uint64_t seq)
    : parent_(parent), seq_(seq), family_(family_of(parent.facts, parent.context().config.proof, seq)) {
    parent_.host().children_coming(family_, parent_.facts.id);
}

void Making::end() {
    parent_.host().children_done(family_);
}

Result<void> Making::begin(OpKind kind, std::span<const ChildRow> rows) {
    auto children = children_of(parent_.facts, kind, rows);
    failed_everywhere_ = !children;
    if (!children) {
        failure_ = children.error();
        return fail(*failure_);
    }
    children_ = std::move(*children);
    return {};
}

Result<bool> Making::make_some(const Vector<Post>& posts) {
    size_t made = 0, here = 0, seen = 0;
    while (made < children_at_once_max && here < ranks_at_once_max && seen < ranks_seen_max &&
           next_ < children_.size()) {
        Child& child = children_[next_++];
        seen += child.ranks.size();
        const auto ranks = make_one(std::move(child), posts);
        if (!ranks) {
            failure_ = ranks.error();
            return fail(*failure_);
        }
        made += *ranks > 0;
        here += *ranks;
    }
    return next_ == children_.size();
}

// Requires: the posts are in rank order.
Result<size_t> Making::make_one(Child child, const Vector<Post>& posts) {
    std::vector<LocalRank> local;
    std::vector<uint32_t> ranks;  // of the parent
    for (uint32_t rank = 0; rank < child.ranks.size(); ++rank) {
        const auto post = std::ranges::lower_bound(posts, child.ranks[rank], {}, &Post::rank);
        if (post == posts.end() || post->rank != child.ranks[rank]) continue;  // of another node
        local.push_back({rank, post->session, 0, false, {}, post->child->charge});
        ranks.push_back(post->rank);
    }
    if (local.empty()) return 0;
    for (size_t i = 0; i < local.size(); ++i) places_[ranks[i]] = {made_.size(), local[i].rank};
    GroupFacts facts = facts_of(parent_.facts, parent_.context().config.proof, seq_, child);
    NEXAR_TRY(GroupInfo info, parent_.host().make_child(std::move(facts), std::move(local)));
    made_.push_back({std::move(child), std::move(info)});
    return ranks.size();
}

std::shared_ptr<const GroupInfo> Making::child_of(uint32_t parent_rank) const {
    const auto place = places_.find(parent_rank);
    if (place == places_.end()) return nullptr;
    auto out = std::make_shared<GroupInfo>(made_[place->second.made].info);
    out->rank = Rank(place->second.rank);
    return out;
}

void Making::give_up(const Error& error) {
    for (const Made& made : made_) parent_.host().give_up_child(made.info.id, translated(error, made.child));
    made_.clear();
}

// Ranks of the parent as those of the child; -1: it is not in it. What ended the collective alone (a cancel,
// a deadline) ends the child as the loss of its members here.
Error Making::translated(const Error& error, const Child& child) {
    Error out = error;
    const auto in_child = [&](int64_t rank) -> int64_t {
        const auto at = std::ranges::find(child.ranks, rank);
        return at == child.ranks.end() ? -1 : at - child.ranks.begin();
    };
    out.rank = in_child(error.rank);
    out.other_rank = in_child(error.other_rank);
    out.lost_ranks.clear();
    for (const uint32_t rank : error.lost_ranks)
        if (in_child(rank) >= 0) out.lost_ranks.push_back(static_cast<uint32_t>(in_child(rank)));
    std::ranges::sort(out.lost_ranks);
    if (out.code > Errc::group || out.code <= Errc::session) out.code = Errc::peer_lost;
    out.text = "the collective that made the group failed: " + error.text;
    return out;
}

}  // namespace nexar::engine
