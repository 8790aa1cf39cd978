#include "engine/group.hpp"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "core/check.hpp"
#include "engine/known_operation.hpp"
#include "membership/failure_texts.hpp"
#include "wire/codec.hpp"

namespace nexar::engine {

using collectives::NodeIndex;

namespace {

constexpr size_t ends_ahead_windows = 16;  // of seq_window each: the most ends that are remembered
constexpr size_t unseen_calls_max = 256;

}  // namespace

Group::Group(Context& context, GroupHost& host, Timers& timers, GroupFacts f, std::vector<LocalRank> local)
    : Alarm(timers, user_of(local)),
      facts(std::move(f)),
      context_(context),
      host_(host),
      timers_(timers),
      local_(std::move(local)),
      messages_(*this, timers),
      lifecycle_(*this,
                 {facts.id, facts.epoch, static_cast<uint32_t>(facts.nodes.size()), facts.self.value}) {
    std::set<TenantRef> tenants;
    for (const LocalRank& rank : local_)
        if (rank.tenant && tenants.insert(rank.tenant).second) tenants_.push_back(rank.tenant);
}

Group::~Group() {
    count_runs(-static_cast<ptrdiff_t>(runs_.size()));
    context_.executor.forget(this);
}

// ---- Sessions ----

LocalRank* Group::find_local(SessionId session, uint32_t rank) {
    for (LocalRank& local : local_)
        if (local.session == session && local.rank == rank) return &local;
    return nullptr;
}

Result<void> Group::submit(LocalRank& local, const OpRequest& request) {
    if (local.left) return fail(Errc::closed, "this rank has left the group " + facts.name);
    if (!request.known || !request.known->checked) {
        NEXAR_TRY_VOID(check_request(facts, local.rank, request));
        if (request.known) request.known->checked = true;
    }
    if (failed_) return fail(*failed_);  // [F16]
    if (context_.config.on_request) context_.config.on_request(context_.now, facts.id);
    const OpRow& row = row_of(request.descriptor.kind);
    if (!row.collective) return submit_message(local, request);
    if (row.makes_groups) NEXAR_TRY_VOID(check_makes_groups(request));
    if (local.posted >= lowest_open_seq() + context_.config.seq_window)
        return fail(Errc::table_full, "rank " + std::to_string(local.rank) + " is " +
                                          std::to_string(context_.config.seq_window) +
                                          " collectives ahead of the slowest, the most that are accepted");
    const auto known = runs_.find(local.posted);
    const bool is_first = known == runs_.end() || !known->second->has_posts();
    const bool has_room = facts.nodes.size() == 1 || !is_first;
    Count count;
    if (is_first) {
        NEXAR_TRY(count, charge(local, local_.size()));
    }
    ControlRoom room;
    if (!has_room && !room.reserve(context_, facts.peers, facts.self.value, local.account, collective_room))
        return fail(Errc::table_full, "the control messages that wait for the other nodes of group " +
                                          facts.name + " leave no room for those of another collective");
    CollectiveRun* run = run_for(local.posted);
    NEXAR_CHECK(run != nullptr);
    if (is_first) run->set_count(std::move(count));
    if (!has_room) run->set_room(std::move(room));
    ++local.posted;
    const auto index = static_cast<size_t>(&local - local_.data());
    run->post(index, row.makes_groups ? with_place(local, request) : request);
    check_departed();
    return {};
}

Result<void> Group::check_makes_groups(const OpRequest& request) const {
    if (request.child == nullptr)
        return fail(Errc::invalid_argument, request.descriptor.text() + ": it states no child");
    if (!context_.config.proof.hmac_sha256) return fail(Errc::unsupported, "this daemon makes no children");
    return {};
}

namespace {

// The limit that keeps the tenant from another group.
std::pair<ChildRefusal, uint64_t> reached(const Tenant& tenant) {
    const TenantLimits& limits = tenant.limits();
    const uint64_t own = tenant.used(Resource::groups), share = limits.share(Resource::groups),
                   total = limits.total(Resource::groups), kept = limits.kept(Resource::groups);
    if (own >= share) return {ChildRefusal::tenant, share};
    if (own < limits.start(Resource::groups) || kept == 0) return {ChildRefusal::daemon, total};
    return {ChildRefusal::kept, total - kept};  // [N19]
}

}  // namespace

// [Y4] A rank that may not have another group says so to all: the collective takes place, and fails.
OpRequest Group::with_place(const LocalRank& local, const OpRequest& request) const {
    OpRequest out = request;
    auto wish = std::make_shared<ChildRequest>(*request.child);
    out.child = wish;
    const bool wants = request.descriptor.kind == OpKind::group_dup || wish->colour != no_colour;
    if (!wants || wish->refusal != ChildRefusal::none) return out;
    if (host_.groups_now() >= host_.groups_max()) {
        wish->refusal = ChildRefusal::daemon, wish->limit = host_.groups_max();
    } else if (local.tenant != nullptr) {
        if (auto charge = local.tenant->charge(Resource::groups)) {
            wish->charge = std::move(*charge);
            return out;
        }
        std::tie(wish->refusal, wish->limit) = reached(*local.tenant);
    }
    return out;
}

Result<void> Group::submit_message(const LocalRank& local, const OpRequest& request) {
    if (request.descriptor.kind == OpKind::message_free) {  // ends at once
        NEXAR_TRY_VOID(messages_.put_back(local.rank, request.tag));
        complete(request.session, request.ticket, {});
        return {};
    }
    NEXAR_TRY(Count count, charge(local, 1));
    switch (request.descriptor.kind) {
        case OpKind::send:
            messages_.send(local, request, std::move(count));
            return {};
        case OpKind::mrecv:
            return messages_.recv_apart(local, request, std::move(count));
        default:
            return messages_.recv(local, request, std::move(count));
    }
}

// [N13] The first rank here that posts a collective pays for all, as its run has a row for each.
Result<Count> Group::charge(const LocalRank& local, uint64_t rows) const {
    if (local.tenant == nullptr) return Count();
    return local.tenant->count(Resource::requests, rows);
}

void Group::complete(SessionId session, uint64_t ticket, Outcome outcome) {
    if (!host_.has_session(session)) return;
    if (outcome.error.code != Errc::ok) outcome.error = explained(std::move(outcome.error));
    outcome.epoch = facts.epoch.value;
    host_.complete(session, ticket, outcome);
}

void Group::cancel(SessionId session, uint64_t ticket, uint64_t seq) {
    if (const auto run = runs_.find(seq); run != runs_.end())
        if (const auto error = run->second->cancel(session, ticket)) return abort(seq, *error);
    messages_.cancel(session, ticket);
}

void Group::on_stage_progress(SessionId session, uint64_t ticket, uint64_t seq, uint32_t filled,
                              uint32_t taken) {
    if (const auto run = runs_.find(seq); run != runs_.end())
        run->second->on_stage_progress(session, ticket, filled, taken);
}

void Group::leave(LocalRank& local, Leaving how, const std::string& reason) {
    if (local.left) return;
    local.left = true;
    if (how == Leaving::freed) close_pending(local, reason);
    const bool aborts = how == Leaving::given_up || how == Leaving::aborted;
    const uint64_t handed_over = how == Leaving::freed ? local.posted
                                 : aborts              ? abort_pending(local, how, reason)
                                                       : leave_collectives(local.rank, local.posted);
    const std::string why =
        handed_over == local.posted || aborts
            ? reason
            : reason + ", and had not moved all bytes of collective " + std::to_string(handed_over);
    const bool crashed = how == Leaving::crashed || aborts;
    const wire::RankGone gone{facts.id, facts.epoch.value,    local.rank, handed_over, crashed,
                              why,      how == Leaving::freed};
    departed_[local.rank] = gone;
    to_others(gone);
    messages_.on_rank_gone(local.rank);
    host_.rank_left(facts.id, local.rank);
    for (auto& [seq, run] : runs_) run->on_local_left();
    check_departed();
    run_changed();
}

// The pending operations of a rank that frees the group, except its sends, end with CLOSED, and its
// collectives end with ABORTED on all other ranks. The aborts are sent before the RankGone.
void Group::close_pending(const LocalRank& local, const std::string& reason) {
    const Error closed{Errc::closed, "the group was freed by this rank", -1, -1, {}};
    for (auto& [seq, run] : runs_)
        if (const auto error = run->close(local.rank, closed, reason)) abort(seq, *error);
    messages_.close(local.rank, closed);
}

// Returns how many collectives a departing rank has handed over: the posted ones, up to one whose staged
// input is incomplete. That one cannot complete on any node.
uint64_t Group::leave_collectives(uint32_t rank, uint64_t posted) {
    uint64_t handed_over = posted;
    for (auto& [seq, run] : runs_)
        if (!run->leave(rank)) handed_over = std::min(handed_over, seq);
    return handed_over;
}

// Ends the pending operations of a rank whose process gave the daemon up, and may use its memory for
// something else, or that aborts the group. Returns the number of collectives that had ended for it.
uint64_t Group::abort_pending(const LocalRank& local, Leaving how, const std::string& reason) {
    const NodeId& node = facts.members[local.rank].node;
    const Error lost = membership::rank_lost(node, local.rank, reason);
    const bool aborted = how == Leaving::aborted;
    const Error own = aborted ? Error{Errc::closed, "the group was aborted by this rank", -1, -1, {}} : lost;
    uint64_t over = local.posted;
    for (auto& [seq, run] : runs_) {
        const bool ended = run->state() == CollectiveRun::State::stopping;  // aborted on all ranks
        if (ended || !run->close(local.rank, own, reason)) continue;
        run->stop_unreported(lost);
        over = std::min(over, seq);
    }
    if (!aborted) messages_.fail_copies(local.rank, lost);
    messages_.abort_pending(local.rank, own);
    return over;
}

WorkOrigin Group::work_origin(link::Account account, SessionId session) const {
    return {account.value, session.value, std::hash<GroupId>()(facts.id)};
}

bool Group::is_agreeing() const {
    return lifecycle_.state() == membership::GroupLifecycle::State::frozen && !failed_;
}

bool Group::finished() const {
    return !is_agreeing() && std::ranges::all_of(local_, &LocalRank::left) && runs_.empty() &&
           messages_.idle();
}

// ---- Runs ----

// All local ranks have posted all collectives below this number; one of them that is not in runs_ has ended.
uint64_t Group::lowest_open_seq() const {
    uint64_t lowest = UINT64_MAX;
    for (const LocalRank& local : local_)
        if (!local.left) lowest = std::min(lowest, local.posted);
    return lowest;
}

CollectiveRun* Group::run_for(uint64_t seq) {
    const auto it = runs_.find(seq);
    if (it != runs_.end()) return it->second.get();
    // Not in a group where no rank can post it any more.
    if (failed_ || std::ranges::all_of(local_, &LocalRank::left)) return nullptr;
    const uint64_t open = lowest_open_seq();
    if (seq < open || seq - open > context_.config.seq_window) return nullptr;
    CollectiveRun& run =
        *runs_.emplace(seq, std::make_unique<CollectiveRun>(*this, timers_, seq)).first->second;
    count_runs(1);
    if (const auto ended = ended_ahead_.extract(seq)) run.stop(ended_ahead_error(seq, ended.mapped()));
    return &run;
}

void Group::run_ended(uint64_t seq) {
    ended_.push_back(seq);
    run_changed();
}

void Group::remove_ended() {
    std::ranges::sort(ended_);
    for (const uint64_t seq : ended_) {
        const auto at = runs_.find(seq);
        if (auto call = at->second->unseen_call()) unseen_calls_.push_back(*call);
        if (unseen_calls_.size() > unseen_calls_max) unseen_calls_.pop_front();
        runs_.erase(at);
        count_runs(-1);
    }
    ended_.clear();
}

// So that `status` need not ask all groups [N17].
void Group::count_runs(ptrdiff_t more) {
    context_.collectives += static_cast<size_t>(more);
    for (const TenantRef& tenant : tenants_) tenant->collectives += static_cast<size_t>(more);
}

// A rank whose list of counts has nothing for the announcing node has ended, and that node waits for what
// never comes: it learns why. The ranks here keep their results.
void Group::compare_with_ended(NodeIndex from, const wire::OpAnnounce& announce) {
    const auto ended = std::ranges::find(unseen_calls_, announce.seq, &EndedCall::seq);
    if (ended == unseen_calls_.end() || context_.config.sabotage.skip_descriptor_check) return;
    const auto mismatch = compare(facts, *ended, announce);
    if (mismatch && ended->answers++ < facts.nodes.size())
        to_node(from, wire::OpAbort{facts.id, facts.epoch.value, announce.seq, *mismatch});
}

void Group::run() {
    remove_ended();
    size_t running = 0;
    bool older_runs = false;
    for (auto& [seq, run] : runs_) {
        if (running >= context_.config.runs_per_group_max) break;
        if (run->state() == CollectiveRun::State::waiting) break;  // so do later ones: posts come in order
        if (frozen_at_ && seq >= run_below_) break;                // [G4]
        const bool begins = run->state() == CollectiveRun::State::ready;
        const bool has_work = begins || run->state() == CollectiveRun::State::running;
        if (has_work && !std::exchange(older_runs, true)) run->set_oldest();
        if (begins) run->start();
        ++running;
    }
    lifecycle_.on_progress(context_.now);
    drain_agreement();
    if (finished()) host_.group_finished(facts.id);
}

void Group::abort(uint64_t seq, const Error& error) {
    CollectiveRun* run = run_for(seq);
    if (run == nullptr || run->is_stopped()) return;  // all nodes have received the abort, or will
    to_others(wire::OpAbort{facts.id, facts.epoch.value, seq, error}, &run->room());
    run->stop(error);
}

void Group::on_abort(const wire::OpAbort& abort) {
    if (CollectiveRun* run = run_for(abort.seq))
        run->stop(abort.error);
    else if (abort.seq >= lowest_open_seq() && !failed_)
        remember_end(abort);
}

// A collective that succeeds needs all ranks, so a rank is ahead of the others by its pending operations at
// most. A rank whose collectives are aborted continues with the next, so its aborts may be any number of
// collectives ahead of the ranks here. Little is kept of each, and if there are too many, the group ends.
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

Error Group::ended_ahead_error(uint64_t seq, const EndedAhead& ended) const {
    const bool named = ended.rank >= 0 && ended.rank < int64_t{facts.size()};
    const std::string text = "collective " + std::to_string(seq) + " ended long before this rank called it" +
                             (named ? ", for " + facts.describe(static_cast<uint32_t>(ended.rank)) : "");
    return {ended.code, text, named ? ended.rank : -1, -1, {}};
}

void Group::on_announce(NodeIndex from, const wire::OpAnnounce& announce) {
    if (announce.first_rank >= facts.size() || facts.layout.node_of(announce.first_rank) != from) return;
    // That node's algorithm may have other phases and classes, so that no data header would show the
    // difference.
    if (announce.plan_hash != 0 && announce.plan_hash != facts.table_hash)
        return abort_mismatched_tables(announce.seq, facts.nodes[from.value].short_hex());
    if (CollectiveRun* run = run_for(announce.seq))
        run->on_announce(from, announce);
    else
        compare_with_ended(from, announce);
}

void Group::on_arrival_query(link::PeerIndex from, const wire::ArrivalQuery& query) {
    wire::ArrivalReply reply{facts.id, query.nonce, {}};
    const auto run = runs_.find(query.seq);
    for (const LocalRank& local : local_) {
        const bool stalled = run != runs_.end() && run->second->waits_for_bytes_of(local.rank);
        reply.ranks.push_back({local.rank, local.posted, stalled});
    }
    context_.send(from, reply);
}

// It names the run that asked, as the reply states no number. Never 0: what has not asked has that.
uint64_t Group::arrival_nonce(uint64_t seq) {
    if (first_nonce_ == 0) first_nonce_ = context_.random.next() / 2 + 1;
    return first_nonce_ + seq;
}

void Group::on_arrival_reply(NodeIndex from, const wire::ArrivalReply& reply) {
    // A node reports its own ranks only, each once.
    const auto own = [&](const wire::Arrival& a) {
        return a.rank < facts.size() && facts.layout.node_of(a.rank) == from;
    };
    if (reply.ranks.size() > facts.layout.ranks_on(from).size() || !std::ranges::all_of(reply.ranks, own))
        return;
    const auto run = runs_.find(reply.nonce - first_nonce_);
    if (run != runs_.end()) run->second->on_arrival_reply(from, reply);
}

void Group::on_mismatch(const link::MeshEvent& event) {
    if ((event.key.op.op & link::OpKey::message_bit) != 0) return messages_.on_mismatch(event);
    const auto it = runs_.find(event.key.op.op);
    if (it == runs_.end()) return;
    if (event.theirs.plan_hash != facts.table_hash) {
        const auto node = node_of(event.peer);
        return abort_mismatched_tables(it->first, node ? facts.nodes[node->value].short_hex() : "?");
    }
    it->second->announce();  // the node that has both announcements can name the two sides
}

void Group::abort_mismatched_tables(uint64_t seq, const std::string& other) {
    abort(seq, {Errc::mismatch,
                "the plan tables of node " + facts.nodes[facts.self.value].short_hex() + " and of node " +
                    other + " differ",
                -1,
                -1,
                {}});
}

Tenant* Group::tenant() const {
    for (const LocalRank& local : local_)
        if (local.tenant) return local.tenant.get();
    return nullptr;
}

uint64_t Group::user_of(const std::vector<LocalRank>& local) {
    const auto first = std::ranges::find_if(local, [](const LocalRank& l) { return l.tenant != nullptr; });
    return first == local.end() ? 0 : first->user();
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

// A node says the end of its own ranks only [F10].
void Group::on_rank_gone(NodeIndex from, const wire::RankGone& gone) {
    if (gone.rank >= facts.size() || facts.layout.node_of(gone.rank) != from) return;
    if (!departed_.emplace(gone.rank, gone).second) return;
    messages_.on_rank_gone(gone.rank);
    host_.rank_left(facts.id, gone.rank);
    check_departed();
}

uint64_t Group::departed_handed_over() const {
    uint64_t lowest = UINT64_MAX;
    for (const auto& [rank, gone] : departed_) lowest = std::min(lowest, gone.collectives_handed_over);
    return lowest;
}

std::optional<Error> Group::departure_error(uint32_t rank, bool waited) const {
    const auto it = departed_.find(rank);
    if (it == departed_.end() || it->second.crashed) return {};  // a crash ends the group with its own error
    return Error{waited && it->second.freed ? Errc::aborted : Errc::peer_lost,
                 facts.describe(rank) + " has left: " + it->second.reason, rank, -1,
                 facts.members[rank].node.hex()};
}

void Group::transfer_lost(const Error& error) {
    if (failed_) return;
    for (uint32_t i = 0; i < facts.peers.size(); ++i)
        if (i != facts.self.value && !host_.reachable(facts.peers[i]))
            host_.peer_unreachable(facts.peers[i], error.text);
}

}  // namespace nexar::engine
