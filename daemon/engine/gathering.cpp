#include "engine/gathering.hpp"

#include <algorithm>

#include "core/check.hpp"
#include "engine/timers.hpp"

namespace nexar::engine {

using collectives::NodeIndex;

namespace {

// The numbers may be unknown ones: names and texts exist for all, and such an operation is not executed.
OpDescriptor descriptor_of(const wire::OpAnnounce& a) {
    return {OpKind(a.kind), Dtype(a.dtype), ReduceOp(a.op),  a.count,
            a.root,         a.match_id,     a.counts_digest, Partials(a.partials)};
}

bool is_known(const OpDescriptor& d) {
    return is_collective(uint64_t(d.kind)) && reduce::dtype_from(int(d.dtype)) &&
           reduce::reduce_op_from(int(d.op)) && uint8_t(d.partials) < partials_count;
}

// What of it is not known, and what is.
std::string unknown_parts(const wire::OpAnnounce& a) {
    std::string out;
    const auto look = [&](bool known, const char* what, unsigned number, uint64_t count) {
        if (!known)
            out += std::string(out.empty() ? "" : ", ") + what + " " + std::to_string(number) +
                   " (it knows 0 to " + std::to_string(count - 1) + ")";
    };
    if (find_operation(a.kind) != nullptr && !is_collective(a.kind))
        out = "kind " + std::to_string(a.kind) + " as a collective";
    look(find_operation(a.kind) != nullptr, "kind", a.kind, operation_count);
    look(reduce::dtype_from(a.dtype).has_value(), "type", a.dtype, type_count);
    look(reduce::reduce_op_from(a.op).has_value(), "operator", a.op, reduction_count);
    look(a.partials < partials_count, "partials", a.partials, partials_count);
    return out;
}

Error unknown_operation(const GroupFacts& facts, const wire::OpAnnounce& a) {
    return {Errc::mismatch,
            "collective " + std::to_string(a.seq) + ": " + facts.describe(a.first_rank) + " called " +
                descriptor_of(a).text() + ", of which this daemon does not know " + unknown_parts(a),
            a.first_rank, -1, facts.members[a.first_rank].node.hex()};
}

// Where two lists differ; of a list of another node only the sum is known (which is the operation's count).
std::string counts_differ(uint32_t rank_a, const OpDescriptor& a, const Counts* list_a, uint32_t rank_b,
                          const OpDescriptor& b, const Counts* list_b) {
    const auto both = [&](uint64_t of_a, uint64_t of_b) {
        return std::to_string(of_a) + " of rank " + std::to_string(rank_a) + ", " + std::to_string(of_b) +
               " of rank " + std::to_string(rank_b) + ")";
    };
    if (list_a != nullptr && list_b != nullptr)
        for (uint32_t i = 0; i < std::min(list_a->size(), list_b->size()); ++i)
            if (list_a->of(i) != list_b->of(i))
                return " (counts[" + std::to_string(i) + "] is " + both(list_a->of(i), list_b->of(i));
    if (a.count != b.count) return " (their sums are " + both(a.count, b.count);
    return " (with one sum, " + std::to_string(a.count) + ")";
}

// The names of the arguments in which two calls differ. Those of another operation mean something else.
std::string arguments_that_differ(const OpDescriptor& a, const OpDescriptor& b) {
    if (a.kind != b.kind) return "operation";
    std::string out;
    const auto look = [&out](bool same, const char* what) {
        if (!same) out += (out.empty() ? "" : ", ") + std::string(what);
    };
    look(a.dtype == b.dtype, "type");
    look(a.op == b.op, "reduction");
    look(a.count == b.count || a.counts != b.counts, "count");
    look(a.root == b.root, "root");
    look(a.match_id == b.match_id, "match_id");
    look(a.partials == b.partials, "flags (of the calls or of their groups)");
    return out;
}

struct Call {
    uint32_t rank;
    const OpDescriptor& words;
    const Counts* counts = nullptr;  // null: not known here, or it has none
};

// Without the digest of its counts: where lists differ is stated before.
std::string text_of(OpDescriptor words) {
    words.counts = 0;
    return words.text();
}

// What both called, once where it is the same.
std::string calls_of(const GroupFacts& facts, const Call& a, const Call& b) {
    const std::string of_a = text_of(a.words), of_b = text_of(b.words);
    if (of_a == of_b) return facts.describe(a.rank) + " and " + facts.describe(b.rank) + " called " + of_a;
    return facts.describe(a.rank) + " called " + of_a + "; " + facts.describe(b.rank) + " called " + of_b;
}

// The lower rank first, so that both sides report the same error. Which of them is wrong nobody knows here.
Error mismatch(const GroupFacts& facts, const Call& a, const Call& b, uint64_t seq) {
    if (b.rank < a.rank) return mismatch(facts, b, a, seq);
    std::string what = arguments_that_differ(a.words, b.words);
    const bool same_lists =
        a.words.counts == b.words.counts && (!a.counts || !b.counts || *a.counts == *b.counts);
    if (a.words.kind == b.words.kind && !same_lists)
        what += (what.empty() ? "counts" : ", counts") +
                counts_differ(a.rank, a.words, a.counts, b.rank, b.words, b.counts);
    return {Errc::mismatch,
            "the calls of collective " + std::to_string(seq) + " differ in " + what + ": " +
                calls_of(facts, a, b) + ". Either may be the wrong one: all ranks must call the same",
            b.rank, a.rank, facts.nodes[facts.layout.node_of(b.rank).value].hex()};
}

}  // namespace

std::optional<Error> compare(const GroupFacts& facts, const EndedCall& ended,
                             const wire::OpAnnounce& announce) {
    const OpDescriptor theirs = descriptor_of(announce);
    if (!is_known(theirs)) return unknown_operation(facts, announce);
    if (theirs == ended.descriptor) return {};
    return mismatch(facts, {ended.rank, ended.descriptor}, {announce.first_rank, theirs}, ended.seq);
}

Gathering::Gathering(const GroupFacts& facts, uint64_t seq, bool compare)
    : facts_(facts), seq_(seq), compare_(compare) {
    const auto ranks = facts.layout.ranks_on(facts.self);
    posts_.resize(ranks.size());
    for (size_t i = 0; i < ranks.size(); ++i) posts_[i].rank = ranks[i];
}

void Gathering::unpin() {
    for (Post& post : posts_) {
        post.in = post.out = {};
        post.own_counts.reset();
        post.child.reset();  // with the place among its tenant's groups [Y4]
        post.known.reset();
    }
}

bool Gathering::all_posted() const {
    return std::ranges::all_of(posts_, &Post::present);
}

std::optional<Error> Gathering::post(size_t local, const OpRequest& request, Time now) {
    Post& mine = posts_[local];
    NEXAR_CHECK(!mine.present);
    mine.present = true;
    mine.session = request.session;
    mine.ticket = request.ticket;
    mine.in = request.in;
    mine.out = request.out;
    mine.scalar = request.scalar;
    mine.own_counts = request.own_counts;
    mine.child = request.child;
    mine.priority = request.priority;
    mine.known = request.known;
    if (first_posted_ == never) first_posted_ = now;
    take_deadline(mine, request, now);
    if (descriptor_) {
        // Ranks of one node share one list, and a digest does not show that theirs are the same.
        const bool same_counts =
            counts_ == request.counts || (counts_ && request.counts && *counts_ == *request.counts);
        if ((*descriptor_ == request.descriptor || !compare_) && same_counts) return {};
        return mismatch(facts_, {first_rank_, *descriptor_, counts_.get()},
                        {mine.rank, request.descriptor, request.counts.get()}, seq_);
    }
    descriptor_ = request.descriptor;
    counts_ = request.counts;
    first_rank_ = mine.rank;
    if (!compare_) return {};
    for (const Announced& other : announced_)
        if (const OpDescriptor theirs = descriptor_of(other.announce); theirs != *descriptor_)
            return mismatch(facts_, {mine.rank, *descriptor_}, {other.announce.first_rank, theirs}, seq_);
    return {};
}

void Gathering::take_deadline(Post& post, const OpRequest& request, Time now) {
    const OpRow& row = row_of(request.descriptor.kind);
    const Duration usual = is_barrier(row) ? facts_.timeouts.barrier : facts_.timeouts.collective;
    const Duration timeout = request.timeout < Duration{0} ? usual : request.timeout;
    if (timeout > Duration{0}) post.deadline = deadline_after(now, timeout);
    if (post.deadline >= deadline_) return;
    deadline_ = post.deadline;
    timeout_ = timeout;
    timeout_rank_ = post.rank;
}

std::optional<Error> Gathering::on_announce(NodeIndex from, const wire::OpAnnounce& announce) {
    const auto known = std::ranges::find(announced_, from, &Announced::from);
    if (known != announced_.end())
        known->announce = announce;
    else
        announced_.push_back({from, announce});
    if (!compare_) return {};
    const OpDescriptor theirs = descriptor_of(announce);
    if (!is_known(theirs)) return unknown_operation(facts_, announce);
    if (descriptor_) {
        if (*descriptor_ == theirs) return {};
        return mismatch(facts_, {first_rank_, *descriptor_}, {announce.first_rank, theirs}, seq_);
    }
    for (const Announced& other : announced_)
        if (const OpDescriptor earlier = descriptor_of(other.announce); earlier != theirs)
            return mismatch(facts_, {other.announce.first_rank, earlier}, {announce.first_rank, theirs},
                            seq_);
    return {};
}

wire::OpAnnounce Gathering::announcement() const {
    NEXAR_CHECK(descriptor_);
    const OpDescriptor& d = *descriptor_;
    return {facts_.id,          facts_.epoch.value, seq_,       uint8_t(d.kind),
            uint8_t(d.dtype),   uint8_t(d.op),      d.count,    d.root,
            first_rank_,        facts_.table_hash,  d.match_id, d.counts,
            uint8_t(d.partials)};
}

bool Gathering::has_posted(uint32_t rank) const {
    for (const Post& post : posts_)
        if (post.rank == rank) return post.present;
    return std::ranges::any_of(announced_, [&](const Announced& a) { return a.announce.first_rank == rank; });
}

Error Gathering::abort_error(const Post& post, const std::string& what) const {
    return {Errc::aborted, descriptor_->text() + what, post.rank, -1, facts_.nodes[facts_.self.value].hex()};
}

std::optional<Error> Gathering::cancel(SessionId session, uint64_t ticket) {
    for (Post& post : posts_) {
        if (!post.present || post.reported || post.session != session || post.ticket != ticket) continue;
        post.cancelled = true;
        return abort_error(post, " was cancelled by " + facts_.describe(post.rank));
    }
    return {};
}

std::optional<Error> Gathering::close(uint32_t rank, const Error& own, const std::string& reason) {
    for (Post& post : posts_) {
        if (post.rank != rank || !post.present || post.reported) continue;
        post.closed = own;
        return abort_error(post, " was left by " + facts_.describe(rank) + ": " + reason);
    }
    return {};
}

Error Gathering::error_of(const Post& post, const Error& error, Time expired) {
    if (post.closed) return *post.closed;
    Error out = error;
    if (post.cancelled)
        out.code = Errc::cancelled;
    else if (expired != never && post.deadline <= expired)
        out.code = Errc::timed_out;
    return out;
}

}  // namespace nexar::engine
