#include "engine/collective_run.hpp"

#include <algorithm>

#include "core/check.hpp"
#include "engine/group.hpp"
#include "wire/codec.hpp"

namespace nexar::engine {
namespace {

ArrivalInquiry::Timing timing_of(const EngineConfig& config) {
    return {config.announce_after, config.late_after, config.arrival_grace, config.ask_again_max,
            config.announce_each};
}

}  // namespace

CollectiveRun::CollectiveRun(Group& group, Timers& timers, uint64_t number)
    : Alarm(timers, group.user()),
      seq(number),
      group_(group),
      gathering_(group.facts, number, !group.context().config.sabotage.skip_descriptor_check),
      inquiry_(group.facts, number, timing_of(group.context().config)),
      execution_(group.context(), group.facts, number, *this) {}

CollectiveRun::~CollectiveRun() {
    group_.context().executor.forget(this);
}

// ---- Gathering ----

void CollectiveRun::post(size_t local, const OpRequest& request) {
    const auto mismatch = gathering_.post(local, request, group_.context().now);
    execution_.add(request, gathering_.posts()[local].rank);
    inquiry_.begin(gathering_.first_posted(), gathering_.deadline());
    if (state_ == State::stopping) return end_if_idle();
    if (mismatch) return group_.abort(seq, *mismatch);
    if (gathering_.all_posted()) {
        state_ = State::ready;
        group_.run_changed();
    }
    arm();
}

void CollectiveRun::on_announce(collectives::NodeIndex from, const wire::OpAnnounce& announce) {
    const auto mismatch = gathering_.on_announce(from, announce);
    if (mismatch && !is_stopped()) group_.abort(seq, *mismatch);
}

void CollectiveRun::announce() {
    if (inquiry_.has_announced() || !gathering_.any_posted()) return;
    inquiry_.set_announced();
    group_.to_others(gathering_.announcement(), &room_);
}

// With a list of counts a node may have nothing to exchange with another one that expects something.
std::optional<EndedCall> CollectiveRun::unseen_call() const {
    if (is_stopped() || !gathering_.counts() || !gathering_.all_posted()) return {};
    return gathering_.ended_call();
}

// ---- Execution ----

void CollectiveRun::start() {
    NEXAR_CHECK(state_ == State::ready);
    state_ = State::running;
    running_.begin(group_.context().running);
    if (row_of(gathering_.descriptor()->kind).makes_groups) making_ = std::make_unique<Making>(group_, seq);
    // One rank's for all: which one is the same for all collectives of the group.
    const LocalRank& payer = group_.locals().front();
    const auto started = execution_.start(*gathering_.descriptor(), gathering_.counts(), gathering_.posts(),
                                          group_.work_origin(payer.account, payer.session), payer.tenant);
    if (!started) abort_without_scratch(started.error());
}

void CollectiveRun::set_oldest() {
    if (const auto result = execution_.set_oldest(); !result) abort_without_scratch(result.error());
}

void CollectiveRun::abort_without_scratch(Error error) {
    error.node = group_.facts.nodes[group_.facts.self.value].hex();
    error.text = "no memory for the steps of this collective on node " +
                 group_.facts.nodes[group_.facts.self.value].short_hex() + ": " + error.text;
    group_.abort(seq, error);
}

void CollectiveRun::segments_done(const Staging::Member& member, uint32_t done) {
    group_.host().stage_done(member.session, member.ticket, done);
}

// [Y16] In portions: what else the loop has to do is done between them.
Task<> CollectiveRun::rows_gathered(std::vector<ChildRow> rows) {
    if (is_stopped()) co_return fail(*execution_.stopped());  // while its last transfer ended
    const Result<void> begun = making_->begin(gathering_.descriptor()->kind, rows);
    if (!begun) co_return begun;
    while (true) {
        const auto all = making_->make_some(gathering_.posts());
        if (!all) co_return fail(all.error());
        if (*all) break;
        Turns::Waiter turn(group_.context().turns, group_.user());
        co_await done(turn.op);
        if (is_stopped()) co_return fail(*execution_.stopped());
    }
    co_return ok();
}

void CollectiveRun::run() {
    execution_.sweep_lanes();
    if (state_ == State::running && execution_.task_ended()) {
        const Result<void> result = execution_.take_result();
        if (result) {
            report_success();
        } else if (making_ && making_->failure()) {
            const Error why = *making_->failure();
            return making_->failed_everywhere() ? stop(why) : group_.abort(seq, why);
        } else if (result.error().code == Errc::mismatch) {
            return group_.abort(seq, result.error());  // a transfer that could not be posted
        } else {
            // A transfer failed that was not withdrawn: the link with a peer has failed. The group decides
            // what that means; this collective keeps its deadline.
            return group_.transfer_lost(result.error());
        }
    }
    end_if_idle();
}

void CollectiveRun::stop(const Error& error) {
    if (is_unreported_) {
        is_unreported_ = false;
        execution_.set_error(error);
        return end_if_idle();
    }
    if (is_stopped() || state_ == State::ended) return;
    stop_work(error);
    end_if_idle();
}

void CollectiveRun::stop_unreported(const Error& why) {
    if (is_stopped() || state_ == State::settled || state_ == State::ended) return;
    is_unreported_ = true;
    stop_work(why);
}

void CollectiveRun::stop_work(const Error& error) {
    execution_.stop(error);
    running_.end();
    if (state_ != State::settled) state_ = State::stopping;
    wake_at(never);
    group_.run_changed();  // the next one may be the oldest now
}

bool CollectiveRun::is_decided() const {
    return !is_unreported_ && state_ >= State::settled;
}

// ---- Reports ----

void CollectiveRun::report(Post& post, Outcome outcome) {
    post.reported = true;
    outcome.sequence = seq;
    group_.complete(post.session, post.ticket, std::move(outcome));
}

void CollectiveRun::report_success() {
    state_ = State::settled;
    running_.end();
    const bool lingers = execution_.outstanding() > 0 && gathering_.deadline() != never;
    wake_at(lingers ? group_.context().now + linger_timeout() : never);
    for (Post& post : gathering_.posts()) {
        Outcome outcome;
        if (making_) outcome.child = making_->child_of(post.rank);
        report(post, std::move(outcome));
    }
    end_making();
    group_.run_changed();
}

void CollectiveRun::end_making() {
    if (const auto making = std::move(making_)) making->end();
}

void CollectiveRun::report_error() {
    if (making_) making_->give_up(*execution_.stopped());
    end_making();
    for (Post& post : gathering_.posts())
        if (post.present && !post.reported)
            report(post, {.error = Gathering::error_of(post, *execution_.stopped(), expired_at_)});
}

// All ranks here have their results, but sends to other nodes are in flight until those have arrived at this
// collective. If all have arrived and no transfer has ended for a whole `linger_timeout`, the collective was
// aborted there, and no node will receive the rest.
void CollectiveRun::on_lingering() {
    bool all_came = true;
    for (uint32_t rank = 0; rank < group_.facts.size(); ++rank) all_came &= has_arrived(rank);
    if (all_came && execution_.outstanding() == lingering_) return execution_.withdraw();
    lingering_ = execution_.outstanding();
    ask_for_arrivals();
    wake_at(group_.context().now + linger_timeout());
}

Duration CollectiveRun::linger_timeout() const {
    return std::max(gathering_.deadline() - gathering_.first_posted(), group_.context().config.late_after);
}

bool CollectiveRun::all_posted_or_left() const {
    if (group_.failed()) return true;  // posts are refused
    const Vector<Post>& posts = gathering_.posts();
    for (size_t i = 0; i < posts.size(); ++i)
        if (!posts[i].present && !group_.locals()[i].left) return false;
    return true;
}

void CollectiveRun::end_if_idle() {
    if (!execution_.idle() || is_unreported_) return;  // the error is not known yet
    if (state_ == State::stopping) {
        report_error();
        gathering_.unpin();  // [M3] the run may stay for long, for ranks that have not called it yet
        execution_.release();
        if (!all_posted_or_left()) return;
    } else if (state_ == State::waiting && !has_posts()) {
        if (!all_posted_or_left()) return;  // only announced by other nodes
    } else if (state_ != State::settled) {
        return;
    }
    state_ = State::ended;
    group_.run_ended(seq);
}

void CollectiveRun::check_invariants() const {
    const bool begun = state_ == State::running || state_ == State::settled;
    NEXAR_CHECK(!begun || (execution_.started() && gathering_.all_posted()));
    NEXAR_CHECK(state_ != State::ready || (gathering_.all_posted() && !execution_.started()));
    NEXAR_CHECK(state_ != State::stopping || is_stopped());
    NEXAR_CHECK(!is_unreported_ || state_ == State::stopping);
    NEXAR_CHECK(state_ != State::ended || execution_.idle());
    execution_.check_invariants();
    for (const Post& post : gathering_.posts()) {
        NEXAR_CHECK(post.present || !post.reported);
        if (post.reported) NEXAR_CHECK(state_ >= State::settled && !is_unreported_);
        if (state_ == State::settled || state_ == State::ended) NEXAR_CHECK(post.reported == post.present);
    }
}

std::string CollectiveRun::phase() const {
    if (state_ == State::waiting) return "waiting for ranks";
    if (state_ == State::ready) return "queued";
    if (state_ != State::running) return "ending";
    std::string out = "running, " + std::to_string(execution_.segments_ended()) + " of " +
                      std::to_string(execution_.segments()) + " segments done";
    const std::vector<uint32_t> ranks = stalled_here();
    if (ranks.empty()) return out;
    out += "; waits for rank " + std::to_string(ranks.front());
    if (ranks.size() > 1) out += " and " + std::to_string(ranks.size() - 1) + " more";
    return out + (ranks.size() > 1 ? " to move their bytes" : " to move its bytes");
}

OpSnapshot CollectiveRun::snapshot(Time now) const {
    const GroupFacts& facts = group_.facts;
    OpSnapshot out;
    out.group = facts.id;
    out.group_name = facts.name;
    out.seq = seq;
    out.phase = phase();
    if (const auto& descriptor = gathering_.descriptor()) {
        out.descriptor = *descriptor;
        out.age = now - gathering_.first_posted();
        out.plan = execution_.plan_text(*descriptor);
        if (execution_.started()) out.priority = name_of(execution_.priority());
    }
    std::vector<bool> unanswered(facts.nodes.size());
    const auto keep = [](auto& list, size_t& count, auto&& make) {
        ++count;
        if (list.size() < ranks_listed_max) list.push_back(make());
    };
    for (uint32_t rank = 0; rank < facts.size(); ++rank) {
        const auto node = facts.layout.node_of(rank);
        const auto row = [&] {
            return RankSnapshot{Rank(rank),         facts.nodes[node.value],   facts.members[rank].pid,
                                node == facts.self, group_.has_departed(rank), 0};
        };
        if (has_arrived(rank)) {
            keep(out.arrived, out.arrived_count, row);
        } else if (is_missing(rank)) {
            keep(out.missing, out.missing_count, row);
        } else if (!unanswered[node.value]) {
            unanswered[node.value] = true;
            keep(out.unanswered, out.unanswered_count, [&] { return facts.nodes[node.value]; });
        }
    }
    return out;
}

}  // namespace nexar::engine
