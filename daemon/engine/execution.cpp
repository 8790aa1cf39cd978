#include "engine/execution.hpp"

#include <algorithm>

#include "core/check.hpp"
#include "engine/known_operation.hpp"

namespace nexar::engine {
namespace {

Priority own_priority(const OpDescriptor& descriptor, const collectives::Plan& plan) {
    if (is_barrier(row_of(descriptor.kind))) return Priority::critical;
    return plan.cls == Class::small ? Priority::realtime : Priority::bulk;
}

// The most urgent that a rank of this node asked for, or the operation's own for one that did not ask [K21].
Priority priority_of(const Vector<Post>& posts, Priority own) {
    Priority out = Priority::bulk;
    for (const Post& post : posts) out = std::min(out, post.priority.value_or(own));
    return out;
}

}  // namespace

Execution::Execution(Context& context, const GroupFacts& facts, uint64_t seq, Owner& owner)
    : context_(context), facts_(facts), owner_(owner), scratch_(context.scratch_share) {
    op_.key = {facts.id, facts.epoch, seq};
    op_.self = facts.self;
    op_.peers = facts.peers;
    op_.on_idle = &owner;
}

void Execution::add(const OpRequest& request, uint32_t rank) {
    for (const MemoryRef* memory : {&request.in, &request.out})
        if (memory->region) op_.pins.push_back(memory->region);
    if (request.stage.windows == 0) return;
    if (!staging_) staging_ = std::make_unique<Staging>(context_.config.sabotage.begin_before_filled);
    Staging::Member member;
    member.rank = rank;
    member.session = request.session;
    member.ticket = request.ticket;
    member.stage = request.stage;
    const OpDescriptor& d = request.descriptor;
    member.segments = segments_of(row_of(d.kind), d.count, d.cut_bytes(), facts_.size(),
                                  collectives::segment_bytes_of(facts_.layout, facts_.table));
    staging_->add(member);
}

Side Execution::side(const Post& post, bool out, const OpDescriptor& descriptor) const {
    const Place at = (out ? post.out : post.in).place();
    const Staging::Member* member = staging_ ? staging_->find(post.rank) : nullptr;
    const collectives::Blocks blocks(descriptor.count);
    if (member == nullptr || !(out ? member->stage.out : member->stage.in)) return {at, 0, 0, blocks};
    return {at, member->stage.windows, out ? member->stage.out_stride : member->stage.in_stride, blocks};
}

collectives::Plan Execution::plan_of(const OpDescriptor& d) const {
    collectives::Shape shape{d.kind, d.count, static_cast<uint32_t>(reduce::size_of(d.dtype)), d.root};
    shape.partials = d.partials;
    return staging_ ? collectives::staged_plan(shape, facts_.layout, facts_.table)
                    : collectives::plan(shape, facts_.layout, facts_.table);
}

// A plan is a function of what does not change between the starts of a persistent operation [S23].
collectives::Plan Execution::known_plan(const OpDescriptor& descriptor, const Vector<Post>& posts) const {
    const auto post = std::ranges::find_if(posts, [](const Post& one) { return bool(one.known); });
    if (post == posts.end()) return plan_of(descriptor);
    std::optional<collectives::Plan>& known = staging_ ? post->known->staged_plan : post->known->plan;
    if (!known) known = plan_of(descriptor);
    return *known;
}

std::string Execution::plan_text(const OpDescriptor& descriptor) const {
    return plan_of(descriptor).text();
}

Result<void> Execution::start(const OpDescriptor& descriptor, const CountsRef& counts,
                              const Vector<Post>& posts, const WorkOrigin& origin, const TenantRef& tenant) {
    NEXAR_CHECK(!started() && !op_.stopped);
    two_level_.facts = &facts_;
    two_level_.gathered = &owner_;
    two_level_.descriptor = descriptor;
    two_level_.counts = counts;
    two_level_.layout = &facts_.layout;
    two_level_.plan = known_plan(descriptor, posts);
    op_.origin = origin;
    op_.origin.priority = priority_of(posts, own_priority(descriptor, two_level_.plan));
    two_level_.self = facts_.self;
    if (staging_) staging_->begin(two_level_.plan.lanes);
    for (const Post& post : posts) {
        const SideBlocks blocks =
            blocks_of(row_of(descriptor.kind), facts_.size(), post.rank, descriptor.root);
        two_level_.locals.push_back({post.rank, side(post, false, descriptor),
                                     blocks.out == 0 ? Side{} : side(post, true, descriptor), post.scalar,
                                     post.own_counts, post.child});
    }
    op_.agreement = {facts_.table_hash, descriptor.hash()};
    if (context_.config.sabotage.skip_descriptor_check) op_.agreement.descriptor_hash = 0;
    op_.cls = two_level_.plan.cls;
    op_.chunk_bytes = two_level_.plan.chunk_bytes;
    op_.acks_may_wait = collectives::awaits_no_ack(two_level_.plan.algorithm);
    NEXAR_TRY_VOID(scratch_.start(tenant, scratch_shape()));
    task_ = body();
    task_.start(context_.executor, &owner_);
    return {};
}

// The elements are shared out evenly, so there are two sizes of segments: the first one's and the last one's.
OpScratch::Shape Execution::scratch_shape() const {
    const collectives::Plan& plan = two_level_.plan;
    if (plan.segments == 0) return {};
    return {plan.segments, plan.lanes,
            std::max(scratch_of(two_level_, 0), scratch_of(two_level_, plan.segments - 1))};
}

Task<> Execution::body() {
    Vector<Task<>> lanes;
    for (uint32_t lane = 0; lane < two_level_.plan.lanes; ++lane) lanes.push_back(lane_task(lane));
    if (lanes.size() == 1)
        co_await std::move(lanes[0]);
    else
        co_await all(lanes);
    scratch_.end();
    co_return ok();
}

// Every lanes-th segment, one after the other: while one lane waits for the network, another one combines.
Task<> Execution::lane_task(uint32_t lane) {
    const collectives::Plan& plan = two_level_.plan;
    for (uint32_t segment = lane; segment < plan.segments; segment += plan.lanes) {
        sweep_lanes();
        if (staging_) co_await done(staging_->gate(lane, segment));
        const uint64_t scratch = scratch_of(two_level_, segment);
        if (!op_.stopped && !scratch_.may_begin(segment, scratch)) {
            ScratchShare::Waiter waiter(scratch_.share(), scratch_.tenant(), &scratch_, segment,
                                        op_.origin.priority);
            co_await done(waiter.op);
        }
        scratch_.begin(segment, scratch);
        const size_t mesh = context_.mesh_for(op_.cls, plan.bytes, lane, facts_.bulk_shards);
        lanes_.push_back(std::make_unique<MeshLane>(context_, op_, segment * plan.phases, mesh));
        MeshLane& verbs = *lanes_.back();
        verbs.segment = segment;
        verbs.scratch_max = scratch;
        co_await run_segment(verbs, two_level_, segment);
        verbs.retired = true;
        end_segment(segment);
    }
    sweep_lanes();  // what is over by now gives its scratch back
    co_return ok();
}

Result<void> Execution::set_oldest() {
    return started() && task_ended() ? Result<void>{} : scratch_.set_oldest();
}

void Execution::check_invariants() const {
    for (const auto& lane : lanes_) NEXAR_CHECK(lane->scratch_taken() <= lane->scratch_max);
}

// Transfers that its task did not wait for touch scratch only: nothing touches a window of this segment any
// more.
void Execution::end_segment(uint32_t segment) {
    ++segments_ended_;
    if (!staging_ || !staging_->end_segment(segment)) return;
    for (const Staging::Member& member : staging_->members())
        owner_.segments_done(member, staging_->segments_ended());
}

void Execution::sweep_lanes() {
    for (auto at = lanes_.begin(); at != lanes_.end();) {
        if (!(*at)->retired || !(*at)->idle()) {
            ++at;
            continue;
        }
        const uint32_t segment = (*at)->segment;
        at = lanes_.erase(at);
        scratch_.over(segment);
    }
}

void Execution::release() {
    op_.pins.clear();
    two_level_.locals.clear();
    lanes_.clear();
    scratch_.clear();
}

void Execution::stop(const Error& error) {
    op_.stopped = error;
    op_.work_unwanted->store(true, std::memory_order_relaxed);
    withdraw();
    if (staging_) staging_->fail(error);
    scratch_.fail(error);
}

void Execution::withdraw() {
    for (MeshPort* mesh : context_.ports.meshes) mesh->withdraw(op_.key);
}

bool Execution::on_progress(SessionId session, uint64_t ticket, uint32_t filled, uint32_t taken) {
    return staging_ && staging_->on_progress(session, ticket, filled, taken);
}

bool Execution::leave(uint32_t rank) {
    const Staging::Member* member = staging_ ? staging_->find(rank) : nullptr;
    if (member == nullptr) return true;
    staging_->leave(rank);
    return member->has_filled() || op_.stopped;  // one that was aborted ends without it
}

bool Execution::has_filled(uint32_t rank) const {
    const Staging::Member* member = staging_ ? staging_->find(rank) : nullptr;
    return member == nullptr || member->has_filled();
}

}  // namespace nexar::engine
