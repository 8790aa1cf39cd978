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

Result<void> Making::make(OpKind kind, std::span<const ChildRow> rows, const std::vector<Post>& posts) {
    const auto children = children_of(parent_.facts, kind, rows);
    failed_everywhere_ = !children;
    Result<void> result;
    if (!children) result = fail(children.error());
    for (size_t i = 0; result && i < children->size(); ++i) result = make_one((*children)[i], posts);
    if (!result) failure_ = result.error();
    return result;
}

Result<void> Making::make_one(const Child& child, const std::vector<Post>& posts) {
    std::vector<LocalRank> local;
    for (uint32_t rank = 0; rank < child.ranks.size(); ++rank) {
        const auto post = std::ranges::find(posts, child.ranks[rank], &Post::rank);
        if (post == posts.end()) continue;  // of another node
        local.push_back({rank, post->session, 0, false, {}, post->child->charge});
    }
    if (local.empty()) return {};
    GroupFacts facts = facts_of(parent_.facts, parent_.context().config.proof, seq_, child);
    NEXAR_TRY(GroupInfo info, parent_.host().make_child(std::move(facts), std::move(local)));
    made_.push_back({child, std::move(info)});
    return {};
}

std::shared_ptr<const GroupInfo> Making::child_of(uint32_t parent_rank) const {
    for (const Made& made : made_) {
        const auto at = std::ranges::find(made.child.ranks, parent_rank);
        if (at == made.child.ranks.end()) continue;
        auto out = std::make_shared<GroupInfo>(made.info);
        out->rank = Rank(static_cast<uint32_t>(at - made.child.ranks.begin()));
        return out;
    }
    return nullptr;
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
