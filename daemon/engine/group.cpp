#include "engine/group.hpp"

#include <algorithm>

#include "core/check.hpp"
#include "membership/failure_texts.hpp"
#include "wire/codec.hpp"

namespace nexar::engine {

using collectives::NodeIndex;

namespace {

constexpr size_t ends_ahead_windows = 16;  // of seq_window each: how many ends are remembered

bool overlap(const Buffer& a, uint64_t a_bytes, const Buffer& b, uint64_t b_bytes) {
    return a_bytes > 0 && b_bytes > 0 && a.data < b.data + b_bytes && b.data < a.data + a_bytes;
}

Result<void> check_room(const char* which, const Buffer& buffer, uint64_t needed,
                        const OpDescriptor& descriptor) {
    if (needed == 0 || (buffer.data != nullptr && buffer.bytes >= needed)) return {};
    return fail(Errc::invalid_argument, descriptor.text() + " needs " + std::to_string(needed) +
                                            " bytes of " + which + ", there are " +
                                            std::to_string(buffer.data == nullptr ? 0 : buffer.bytes));
}

}  // namespace

std::string GroupFacts::describe(uint32_t rank) const {
    return "rank " + std::to_string(rank) + " (node " + members[rank].node.short_hex() + ", pid " +
           std::to_string(members[rank].pid) + ")";
}

Error GroupFacts::explained(Error error) const {
    const bool named = error.rank >= 0 && error.rank < int64_t{size()};
    if (named) {
        const auto& member = members[static_cast<size_t>(error.rank)];
        if (error.node.empty()) error.node = member.node.hex();
        if (error.pid == 0 && error.node == member.node.hex()) error.pid = member.pid;
        if (error.code == Errc::peer_lost && error.lost_ranks.empty())
            error.lost_ranks.push_back(static_cast<uint32_t>(error.rank));
    }
    for (size_t i = 0; i < nodes.size() && error.host.empty(); ++i)
        if (error.node == nodes[i].hex()) error.host = hosts[i];
    return error;
}

Result<void> GroupFacts::check_supported(const OpDescriptor& descriptor) const {
    const uint64_t needed = feature_of(descriptor.kind);
    if ((features & needed) == needed) return {};
    const auto lacks = std::ranges::find_if(
        members, [&](const auto& member) { return (member.features & needed) != needed; });
    const std::string& host = hosts[layout.node_of(lacks->rank).value];
    return fail(Error{Errc::unsupported,
                      std::string(name_of(descriptor.kind)) + ": node " + lacks->node.short_hex() +
                          (host.empty() ? "" : " (" + host + ")") + ", which has rank " +
                          std::to_string(lacks->rank) + ", runs a daemon without this operation; upgrade it",
                      lacks->rank, -1, lacks->node.hex()});
}

// The cut's error names the first that was lost. Others may have been lost since.
Error Group::explained(Error error) const {
    error = facts.explained(std::move(error));
    if (error.code != Errc::peer_lost) return error;
    for (uint32_t rank = 0; rank < facts.size(); ++rank)
        if (is_lost(rank)) error.lost_ranks.push_back(rank);
    std::ranges::sort(error.lost_ranks);
    const auto twice = std::ranges::unique(error.lost_ranks);
    error.lost_ranks.erase(twice.begin(), twice.end());
    return error;
}

bool Group::is_lost(uint32_t rank) const {
    if (const auto it = gone_.find(rank); it != gone_.end()) return it->second.crashed;
    const NodeIndex node = facts.layout.node_of(rank);
    if (lifecycle_.excludes(node.value)) return true;
    return failed_ && node != facts.self && !host_.reachable(facts.peers[node.value]);
}

Group::Group(Context& context, GroupHost& host, Timers& timers, GroupFacts f, std::vector<LocalRank> local)
    : Alarm(timers),
      facts(std::move(f)),
      context_(context),
      host_(host),
      timers_(timers),
      local_(std::move(local)),
      messages_(*this, timers),
      lifecycle_(*this,
                 {facts.id, facts.epoch, static_cast<uint32_t>(facts.nodes.size()), facts.self.value}) {}

Group::~Group() {
    context_.executor.forget(this);
}

// ---- Sessions ----

LocalRank* Group::find_local(SessionId session, uint32_t rank) {
    for (LocalRank& local : local_)
        if (local.session == session && local.rank == rank) return &local;
    return nullptr;
}

Result<void> Group::check(const LocalRank& local, const OpRequest& request) const {
    const OpDescriptor& d = request.descriptor;
    NEXAR_TRY_VOID(facts.check_supported(d));
    const uint32_t size = facts.size();
    const uint64_t element = reduce::size_of(d.dtype);
    if (d.count > (uint64_t{1} << 62) / element / size)
        return fail(Errc::invalid_argument,
                    d.text() + ": the count is too large for " + std::to_string(size) + " ranks");
    const OpRow& row = row_of(d.kind);
    if (d.root >= size && row.rooted)
        return fail(Errc::invalid_argument,
                    d.text() + ": the root must be below the group's size " + std::to_string(size));
    const bool any_allowed = row.any_source && request.peer == any_rank;
    if (!row.collective && request.peer >= size && !any_allowed)
        return fail(Errc::invalid_argument, d.text() + ": rank " + std::to_string(request.peer) +
                                                " does not exist, the group's size is " +
                                                std::to_string(size));
    const uint64_t one = d.count * element;
    if (d.kind == OpKind::send && one > facts.message_bytes_max())
        return fail(Errc::invalid_argument, d.text() + ": " + std::to_string(one) +
                                                " bytes; the longest message of this group is of " +
                                                std::to_string(facts.message_bytes_max()));
    const SideBlocks blocks = blocks_of(row, size, local.rank == d.root);
    const uint64_t in = one * blocks.in, out = one * blocks.out;
    return request.stage.windows > 0 ? check_stage(request, in, out) : check_memory(local, request, in, out);
}

Result<void> Group::check_memory(const LocalRank& local, const OpRequest& request, uint64_t in,
                                 uint64_t out) const {
    const OpDescriptor& d = request.descriptor;
    NEXAR_TRY_VOID(check_room("input", request.in, in, d));
    NEXAR_TRY_VOID(check_room("output", request.out, out, d));
    if (!overlap(request.in, in, request.out, out)) return {};
    // In place: the same start, or this rank's own block of the larger buffer.
    const uint64_t own = local.rank * d.count * reduce::size_of(d.dtype);
    if (may_share(row_of(d.kind).in_place, request.in.data, request.out.data, own)) return {};
    return fail(Errc::invalid_argument, d.text() + ": input and output overlap, and not as in-place allows");
}

// Windows of one op may be the same memory on both sides where a segment has one place on both.
Result<void> Group::check_stage(const OpRequest& request, uint64_t in, uint64_t out) const {
    const OpDescriptor& d = request.descriptor;
    const Stage& stage = request.stage;
    const OpRow& row = row_of(d.kind);
    if (!row.collective || !row.has_elements)
        return fail(Errc::invalid_argument, d.text() + " cannot be staged");
    if (stage.windows > NEXAR_SHM_STAGE_WINDOWS_MAX)
        return fail(Errc::invalid_argument, d.text() + ": " + std::to_string(stage.windows) +
                                                " windows; allowed: 1 to " +
                                                std::to_string(NEXAR_SHM_STAGE_WINDOWS_MAX));
    const uint32_t segments = segments_of(row, d.count, reduce::size_of(d.dtype), facts.size(),
                                          collectives::segment_bytes_of(facts.layout, facts.table));
    const uint64_t longest = collectives::part_of(d.count, segments, 0).count;
    const auto room = [&](bool staged, uint64_t bytes, uint64_t stride) -> uint64_t {
        if (!staged || bytes == 0) return bytes;
        const uint64_t window = bytes / d.count * longest;
        uint64_t all = 0;
        const bool fits = stride >= window && !__builtin_mul_overflow(stride, stage.windows, &all);
        return fits ? all : UINT64_MAX;
    };
    const uint64_t in_room = room(stage.in, in, stage.in_stride);
    const uint64_t out_room = room(stage.out, out, stage.out_stride);
    NEXAR_TRY_VOID(check_room("input windows", request.in, in_room, d));
    NEXAR_TRY_VOID(check_room("output windows", request.out, out_room, d));
    if (!overlap(request.in, in_room, request.out, out_room)) return {};
    if (row.in_place == InPlace::same && stage.in && stage.out && request.in.data == request.out.data &&
        stage.in_stride == stage.out_stride)
        return {};
    return fail(Errc::invalid_argument,
                d.text() + ": windows of input and output overlap, and not as in-place allows");
}

Result<void> Group::submit(LocalRank& local, const OpRequest& request) {
    if (local.left) return fail(Errc::closed, "this rank has left the group " + facts.name);
    NEXAR_TRY_VOID(check(local, request));
    if (failed_) return fail(*failed_);  // [F16]
    const OpKind kind = request.descriptor.kind;
    if (!row_of(kind).collective) {
        if (kind == OpKind::send)
            messages_.send(local, request);
        else
            messages_.recv(local, request);
        return {};
    }
    if (local.posted >= lowest_open() + context_.config.seq_window)
        return fail(Errc::table_full, "rank " + std::to_string(local.rank) + " is " +
                                          std::to_string(context_.config.seq_window) +
                                          " collectives ahead of the slowest; no more are taken");
    const auto known = runs_.find(local.posted);
    const bool has_room = facts.nodes.size() == 1 || (known != runs_.end() && known->second->has_posts());
    ControlRoom room;
    if (!has_room && !room.reserve(context_, facts.peers, facts.self.value, local.account, collective_room))
        return fail(Errc::table_full, "the control messages that wait for the other nodes of group " +
                                          facts.name + " leave no room for those of another collective");
    CollectiveRun* run = run_for(local.posted);
    NEXAR_CHECK(run != nullptr);
    if (!has_room) run->give(std::move(room));
    ++local.posted;
    run->post(static_cast<size_t>(&local - local_.data()), request);
    check_watermark();
    return {};
}

void Group::complete(SessionId session, uint64_t ticket, Outcome outcome) {
    if (outcome.error.code != Errc::ok) outcome.error = explained(std::move(outcome.error));
    outcome.epoch = facts.epoch.value;
    host_.complete(session, ticket, outcome);
}

bool Group::cancel(SessionId session, uint64_t ticket) {
    for (auto& [seq, run] : runs_) {
        const auto error = run->cancel(session, ticket);
        if (!error) continue;
        abort(seq, *error);
        return true;
    }
    return messages_.cancel(session, ticket);
}

bool Group::moved(SessionId session, uint64_t ticket, uint32_t filled, uint32_t taken) {
    return std::ranges::any_of(
        runs_, [&](auto& entry) { return entry.second->moved(session, ticket, filled, taken); });
}

void Group::leave(LocalRank& local, Leaving how, const std::string& reason) {
    if (local.left) return;
    local.left = true;
    if (how == Leaving::freed) close_pending(local, reason);
    const uint64_t handed_over = how == Leaving::freed      ? local.posted
                                 : how == Leaving::given_up ? take_back(local, reason)
                                                            : leave_runs(local.rank, local.posted);
    const std::string why =
        handed_over == local.posted || how == Leaving::given_up
            ? reason
            : reason + ", and had not moved all bytes of collective " + std::to_string(handed_over);
    const bool crashed = how == Leaving::crashed || how == Leaving::given_up;
    const wire::RankGone gone{facts.id, facts.epoch.value,    local.rank, handed_over, crashed,
                              why,      how == Leaving::freed};
    gone_[local.rank] = gone;
    to_others(gone);
    messages_.on_rank_gone(local.rank);
    for (auto& [seq, run] : runs_) run->local_left();
    check_watermark();
    run_changed();
}

// [D7] What a rank that frees the group has pending ends with CLOSED here, all but its sends, and a
// collective with ABORTED on all other ranks. That is said before the rank is said to be gone.
void Group::close_pending(const LocalRank& local, const std::string& reason) {
    const Error closed{Errc::closed, "the group was freed by this rank", -1, -1, {}};
    for (auto& [seq, run] : runs_)
        if (const auto error = run->close(local.rank, closed, reason)) abort(seq, *error);
    messages_.close(local.rank, closed);
}

// How many collectives a rank that leaves has handed over: what it posted, up to one whose staged input is
// not all there. That one cannot end, and the others are to know it.
uint64_t Group::leave_runs(uint32_t rank, uint64_t posted) {
    uint64_t handed_over = posted;
    for (auto& [seq, run] : runs_)
        if (!run->leave(rank)) handed_over = std::min(handed_over, seq);
    return handed_over;
}

// What this rank has pending ends now: its memory has other uses. How many collectives are over for it.
uint64_t Group::take_back(const LocalRank& local, const std::string& reason) {
    const NodeId& node = facts.members[local.rank].node;
    const Error lost = membership::rank_lost({node, {}, local.rank, {}}, local.rank, reason);
    uint64_t over = local.posted;
    for (auto& [seq, run] : runs_) {
        const bool ended = run->state() == CollectiveRun::State::stopping;  // for another reason, for all
        if (ended || !run->close(local.rank, lost, reason)) continue;
        run->halt(lost);
        over = std::min(over, seq);
    }
    messages_.take_back(local.rank, lost);
    return over;
}

bool Group::agreeing() const {
    return lifecycle_.state() == membership::GroupLifecycle::State::frozen && !failed_;
}

bool Group::finished() const {
    return !agreeing() && std::ranges::all_of(local_, &LocalRank::left) && runs_.empty() && messages_.idle();
}

// ---- Runs ----

// All collectives below have been posted by all local ranks: what is not in runs_ of them is over.
uint64_t Group::lowest_open() const {
    uint64_t lowest = UINT64_MAX;
    for (const LocalRank& local : local_)
        if (!local.left) lowest = std::min(lowest, local.posted);
    return lowest;
}

CollectiveRun* Group::run_for(uint64_t seq) {
    const auto it = runs_.find(seq);
    if (it != runs_.end()) return it->second.get();
    if (failed_) return nullptr;  // nobody can post it any more
    const uint64_t open = lowest_open();
    if (seq < open || seq - open > context_.config.seq_window) return nullptr;
    CollectiveRun& run =
        *runs_.emplace(seq, std::make_unique<CollectiveRun>(*this, timers_, seq)).first->second;
    if (const auto ended = ended_ahead_.extract(seq)) run.stop(ended_long_ago(seq, ended.mapped()));
    return &run;
}

void Group::run() {
    std::erase_if(runs_,
                  [](const auto& entry) { return entry.second->state() == CollectiveRun::State::over; });
    size_t running = 0;
    for (auto& [seq, run] : runs_) {
        if (running >= context_.config.runs_per_group_max) break;
        if (run->state() == CollectiveRun::State::waiting)
            break;                                // later ones wait as well: posts come in order
        if (frozen_ && seq >= run_below_) break;  // [G4]
        if (run->state() == CollectiveRun::State::ready) run->start();
        ++running;
    }
    lifecycle_.on_progress(context_.now);
    drain_agreement();
    if (finished()) host_.group_finished(facts.id);
}

void Group::abort(uint64_t seq, const Error& error) {
    CollectiveRun* run = run_for(seq);
    if (run == nullptr || run->is_stopped()) return;  // all nodes have got the abort, or will
    to_others(wire::OpAbort{facts.id, facts.epoch.value, seq, error}, &run->room());
    run->stop(error);
}

void Group::on_abort(const wire::OpAbort& abort) {
    if (CollectiveRun* run = run_for(abort.seq))
        run->stop(abort.error);
    else if (abort.seq >= lowest_open() && !failed_)
        remember_end(abort);
}

// A collective that succeeds, or has no data, needs the others: a rank is ahead of them by what it may have
// pending at once. One that gives up goes on to the next, so its aborts may be any number of collectives
// ahead of the ranks here. What is kept of them is small, and where there are too many the group ends.
void Group::remember_end(const wire::OpAbort& abort) {
    const auto late = std::ranges::min_element(
        local_, {}, [](const LocalRank& local) { return local.left ? UINT64_MAX : local.posted; });
    if (ended_ahead_.size() < ends_ahead_windows * context_.config.seq_window) {
        ended_ahead_.try_emplace(abort.seq, EndedAhead{abort.error.code, abort.error.rank});
    } else {
        rank_failed(late->rank, "it is so far behind that " + std::to_string(ended_ahead_.size()) +
                                    " collectives ended before it called them");
    }
}

Error Group::ended_long_ago(uint64_t seq, const EndedAhead& ended) const {
    const bool named = ended.rank >= 0 && ended.rank < int64_t{facts.size()};
    const std::string text = "collective " + std::to_string(seq) + " ended long before this rank called it" +
                             (named ? ", for " + facts.describe(static_cast<uint32_t>(ended.rank)) : "");
    return {ended.code, text, named ? ended.rank : -1, -1, {}};
}

void Group::on_announce(NodeIndex from, const wire::OpAnnounce& announce) {
    if (announce.first_rank >= facts.size() || facts.layout.node_of(announce.first_rank) != from) return;
    // Their algorithm may be another, with other phases and classes: then no header of it meets one of ours.
    if (announce.plan_hash != 0 && announce.plan_hash != facts.table_hash)
        return tables_differ(announce.seq, facts.nodes[from.value].short_hex());
    if (CollectiveRun* run = run_for(announce.seq)) run->on_announce(from, announce);
}

void Group::on_arrival_query(link::PeerIndex from, const wire::ArrivalQuery& query) {
    wire::ArrivalReply reply{facts.id, query.nonce, {}};
    const auto run = runs_.find(query.seq);
    for (const LocalRank& local : local_) {
        const bool stalled = run != runs_.end() && run->second->waits_for_bytes_of(local.rank);
        reply.ranks.push_back({local.rank, facts.members[local.rank].pid, local.posted, stalled});
    }
    context_.send(from, reply);
}

void Group::on_arrival_reply(NodeIndex from, const wire::ArrivalReply& reply) {
    // A node speaks for its own ranks, once for each.
    const auto own = [&](const wire::Arrival& a) {
        return a.rank < facts.size() && facts.layout.node_of(a.rank) == from;
    };
    if (reply.ranks.size() > facts.layout.ranks_on(from).size() || !std::ranges::all_of(reply.ranks, own))
        return;
    // The nonce says which run asked.
    for (auto& [seq, run] : runs_) run->on_arrival_reply(from, reply);
}

void Group::on_mismatch(const link::MeshEvent& event) {
    if ((event.key.op.op & link::OpKey::message_bit) != 0) return messages_.on_mismatch(event);
    const auto it = runs_.find(event.key.op.op);
    if (it == runs_.end()) return;
    if (event.theirs.plan_hash != facts.table_hash) {
        const auto node = node_of(event.peer);
        return tables_differ(it->first, node ? facts.nodes[node->value].short_hex() : "?");
    }
    it->second->announce();  // whoever hears it, or is heard, can name the two sides
}

void Group::tables_differ(uint64_t seq, const std::string& other) {
    abort(seq, {Errc::mismatch,
                "the plan tables of node " + facts.nodes[facts.self.value].short_hex() + " and of node " +
                    other + " differ",
                -1,
                -1,
                {}});
}

// ---- Other nodes ----

std::optional<NodeIndex> Group::node_of(link::PeerIndex peer) const {
    for (uint32_t i = 0; i < facts.peers.size(); ++i)
        if (i != facts.self.value && facts.peers[i] == peer) return NodeIndex(i);
    return {};
}

void Group::to_others(const wire::Message& message, ControlRoom* room) const {
    if (facts.nodes.size() == 1) return;
    const std::vector<std::byte> bytes = wire::encode(message);
    const auto account = room == nullptr ? std::nullopt : room->spend(bytes.size());
    for (uint32_t i = 0; i < facts.peers.size(); ++i)
        if (NodeIndex(i) != facts.self) context_.ports.peers.append(facts.peers[i], bytes, account);
}

void Group::to_node(NodeIndex node, const wire::Message& message) const {
    context_.send(facts.peers[node.value], message);
}

// ---- Failure ----

void Group::on_rank_gone(const wire::RankGone& gone) {
    if (gone.rank >= facts.size() || facts.layout.node_of(gone.rank) == facts.self) return;
    if (!gone_.emplace(gone.rank, gone).second) return;
    messages_.on_rank_gone(gone.rank);
    check_watermark();
}

uint64_t Group::watermark() const {
    uint64_t lowest = UINT64_MAX;
    for (const auto& [rank, gone] : gone_) lowest = std::min(lowest, gone.collectives_handed_over);
    return lowest;
}

std::optional<Error> Group::gone_error(uint32_t rank, bool waited) const {
    const auto it = gone_.find(rank);
    if (it == gone_.end() || it->second.crashed) return {};  // a crash ends the group: the verdict says so
    return Error{waited && it->second.freed ? Errc::aborted : Errc::peer_lost,
                 facts.describe(rank) + " is gone: " + it->second.reason, rank, -1,
                 facts.members[rank].node.hex()};
}

// A crashed rank ends the group, whoever needed it. One that left is missed only by an op that it has not
// handed over: that can never end. Either way the group is to end.
void Group::check_watermark() {
    if (failed_ || gone_.empty() || lifecycle_.state() != membership::GroupLifecycle::State::active) return;
    const uint64_t mark = watermark();
    const bool needed = std::ranges::any_of(
        runs_, [&](const auto& entry) { return entry.first >= mark && entry.second->has_posts(); });
    for (const auto& [rank, gone] : gone_)
        if (gone.crashed || (needed && gone.collectives_handed_over == mark))
            return rank_failed(rank, gone.reason);
}

void Group::rank_failed(uint32_t rank, const std::string& reason) {
    const NodeId& node = facts.members[rank].node;
    lifecycle_.fail({membership::rank_lost({node, {}, rank, {}}, rank, reason), {}}, context_.now);
    drain_agreement();
}

void Group::node_failed(const NodeId& node, const Error& error) {
    const auto at = std::ranges::find(facts.nodes, node);
    if (at == facts.nodes.end()) return;
    lifecycle_.fail({error, static_cast<uint32_t>(at - facts.nodes.begin())}, context_.now);
    drain_agreement();
}

void Group::reach_changed(const NodeId& node) {
    lifecycle_.on_reach_changed(context_.now);
    drain_agreement();
    const auto at = std::ranges::find(facts.nodes, node);
    const NodeIndex index(static_cast<uint32_t>(at - facts.nodes.begin()));
    if (failed_ && !host_.reachable(facts.peers[index.value])) messages_.end_with_node(index, *failed_);
}

Result<void> Group::on_agreement(NodeIndex from, const wire::Message& message) {
    Result<void> result = lifecycle_.on_message(from.value, message, context_.now);
    drain_agreement();
    return result;
}

void Group::on_time() {
    lifecycle_.on_time(context_.now);
    drain_agreement();
}

void Group::drain_agreement() {
    while (const auto out = lifecycle_.poll_send()) to_node(NodeIndex(out->to), out->message);
    wake_at(lifecycle_.wake_at());
    if (lifecycle_.excluded().size() == excluded_announced_) return;
    excluded_announced_ = lifecycle_.excluded().size();
    for (const uint32_t node : lifecycle_.excluded()) host_.node_excluded(facts.id, facts.nodes[node]);
}

bool Group::suspects(uint32_t node) const {
    return !host_.reachable(facts.peers[node]);
}

// By the ranks here that are still in the group: what they have posted, up to one whose staged input is not
// all there.
uint64_t Group::counted() const {
    uint64_t lowest = UINT64_MAX;
    for (const LocalRank& local : local_) {
        if (local.left) continue;
        lowest = std::min(lowest, local.posted);
        for (const auto& [seq, run] : runs_)
            if (!run->has_filled(local.rank)) lowest = std::min(lowest, seq);
    }
    return lowest;
}

uint64_t Group::handed_over() const {
    return std::min(frozen_ ? frozen_at_ : counted(), watermark());
}

uint64_t Group::ended_below() const {
    uint64_t lowest = lowest_open();
    for (const auto& [seq, run] : runs_)
        if (!run->is_decided()) lowest = std::min(lowest, seq);
    return lowest;
}

void Group::freeze() {
    frozen_at_ = counted();
    frozen_ = true;
}

void Group::run_below(uint64_t seq) {
    run_below_ = seq;
    run_changed();
}

// [G2] What is not over ends here; below the cut that is only so on a node that the cut excludes.
void Group::cut(const wire::Cut& cut) {
    if (failed_) return;
    failed_ = facts.explained(cut.failed.error);
    host_.group_cut(facts.id, cut.seq, *failed_);
    messages_.cut(*failed_);
    for (auto& [seq, run] : runs_) {
        run->stop(*failed_);
        run->local_left();  // it need not wait for posts any more
    }
    run_changed();
}

void Group::abandon(const Error& error) {
    if (failed_) return;
    failed_ = facts.explained(error);
    messages_.fail_all(*failed_);
    for (auto& [seq, run] : runs_) {
        run->stop(*failed_);
        run->local_left();
    }
    run_changed();
}

void Group::transfer_lost(const Error& error) {
    if (failed_) return;
    for (uint32_t i = 0; i < facts.peers.size(); ++i)
        if (i != facts.self.value && !host_.reachable(facts.peers[i]))
            host_.peer_unreachable(facts.peers[i], error.text);
}

}  // namespace nexar::engine
