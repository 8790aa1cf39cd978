#include "engine/opening.hpp"

#include <algorithm>

#include "core/check.hpp"
#include "engine/open_room.hpp"
#include "wire/limits.hpp"

namespace nexar::engine {

namespace {

constexpr size_t opens_of_nodes = 16;  // nodes whose opens, all they may have, are kept at once [R25]

// -1 ns (not set) stays -1.
int64_t ms_of(Duration d) {
    return d < Duration{0} ? -1 : std::min(to_ms(d), wire::timeout_ms_max);
}
wire::TimeoutsRecord record_of(const Timeouts& t) {
    return {ms_of(t.collective), ms_of(t.barrier), ms_of(t.rpc)};
}

// 48 random bits: nobody guesses them, and JSON keeps the sum exact.
uint64_t first_group(const rendezvous::ProofPort& port) {
    constexpr size_t bytes = 6;
    uint64_t out = 1;
    if (!port.nonce) return out;  // this engine opens no groups
    const wire::Nonce random = port.nonce();
    for (size_t i = 0; i < bytes; ++i) out += uint64_t{random[i]} << (8 * i);
    return out;
}

rendezvous::Config config_of(const Context& context) {
    const EngineConfig& config = context.config;
    rendezvous::Config out;
    out.self = config.self;
    out.incarnation = config.incarnation;
    out.bulk_shards = static_cast<uint16_t>(config.bulk_shards);
    out.features = config.features;
    out.plan = config.plan;
    out.timeouts = record_of(config.timeouts);
    out.in_cluster = config.in_cluster;
    out.knows_lower = config.knows_lower;
    out.host_of = [&context](const NodeId& node) { return context.host_of(node); };
    out.proof = config.proof;
    out.first_group = first_group(config.proof);
    out.node_opens_max = config.node_opens_max;
    out.directory_max = opens_of_nodes * config.node_opens_max;
    out.open_log_bytes_max = link::ControlLog::cost_of(open_bytes_max);
    out.log_room = [&context](const NodeId& node) {
        const auto peer = context.find_peer(node);
        const auto room = peer ? context.ports.peers.log_room(*peer) : link::LogRoom{};
        return rendezvous::LogRoom{room.prepares, room.refusals, room.opens};
    };
    return out;
}

}  // namespace

Opening::Opening(Context& context) : context_(context), machine_(config_of(context)) {}

Result<uint64_t> Opening::open(const OpenRequest& request, ChargeRef charge, const Creation* creation) {
    if (!creation && !context_.config.credentials)
        return fail(Errc::unsupported, "this daemon has no rendezvous");
    rendezvous::OpenSpec spec;
    spec.session = request.session;
    const rendezvous::Credentials credentials =
        creation ? creation->credentials : context_.config.credentials(request);
    if (creation) spec.parent_ranks = creation->ranks;
    spec.key = credentials.key;
    spec.local = !credentials.proof;
    spec.proof = credentials.proof.value_or(rendezvous::ProofKey{});
    spec.name = request.name;
    spec.size = request.size;
    spec.rank = request.rank;
    spec.pid = request.pid;
    if (request.tenant) spec.opener_mark = request.tenant->name.mark();
    spec.timeout = request.timeout;
    spec.timeouts = record_of(request.asked);
    NEXAR_TRY(spec.payer, payer_of(request, spec.local));
    NEXAR_TRY(const wire::RequestId id, machine_.open(spec, context_.now));
    requests_by_number_[id.number] = {request.session, request.ticket, std::move(charge)};
    numbers_[{request.session, request.ticket}] = id.number;
    return id.number;
}

// [L8] None: no message of the open leaves this node while its leader is this one.
Result<rendezvous::PayerRef> Opening::payer_of(const OpenRequest& request, bool local) {
    if (local) return nullptr;
    auto room = std::make_shared<OpenRoom>(context_, link::Account(request.tenant->number));
    const NodeId leader = machine_.leader();
    const auto peer = leader == context_.config.self ? std::nullopt : context_.find_peer(leader);
    if (peer && !room->reserve(*peer))
        return fail(Errc::table_full,
                    "the control log with node " + context_.host_of(leader) + " (" + leader.short_hex() +
                        "), where the ranks of groups are collected, has no room for another open: it has "
                        "not taken yet what waits there of this user, or of all users. Wait until some of "
                        "the opens have ended, and open and cancel fewer at a time");
    return room;
}

std::optional<uint64_t> Opening::number_of(SessionId session, uint64_t ticket) const {
    const auto at = numbers_.find({session, ticket});
    return at == numbers_.end() ? std::nullopt : std::optional(at->second);
}

bool Opening::cancel(SessionId session, uint64_t ticket) {
    const auto number = number_of(session, ticket);
    if (!number) return false;
    take(*number);
    machine_.withdraw({context_.config.self, *number}, context_.now);
    return true;
}

void Opening::end(SessionId session, uint64_t ticket, const Error& error) {
    if (const auto number = number_of(session, ticket))
        machine_.end({context_.config.self, *number}, error, context_.now);
}

bool Opening::is_reserved(SessionId session, uint64_t ticket) const {
    const auto number = number_of(session, ticket);
    return number && machine_.is_reserved({context_.config.self, *number});
}

void Opening::session_ended(SessionId session) {
    for (auto at = numbers_.lower_bound({session, 0}); at != numbers_.end() && at->first.first == session;
         at = numbers_.erase(at))
        requests_by_number_.erase(at->second);
    machine_.withdraw_session(session, context_.now);
}

std::optional<Opening::Request> Opening::take(uint64_t number) {
    const auto node = requests_by_number_.extract(number);
    if (node.empty()) return {};
    numbers_.erase({node.mapped().session, node.mapped().ticket});
    return std::move(node.mapped());
}

// Each open of the rendezvous has a row and its place in the index, but those of processes that have gone.
void Opening::check_invariants() const {
    machine_.check_invariants();
    NEXAR_CHECK(requests_by_number_.size() == numbers_.size());
    NEXAR_CHECK(requests_by_number_.size() <= machine_.pending());
    for (const auto& [number, request] : requests_by_number_)
        NEXAR_CHECK(number_of(request.session, request.ticket) == number);
}

Opening::Formed Opening::formed(const rendezvous::Opened& opened) {
    Formed out{opened.group, {}, opened.proof};
    for (const auto& [request, rank] : opened.ranks) {
        const auto asked = take(request.number);
        if (!asked) {
            out.locals.push_back({rank.value, {}, 0, true, {}});
            continue;
        }
        out.locals.push_back({rank.value, asked->session, asked->ticket, false, asked->charge});
    }
    for (const Rank rank : opened.gone) out.locals.push_back({rank.value, {}, 0, true, {}});
    std::ranges::sort(out.locals, {}, &Formed::Local::rank);
    return out;
}

namespace {

rendezvous::FormingScope scope_of(const SnapshotScope& scope) {
    return {scope.tenant ? scope.tenant->mark() : 0, scope.group, scope.forming_max, scope.rows_max};
}

}  // namespace

void Opening::inquire(const SnapshotScope& scope, bool also) {
    if (also)
        machine_.inquire_also(scope_of(scope));
    else
        machine_.inquire(scope_of(scope));
}

OpeningSnapshot Opening::snapshot_of(Time now, rendezvous::FormingGroup group) const {
    constexpr size_t key_digits_shown = 8;
    const auto rank_of = [](int64_t rank, uint32_t size) {
        return rank < 0 || rank >= size ? std::nullopt : std::optional(rank);
    };
    OpeningSnapshot one;
    one.name = std::move(group.name);
    one.key = NodeId{group.key}.hex().substr(0, key_digits_shown);
    one.size = group.size;
    one.opener_mark = group.opener_mark;
    one.local = group.local;
    one.being_made = group.reserved;
    one.leader = group.leader;
    one.age = now - group.since;
    if (group.deadline != never) one.left = std::max(group.deadline - now, Duration{0});
    one.here_count = group.here_count;
    for (const auto& open : group.here)
        one.here.push_back(
            {rank_of(open.rank, group.size), context_.config.self, open.pid, now - open.since});
    if (group.arrived) {
        one.reported = true;
        for (const auto& member : group.arrived->came)
            one.came.push_back({rank_of(member.rank, group.size), member.node, member.pid, {}});
        one.came_count = group.arrived->came_count;
        one.missing = std::move(group.arrived->missing);
        one.missing_count = group.arrived->missing_count;
        one.others = group.arrived->others;
    }
    one.trouble = std::move(group.trouble);
    return one;
}

void Opening::snapshot(Time now, const SnapshotScope& scope, Snapshot& out) {
    rendezvous::FormingList forming = machine_.forming(now, scope_of(scope));
    out.forming.reserve(forming.groups.size());
    for (rendezvous::FormingGroup& group : forming.groups)
        out.forming.push_back(snapshot_of(now, std::move(group)));
    out.omitted_forming = forming.omitted;
}

void Opening::pass(const rendezvous::Send& send) {
    const auto peer = context_.find_peer(send.to);
    if (!peer) return;
    if (send.payer)
        static_cast<OpenRoom&>(*send.payer).append(*peer, send.message);
    else
        context_.send(*peer, send.message);
}

std::optional<Opening::Event> Opening::poll() {
    while (const auto action = machine_.poll_action()) {
        if (const auto* send = std::get_if<rendezvous::Send>(&*action)) {
            pass(*send);
        } else if (const auto* opened = std::get_if<rendezvous::Opened>(&*action)) {
            return formed(*opened);
        } else if (const auto* failed = std::get_if<rendezvous::Failed>(&*action)) {
            if (const auto asked = take(failed->request.number))
                return Answer{asked->session, asked->ticket, failed->error};
        } else if (const auto* disowned = std::get_if<rendezvous::Disowned>(&*action)) {
            return Lost{disowned->group, disowned->node, disowned->text};
        } else if (const auto* unproven = std::get_if<rendezvous::Unproven>(&*action)) {
            context_.ports.log.warn("proof_refused",
                                    {field("group", unproven->group), field("node", unproven->node),
                                     field("formed_by", unproven->leader)});
        }
    }
    return {};
}

}  // namespace nexar::engine
