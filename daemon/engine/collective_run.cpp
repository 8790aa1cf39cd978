#include "engine/collective_run.hpp"

#include <algorithm>

#include "core/check.hpp"
#include "engine/group.hpp"
#include "wire/codec.hpp"

namespace nexar::engine {
namespace {

// Any number may be in there: names and texts are total, and none is executed.
OpDescriptor descriptor_of(const wire::OpAnnounce& a) {
    return {OpKind(a.kind), Dtype(a.dtype), ReduceOp(a.op), a.count, a.root, a.match_id};
}

bool is_known(const OpDescriptor& d) {
    return is_collective(uint64_t(d.kind)) && reduce::dtype_from(int(d.dtype)) &&
           reduce::reduce_op_from(int(d.op));
}

Error unknown_operation(const Group& group, const wire::OpAnnounce& a) {
    return {Errc::mismatch,
            "collective " + std::to_string(a.seq) + ": " + group.facts.describe(a.first_rank) + " called " +
                descriptor_of(a).text() + " (kind " + std::to_string(a.kind) + ", type " +
                std::to_string(a.dtype) + ", operator " + std::to_string(a.op) +
                "), which this daemon does not know",
            a.first_rank, -1, group.facts.members[a.first_rank].node.hex()};
}

// Named lower rank first, so that both sides say the same.
Error mismatch(const Group& group, uint32_t rank_a, const OpDescriptor& a, uint32_t rank_b,
               const OpDescriptor& b, uint64_t seq) {
    if (rank_b < rank_a) return mismatch(group, rank_b, b, rank_a, a, seq);
    return {Errc::mismatch,
            "collective " + std::to_string(seq) + ": " + group.facts.describe(rank_a) + " called " +
                a.text() + ", " + group.facts.describe(rank_b) + " called " + b.text() +
                "; all ranks must call the same",
            rank_b, rank_a, group.facts.nodes[group.facts.layout.node_of(rank_b).value].hex()};
}

std::string join(const std::string& a, const std::string& b) {
    return a + (a.empty() || b.empty() ? "" : "; ") + b;
}

collectives::Shape shape_of(const OpDescriptor& d) {
    return {d.kind, d.count, static_cast<uint32_t>(reduce::size_of(d.dtype)), d.root};
}

}  // namespace

CollectiveRun::CollectiveRun(Group& group, Timers& timers, uint64_t number)
    : Alarm(timers), seq(number), group_(group), posts_(group.locals().size()) {
    op_.key = {group.facts.id, group.facts.epoch, seq};
    op_.self = group.facts.self;
    op_.peers = group.facts.peers;
    op_.on_idle = this;
}

CollectiveRun::~CollectiveRun() {
    group_.context().executor.forget(this);
}

bool CollectiveRun::has_posts() const {
    return std::ranges::any_of(posts_, [](const Post& p) { return p.present; });
}

void CollectiveRun::post(size_t local, const OpRequest& request) {
    Context& context = group_.context();
    Post& mine = posts_[local];
    mine.present = true;
    mine.session = request.session;
    mine.ticket = request.ticket;
    mine.in = request.in;
    mine.out = request.out;
    const Timeouts& agreed = group_.facts.timeouts;
    const bool data = row_of(request.descriptor.kind).has_elements;
    const Duration usual = data ? agreed.collective : agreed.barrier;
    const Duration timeout = request.timeout < Duration{0} ? usual : request.timeout;
    const uint32_t rank = group_.locals()[local].rank;
    if (timeout > Duration{0}) mine.deadline = deadline_after(context.now, timeout);
    if (mine.deadline < deadline_) {
        deadline_ = mine.deadline;
        timeout_ = timeout;
        timeout_rank_ = rank;
    }
    if (first_posted_ == never) first_posted_ = context.now;
    for (const Buffer* buffer : {&request.in, &request.out})
        if (buffer->keepalive) op_.keepalive.push_back(buffer->keepalive);

    if (request.stage.windows > 0) stage(request, rank);
    if (state_ == State::stopping) return end_if_idle();
    if (!descriptor_) {
        descriptor_ = request.descriptor;
        first_rank_ = rank;
        for (Word& word : words_) {
            if (!word.announce || context.config.sabotage.skip_descriptor_check) continue;
            const OpDescriptor theirs = descriptor_of(*word.announce);
            if (theirs == *descriptor_) continue;
            return group_.abort(seq,
                                mismatch(group_, rank, *descriptor_, word.announce->first_rank, theirs, seq));
        }
    } else if (*descriptor_ != request.descriptor && !context.config.sabotage.skip_descriptor_check) {
        return group_.abort(seq, mismatch(group_, first_rank_, *descriptor_, rank, request.descriptor, seq));
    }
    if (std::ranges::all_of(posts_, [](const Post& p) { return p.present; })) {
        state_ = State::ready;
        group_.run_changed();
    }
    arm();
}

void CollectiveRun::stage(const OpRequest& request, uint32_t rank) {
    const GroupFacts& facts = group_.facts;
    if (!staging_) staging_ = std::make_unique<Staging>(group_.context().config.sabotage.begin_before_filled);
    Staging::Member member;
    member.rank = rank;
    member.session = request.session;
    member.ticket = request.ticket;
    member.stage = request.stage;
    const OpDescriptor& d = request.descriptor;
    member.segments = segments_of(row_of(d.kind), d.count, reduce::size_of(d.dtype), facts.size(),
                                  collectives::segment_bytes_of(facts.layout, facts.table));
    staging_->add(member);
}

Side CollectiveRun::side(size_t local, const Buffer& buffer, bool out) const {
    const Staging::Member* member = staging_ ? staging_->find(group_.locals()[local].rank) : nullptr;
    const collectives::Blocks blocks(descriptor_->count);
    if (member == nullptr || !(out ? member->stage.out : member->stage.in))
        return {buffer.data, 0, 0, blocks};
    return {buffer.data, member->stage.windows, out ? member->stage.out_stride : member->stage.in_stride,
            blocks};
}

void CollectiveRun::start() {
    NEXAR_CHECK(state_ == State::ready);
    state_ = State::running;
    const GroupFacts& facts = group_.facts;
    two_level_.descriptor = *descriptor_;
    two_level_.layout = &facts.layout;
    const collectives::Shape shape = shape_of(*descriptor_);
    two_level_.plan = staging_ ? collectives::staged_plan(shape, facts.layout, facts.table)
                               : collectives::plan(shape, facts.layout, facts.table);
    if (staging_) staging_->begin(two_level_.plan.lanes);
    two_level_.self = facts.self;
    for (size_t i = 0; i < posts_.size(); ++i) {
        const uint32_t rank = group_.locals()[i].rank;
        const SideBlocks blocks =
            blocks_of(row_of(descriptor_->kind), facts.size(), rank == descriptor_->root);
        two_level_.locals.push_back(
            {rank, side(i, posts_[i].in, false), blocks.out == 0 ? Side{} : side(i, posts_[i].out, true)});
    }
    op_.agreement = {facts.table_hash, descriptor_->hash()};
    if (group_.context().config.sabotage.skip_descriptor_check) op_.agreement.descriptor_hash = 0;
    op_.cls = two_level_.plan.cls;
    op_.chunk_bytes = two_level_.plan.chunk_bytes;
    task_ = body();
    task_.start(group_.context().executor, this);
}

Task<> CollectiveRun::body() {
    std::vector<Task<>> lanes;
    for (uint32_t lane = 0; lane < two_level_.plan.lanes; ++lane) lanes.push_back(lane_task(lane));
    if (lanes.size() == 1)
        co_await std::move(lanes[0]);
    else
        co_await all(lanes);
    co_return ok();
}

// Every lanes-th segment, one after the other: while one lane waits for the network, another one combines.
Task<> CollectiveRun::lane_task(uint32_t lane) {
    const collectives::Plan& plan = two_level_.plan;
    for (uint32_t segment = lane; segment < plan.segments; segment += plan.lanes) {
        sweep_lanes();
        if (staging_) co_await done(staging_->gate(lane, segment));
        const size_t mesh = group_.context().mesh_for(op_.cls, lane, group_.facts.bulk_shards);
        lanes_.push_back(std::make_unique<MeshLane>(group_.context(), op_, segment * plan.phases, mesh));
        MeshLane& verbs = *lanes_.back();
        co_await run_segment(verbs, two_level_, segment);
        verbs.retired = true;
        segment_over(segment);
    }
    co_return ok();
}

// Transfers that its task did not wait for touch scratch only: nothing touches a window of this segment any
// more.
void CollectiveRun::segment_over(uint32_t segment) {
    ++segments_done_;
    if (!staging_ || !staging_->over(segment)) return;
    for (const Staging::Member& member : staging_->members())
        group_.host().stage_done(member.session, member.ticket, staging_->segments_over());
}

void CollectiveRun::sweep_lanes() {
    std::erase_if(lanes_, [](const auto& lane) { return lane->retired && lane->idle(); });
}

void CollectiveRun::run() {
    if (state_ == State::running && task_.ended()) {
        const Result<void> result = task_.take_result();
        if (result) {
            report_success();
        } else if (result.error().code == Errc::mismatch) {
            return group_.abort(seq, result.error());  // a transfer that could not be begun
        } else {
            // A transfer failed that nobody withdrew: the link has given up on a peer. What that means for
            // the group is not for one op to say. Its deadline stays.
            return group_.transfer_lost(result.error());
        }
    }
    end_if_idle();
}

void CollectiveRun::report_success() {
    state_ = State::settled;
    wake_at(op_.outstanding > 0 && deadline_ != never ? group_.context().now + patience() : never);
    for (size_t i = 0; i < posts_.size(); ++i) report(i, {});
    group_.run_changed();
}

// All ranks here have their results, but transfers that nobody waits for are under way, for as long as it
// takes others to come to this op. Once all have come, and nothing has moved in the time that they had,
// nobody takes them any more: their op was ended.
void CollectiveRun::on_lingering() {
    bool all_came = true;
    for (uint32_t rank = 0; rank < group_.facts.size(); ++rank) all_came &= arrived(rank);
    if (all_came && op_.outstanding == lingering_) {
        for (MeshPort* mesh : group_.context().ports.meshes) mesh->withdraw(op_.key);
        return;
    }
    lingering_ = op_.outstanding;
    ask_who_has_arrived();
    wake_at(group_.context().now + patience());
}

Duration CollectiveRun::patience() const {
    return std::max(deadline_ - first_posted_, group_.context().config.late_after);
}

void CollectiveRun::report(size_t local, Outcome outcome) {
    Post& post = posts_[local];
    post.reported = true;
    outcome.sequence = seq;
    group_.complete(post.session, post.ticket, std::move(outcome));
}

void CollectiveRun::stop(const Error& error) {
    if (halted_) {
        halted_ = false;
        op_.stopped = error;
        return end_if_idle();
    }
    if (op_.stopped || state_ == State::over) return;
    op_.stopped = error;
    stop_work(error);
    end_if_idle();
}

void CollectiveRun::stop_work(const Error& error) {
    op_.work_unwanted->store(true, std::memory_order_relaxed);
    for (MeshPort* mesh : group_.context().ports.meshes) mesh->withdraw(op_.key);
    if (staging_) staging_->fail(error);
    if (state_ != State::settled) state_ = State::stopping;
    wake_at(never);
}

void CollectiveRun::halt(const Error& why) {
    if (op_.stopped || state_ == State::settled || state_ == State::over) return;
    halted_ = true;
    op_.stopped = why;
    stop_work(why);
}

bool CollectiveRun::is_decided() const {
    return !halted_ && state_ >= State::settled;
}

bool CollectiveRun::has_filled(uint32_t rank) const {
    const Staging::Member* member = staging_ ? staging_->find(rank) : nullptr;
    return member == nullptr || member->has_filled();
}

bool CollectiveRun::leave(uint32_t rank) {
    const Staging::Member* member = staging_ ? staging_->find(rank) : nullptr;
    if (member == nullptr) return true;
    staging_->leave(rank);
    return member->has_filled() || op_.stopped;  // one that was aborted ends without it
}

bool CollectiveRun::nobody_to_come() const {
    if (group_.failed()) return true;  // posts are refused from now on
    for (size_t i = 0; i < posts_.size(); ++i)
        if (!posts_[i].present && !group_.locals()[i].left) return false;
    return true;
}

void CollectiveRun::end_if_idle() {
    const bool task_done = !task_ || task_.ended();
    if (!task_done || op_.outstanding > 0) return;
    if (halted_) return;  // how it ends is not known yet
    if (state_ == State::stopping) {
        report_error();
        if (!nobody_to_come()) return;
    } else if (state_ == State::waiting && !has_posts()) {
        if (!nobody_to_come()) return;  // others have spoken about it, and that is all
    } else if (state_ != State::settled) {
        return;
    }
    state_ = State::over;
    group_.run_changed();
}

void CollectiveRun::report_error() {
    for (size_t i = 0; i < posts_.size(); ++i) {
        const Post& post = posts_[i];
        if (!post.present || post.reported) continue;
        Outcome outcome{.error = *op_.stopped};
        if (post.closed)
            outcome.error = *post.closed;
        else if (post.cancelled)
            outcome.error.code = Errc::cancelled;
        else if (post.deadline <= expired_at_ && expired_at_ != never)
            outcome.error.code = Errc::timed_out;
        report(i, std::move(outcome));
    }
}

std::optional<Error> CollectiveRun::cancel(SessionId session, uint64_t ticket) {
    for (size_t i = 0; i < posts_.size(); ++i) {
        Post& post = posts_[i];
        if (!post.present || post.reported || post.session != session || post.ticket != ticket) continue;
        post.cancelled = true;
        const uint32_t rank = group_.locals()[i].rank;
        return Error{Errc::aborted, descriptor_->text() + " was cancelled by " + group_.facts.describe(rank),
                     rank, -1, group_.facts.nodes[group_.facts.self.value].hex()};
    }
    return {};
}

std::optional<Error> CollectiveRun::close(uint32_t rank, const Error& own, const std::string& reason) {
    for (size_t i = 0; i < posts_.size(); ++i) {
        Post& post = posts_[i];
        if (group_.locals()[i].rank != rank || !post.present || post.reported) continue;
        post.closed = own;
        return Error{Errc::aborted,
                     descriptor_->text() + " was left by " + group_.facts.describe(rank) + ": " + reason,
                     rank, -1, group_.facts.nodes[group_.facts.self.value].hex()};
    }
    return {};
}

void CollectiveRun::announce() {
    if (announced_ || !descriptor_) return;
    announced_ = true;
    group_.to_others(announcement(), &room_);
}

wire::OpAnnounce CollectiveRun::announcement() const {
    const GroupFacts& facts = group_.facts;
    const OpDescriptor& d = *descriptor_;
    return {facts.id,         facts.epoch.value, seq,       uint8_t(d.kind),
            uint8_t(d.dtype), uint8_t(d.op),     d.count,   d.root,
            first_rank_,      facts.table_hash,  d.match_id};
}

wire::ArrivalQuery CollectiveRun::arrival_query() const {
    return {group_.facts.id, group_.facts.epoch.value, seq, nonce_};
}

void CollectiveRun::on_announce(collectives::NodeIndex from, const wire::OpAnnounce& announce) {
    if (words_.empty()) words_.resize(group_.facts.nodes.size());
    words_[from.value].announce = announce;
    if (op_.stopped || group_.context().config.sabotage.skip_descriptor_check) return;
    const OpDescriptor theirs = descriptor_of(announce);
    if (!is_known(theirs)) return group_.abort(seq, unknown_operation(group_, announce));
    if (descriptor_) {
        if (*descriptor_ != theirs)
            group_.abort(seq, mismatch(group_, first_rank_, *descriptor_, announce.first_rank, theirs, seq));
        return;
    }
    for (const Word& word : words_) {
        if (!word.announce || descriptor_of(*word.announce) == theirs) continue;
        return group_.abort(seq, mismatch(group_, word.announce->first_rank, descriptor_of(*word.announce),
                                          announce.first_rank, theirs, seq));
    }
}

// ---- Time ----

void CollectiveRun::arm() {
    if (state_ == State::settled || state_ == State::stopping || state_ == State::over) return wake_at(never);
    const EngineConfig& config = group_.context().config;
    Time next = asking_ ? asking_ends_ : deadline_;
    if (first_posted_ != never) {
        if (!announced_ && group_.facts.nodes.size() > 1)
            next = std::min(next, first_posted_ + config.announce_after);
        if (late_ == Late::no) next = std::min(next, first_posted_ + config.late_after);
        if (late_ == Late::asked)
            next = std::min(next, first_posted_ + config.late_after + config.arrival_grace);
        if (late_ == Late::told && !asking_) next = std::min(next, ask_again_);
    }
    wake_at(next);
}

void CollectiveRun::on_time() {
    const EngineConfig& config = group_.context().config;
    const Time now = group_.context().now;
    if (state_ == State::settled) return on_lingering();
    if (first_posted_ != never) {
        if (!announced_ && now >= first_posted_ + config.announce_after) announce();
        if (late_ == Late::no && now >= first_posted_ + config.late_after) {
            late_ = Late::asked;
            ask_who_has_arrived();
        }
        if (late_ == Late::asked && now >= first_posted_ + config.late_after + config.arrival_grace)
            tell_late();
        if (late_ == Late::told && !asking_ && now >= ask_again_) {
            ask_who_has_arrived();
            ask_again_ = now + std::min(now - first_posted_, config.ask_again_max);
        }
    }
    if (asking_ && now >= asking_ends_) return expire();
    if (!asking_ && now >= deadline_) on_deadline();
    arm();
}

void CollectiveRun::tell_late() {
    late_ = Late::told;
    // Ranks arrive later, too, and whoever looks (nexarctl ops) must not see them as missing.
    if (group_.facts.nodes.size() > 1) ask_again_ = first_posted_ + 2 * group_.context().config.late_after;
    group_.context().ports.log.warn(
        "collective_late",
        {field("group", group_.facts.id), field("name", group_.facts.name), field("seq", seq),
         field("what", descriptor_->text()), field("waits_for", join(missing_text(), unmoved_text()))});
}

void CollectiveRun::on_deadline() {
    const Context& context = group_.context();
    asking_ = true;
    for (Word& word : words_) word.arrival.reset();  // they may have arrived since
    asking_ends_ = context.now;
    if (group_.facts.nodes.size() == 1) return;
    asking_ends_ += context.config.arrival_grace;
    ask_who_has_arrived();
}

// A node that has not answered yet is not asked again: it answers by what is so when it applies the query.
void CollectiveRun::ask_who_has_arrived() {
    const GroupFacts& facts = group_.facts;
    if (facts.nodes.size() == 1) return;
    if (!has_room_to_ask()) return;
    if (words_.empty()) words_.resize(facts.nodes.size());
    const std::vector<std::byte> query = wire::encode(arrival_query());
    const auto account = room_.spend(query.size());
    for (uint32_t node = 0; node < facts.nodes.size(); ++node) {
        if (node == facts.self.value) continue;
        if (!std::exchange(words_[node].asked, true))
            group_.context().ports.peers.append(facts.peers[node], query, account);
        else if (account)
            room_.give_back(node, query.size());
    }
}

// The first time it was reserved with the operation.
bool CollectiveRun::has_room_to_ask() {
    if (nonce_ != 0) return room_.reserve_more(query_room);
    nonce_ = group_.context().random.next() | 1;
    return true;
}

bool CollectiveRun::all_answered() const {
    for (uint32_t node = 0; node < words_.size(); ++node)
        if (node != group_.facts.self.value && !words_[node].arrival) return false;
    return true;
}

void CollectiveRun::on_arrival_reply(collectives::NodeIndex from, const wire::ArrivalReply& reply) {
    if (nonce_ == 0 || reply.nonce != nonce_ || op_.stopped || first_posted_ == never) return;
    if (words_.empty()) words_.resize(group_.facts.nodes.size());
    words_[from.value].arrival = reply;
    words_[from.value].asked = false;
    if (state_ == State::settled || !all_answered()) return;
    if (asking_) return expire();
    if (late_ == Late::asked) tell_late();
    arm();
}

bool CollectiveRun::arrived(uint32_t rank) const {
    const uint32_t node = group_.facts.layout.node_of(rank).value;
    if (node == group_.facts.self.value) {
        for (size_t i = 0; i < posts_.size(); ++i)
            if (group_.locals()[i].rank == rank) return posts_[i].present;
    }
    if (const auto gone = group_.gone().find(rank); gone != group_.gone().end())
        return gone->second.collectives_handed_over > seq;
    if (words_.empty()) return false;
    if (words_[node].arrival)
        for (const wire::Arrival& arrival : words_[node].arrival->ranks)
            if (arrival.rank == rank) return arrival.next_seq > seq;
    return words_[node].announce && words_[node].announce->first_rank == rank;
}

// Remote ranks count as missing only once their node has answered.
bool CollectiveRun::counted_missing(uint32_t rank) const {
    const uint32_t node = group_.facts.layout.node_of(rank).value;
    const bool known = node == group_.facts.self.value || (!words_.empty() && words_[node].arrival);
    return known && !arrived(rank);
}

bool CollectiveRun::waits_for_bytes_of(uint32_t rank) const {
    return staging_ && staging_->waits_for(rank);
}

void CollectiveRun::expire() {
    Context& context = group_.context();
    expired_at_ = context.now;
    std::string text = descriptor_->text() + " did not finish within " + std::to_string(to_ms(timeout_)) +
                       " ms, the deadline of rank " + std::to_string(timeout_rank_) + ": ";
    Error error{Errc::aborted, {}, -1, -1, {}};
    const std::string missing = missing_text(), unmoved_ranks = unmoved_text();
    if (!missing.empty()) text += "not arrived: " + missing;
    text += (missing.empty() || unmoved_ranks.empty() ? "" : "; ") + unmoved_ranks;
    for (uint32_t rank = 0; rank < group_.facts.size() && error.rank < 0; ++rank)
        if (counted_missing(rank)) error.rank = rank;
    if (error.rank < 0 && !unmoved_ranks.empty()) error.rank = unmoved().front();
    const bool named = !missing.empty() || !unmoved_ranks.empty();
    std::string silent;
    for (uint32_t node = 0; node < group_.facts.nodes.size(); ++node) {
        const bool answered = node == group_.facts.self.value || (!words_.empty() && words_[node].arrival);
        if (!answered) silent += (silent.empty() ? "" : ", ") + group_.facts.nodes[node].short_hex();
    }
    if (!silent.empty()) text += std::string(named ? "; " : "") + "no answer from node " + silent;
    if (!named && silent.empty()) text += "all ranks have arrived, the data is stuck between their nodes";
    if (error.rank >= 0)
        error.node =
            group_.facts.nodes[group_.facts.layout.node_of(static_cast<uint32_t>(error.rank)).value].hex();
    error.text = std::move(text);
    group_.abort(seq, error);
}

OpSnapshot CollectiveRun::snapshot(Time now) const {
    OpSnapshot out;
    out.group = group_.facts.id;
    out.group_name = group_.facts.name;
    out.seq = seq;
    if (descriptor_) out.descriptor = *descriptor_;
    if (first_posted_ != never) out.age = now - first_posted_;
    switch (state_) {
        case State::waiting:
            out.phase = "waiting for ranks";
            break;
        case State::ready:
            out.phase = "queued";
            break;
        case State::running:
            out.phase = "running, " + std::to_string(segments_done_) + " of " +
                        std::to_string(two_level_.plan.segments) + " segments done";
            if (const std::vector<uint32_t> ranks = unmoved_here(); !ranks.empty()) {
                out.phase += "; waits for rank " + std::to_string(ranks.front());
                if (ranks.size() > 1) out.phase += " and " + std::to_string(ranks.size() - 1) + " more";
                out.phase += ranks.size() > 1 ? " to move their bytes" : " to move its bytes";
            }
            break;
        case State::settled:
        case State::stopping:
        case State::over:
            out.phase = "ending";
            break;
    }
    if (descriptor_) {
        const collectives::Shape shape = shape_of(*descriptor_);
        const GroupFacts& facts = group_.facts;
        const auto cut = staging_ ? collectives::staged_plan : collectives::plan;
        out.plan = cut(shape, facts.layout, facts.table).text();
    }
    for (uint32_t rank = 0; rank < group_.facts.size(); ++rank) {
        const auto node = group_.facts.layout.node_of(rank);
        RankSnapshot r{Rank(rank),
                       group_.facts.nodes[node.value],
                       group_.facts.members[rank].pid,
                       node == group_.facts.self,
                       group_.is_gone(rank),
                       0};
        if (arrived(rank))
            out.arrived.push_back(r);
        else if (counted_missing(rank))
            out.missing.push_back(r);
        else if (std::ranges::find(out.unheard, r.node) == out.unheard.end())
            out.unheard.push_back(r.node);
    }
    return out;
}

}  // namespace nexar::engine
