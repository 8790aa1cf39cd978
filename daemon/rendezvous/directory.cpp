// See directory.hpp. The states of an open in the directory:
//   waiting -> forming     its key is complete [R4][R5]
//   forming -> committed   all member nodes are prepared [R6]; it is removed
//   forming -> waiting     the attempt was aborted with `pending` [R7]
//   any -> refused         it contradicts earlier opens [R3], or a link is missing [R7]; it is removed
//   any -> removed         it was withdrawn, or the node that sent it here was lost
#include "rendezvous/directory.hpp"

#include <algorithm>
#include <tuple>

#include "core/check.hpp"
#include "core/features.hpp"
#include "rendezvous/proof.hpp"
#include "rendezvous/texts.hpp"
#include "wire/limits.hpp"

namespace nexar::rendezvous {

uint64_t common_features(const std::vector<wire::GroupMemberRecord>& members) {
    uint64_t out = ~uint64_t{0};
    for (const wire::GroupMemberRecord& member : members) out &= member.features;
    return out;
}

std::vector<uint32_t> assign_ranks(const std::vector<wire::GroupOpen>& opens, uint32_t size,
                                   const std::function<std::string(const NodeId&)>& host_of) {
    using Place = std::tuple<std::string, NodeId, uint32_t, uint64_t>;
    std::vector<bool> taken(size);
    std::vector<std::pair<Place, size_t>> order;
    std::map<NodeId, std::string> hosts;
    for (size_t i = 0; i < opens.size(); ++i) {
        const wire::GroupOpen& open = opens[i];
        if (open.rank >= 0) taken[static_cast<size_t>(open.rank)] = true;
        const auto [host, first] = hosts.try_emplace(open.id.origin);
        if (first && host_of) host->second = host_of(open.id.origin);
        if (open.rank < 0)
            order.emplace_back(Place{host->second, open.id.origin, open.pid, open.id.number}, i);
    }
    std::ranges::sort(order);
    std::vector<uint32_t> out(opens.size());
    for (size_t i = 0; i < opens.size(); ++i)
        if (opens[i].rank >= 0) out[i] = static_cast<uint32_t>(opens[i].rank);
    uint32_t next = 0;
    for (const auto& [place, i] : order) {
        while (taken[next]) ++next;
        out[i] = next++;
    }
    return out;
}

namespace {

constexpr const char* timeout_names[] = {"collective", "barrier", "rpc"};

std::array<int64_t, 3> timeouts_of(const wire::GroupOpen& open) {
    return {open.timeouts.collective_ms, open.timeouts.barrier_ms, open.timeouts.rpc_ms};
}

std::string timeout_text(int64_t ms) {
    return ms == 0 ? "none" : std::to_string(ms) + " ms";
}

}  // namespace

std::string Directory::who(const wire::GroupOpen& open) const {
    return (open.rank < 0 ? "" : "rank " + std::to_string(open.rank) + ", ") + "pid " +
           std::to_string(open.pid) + " on node " + config_.name_of(open.id.origin);
}

Error Directory::clash(const wire::GroupOpen& open, const Entry& with, const std::string& what) const {
    Error error{Errc::rank_clash,
                "group \"" + open.name + "\": " + what + ": first by " + who(with.open) + ", now by " +
                    who(open) + "; check --node-index, NEXAR_RANK",
                open.rank, with.open.rank, open.id.origin.hex()};
    error.pid = open.pid;
    return error;
}

// By all ways, because only its node knows which one is its present leader's [R27] [R31].
void Directory::refuse(const Entry& entry, Error error) {
    for (const NodeId& relay : entry.relays)
        sends_.push_back({relay, wire::GroupRefused{entry.open.id, {}, error}});
    sends_.push_back({entry.via, wire::GroupRefused{entry.open.id, {}, std::move(error)}});
}

// An open of a later incarnation proves that the earlier ones have failed, so their opens are removed. What a
// relay says of another node proves it for what came through this relay alone [R17]. False: the open itself
// is of an earlier incarnation, or of another one with the same counter, or a relay contradicts what is
// known. Request numbers increase from incarnation to incarnation.
bool Directory::remove_earlier_incarnations(const wire::GroupOpen& open, const NodeId& via, Time now) {
    const NodeId& origin = open.id.origin;
    const auto contradicts = [&](const Entry& entry) {
        return entry.open.incarnation != open.incarnation &&
               (entry.open.incarnation.counter >= open.incarnation.counter ||
                (via != origin && (entry.via != via || !entry.relays.empty())));
    };
    const auto known = origins_.find(origin);
    if (known == origins_.end()) return true;
    std::vector<wire::RequestId> earlier;
    for (const auto& [incarnation, opens] : known->second) {
        if (incarnation == open.incarnation) continue;
        for (const wire::RequestId& request : opens) {
            if (contradicts(*find(request))) return false;
            earlier.push_back(request);
        }
    }
    const Error error{Errc::pending, "node " + config_.name_of(origin) + " was started again", -1, -1, {}};
    erase_all(earlier, error, now);
    return true;
}

// A node's own open wins over an open that another node passed on in its name and that contradicts it: one
// with this request, or of an incarnation that does not exist yet.
void Directory::remove_contradicted(const wire::GroupOpen& open, Time now) {
    const NodeId& origin = open.id.origin;
    const auto contradicts = [&](const Entry& entry) {
        const wire::GroupOpen& other = entry.open;
        if (other.id.origin != origin || entry.via == origin) return false;
        return (other.incarnation != open.incarnation &&
                other.incarnation.counter >= open.incarnation.counter) ||
               (other.id == open.id && !is_same(other, open));
    };
    std::vector<wire::RequestId> wrong;
    if (Entry* same = find(open.id); same != nullptr && contradicts(*same)) wrong.push_back(open.id);
    if (const auto known = origins_.find(origin); known != origins_.end())
        for (const auto& [incarnation, opens] : known->second) {
            if (incarnation == open.incarnation) continue;
            for (const wire::RequestId& request : opens)
                if (request != open.id && contradicts(*find(request))) wrong.push_back(request);
        }
    erase_all(wrong, {Errc::pending, who(open) + " was not listed by its own node", -1, -1, {}}, now);
}

// Waiting ones, and with their attempts, which end with `error`, those that are in one.
void Directory::erase_all(const std::vector<wire::RequestId>& requests, const Error& error, Time now) {
    std::map<GroupId, std::set<wire::RequestId>> hit;
    for (const wire::RequestId& request : requests)
        if (const auto at = attempt_of_.find(request); at != attempt_of_.end())
            hit[at->second.first].insert(request);
        else
            erase_waiting(request);
    for (const auto& [id, out] : hit) abort_attempt(id, error, out, now);
}

void Directory::add(const wire::GroupOpen& open, const NodeId& via, Time now) {
    if (via == open.id.origin) remove_contradicted(open, now);
    if (!remove_earlier_incarnations(open, via, now)) return;
    Entry* known = find(open.id);
    if (known != nullptr && known->came_through(via)) return;  // sent again [R10]
    if (const Error* error = known == nullptr ? ended(open) : nullptr)
        return refuse({{open, via}, 0}, *error);
    if (auto full = no_room(open.id.origin, via, known != nullptr))
        return refuse({{open, via}, 0}, std::move(*full));
    if (known != nullptr) return add_via(*known, open, via);
    Entry entry{{open, via}, next_arrival_++};
    place(open.key, std::move(entry));
    form_if_complete(open.key, now);
}

// [R25] This node's own opens are its tenants' groups [N1].
std::optional<Error> Directory::no_room(const NodeId& origin, const NodeId& via, bool known) const {
    const std::string self = config_.name_of(config_.self);
    if (via == config_.self) return {};
    if (const auto share = ways_.full(via, origin, config_.node_opens_max, via != origin))
        return too_many_opens(opens_of(config_.name_of, origin, via), self, *share);
    if (!known && where_.size() + attempt_of_.size() >= config_.opens_max)
        return too_many_opens("all nodes of the cluster", self, config_.opens_max);
    return {};
}

// Adds an open to the waiting ones, or refuses it because it contradicts them [R3].
void Directory::place(const wire::GroupKey& key, Entry entry) {
    const wire::GroupOpen& open = entry.open;
    if (open.rank >= static_cast<int64_t>(open.size))
        return refuse(entry, {Errc::rank_clash,
                              "group \"" + open.name + "\": rank " + std::to_string(open.rank) + " of " +
                                  who(open) + " is beyond its size of " + std::to_string(open.size),
                              open.rank, -1, open.id.origin.hex()});
    Gathering& gathering = gatherings_[key];
    if (gathering.entries.empty()) gathering.size = open.size;
    if (const auto error = difference(open, gathering)) {  // no group can be formed: all of them are refused
        refuse(entry, *error);
        return refuse_all(key, *error);
    }
    const bool automatic = open.rank < 0;
    if (const Entry* first = gathering.entries.empty() ? nullptr : &gathering.entries.begin()->second;
        first != nullptr && automatic != (first->open.rank < 0))
        return refuse(entry, clash(open, *first,
                                   automatic ? "opened with a rank and with any"
                                             : "opened with any rank and with one"));
    if (gathering.nodes.size() >= wire::group_nodes_max && !gathering.nodes.contains(open.id.origin))
        return refuse(entry,
                      {Errc::table_full,
                       "group \"" + open.name + "\" has ranks on " + std::to_string(wire::group_nodes_max) +
                           " nodes, the most that one may have",
                       -1,
                       -1,
                       {}});
    if (open.rank >= 0) {
        const auto [at, added] = gathering.taken.try_emplace(static_cast<uint32_t>(open.rank), entry.arrival);
        if (!added)
            return refuse(entry, clash(open, gathering.entries.at(at->second),
                                       "rank " + std::to_string(open.rank) + " is asked for twice"));
    }
    where_[open.id] = {key, entry.arrival};
    add_name(open);
    enrol(entry);
    ++gathering.nodes[open.id.origin];
    for (size_t i = 0; i < gathering.timeouts.size(); ++i)
        if (const int64_t ms = timeouts_of(open)[i]; ms >= 0)
            gathering.timeouts[i] = {ms, gathering.timeouts[i].entries + 1};
    gathering.entries.emplace(entry.arrival, std::move(entry));
}

// [R3]: all opens of a group have the same size, and the same value of each time-out that they set.
std::optional<Error> Directory::difference(const wire::GroupOpen& open, const Gathering& gathering) const {
    const auto differ = [&](const wire::GroupOpen& first, const std::string& what) {
        Error error{
            Errc::options_differ,
            "group \"" + open.name + "\": " + what + ": first by " + who(first) + ", now by " + who(open),
            open.rank, first.rank, open.id.origin.hex()};
        error.pid = open.pid;
        return error;
    };
    if (gathering.size != open.size)
        return differ(gathering.entries.begin()->second.open, "opened with different sizes, " +
                                                                  std::to_string(gathering.size) + " and " +
                                                                  std::to_string(open.size));
    for (size_t i = 0; i < gathering.timeouts.size(); ++i) {
        const Agreed& agreed = gathering.timeouts[i];
        const int64_t ms = timeouts_of(open)[i];
        if (ms < 0 || agreed.entries == 0 || agreed.ms == ms) continue;
        const auto first = std::ranges::find_if(
            gathering.entries, [&](const auto& e) { return timeouts_of(e.second.open)[i] >= 0; });
        return differ(first->second.open, std::string("opened with different ") + timeout_names[i] +
                                              " time-outs, " + timeout_text(agreed.ms) + " and " +
                                              timeout_text(ms));
    }
    return {};
}

void Directory::refuse_all(const wire::GroupKey& key, const Error& error) {
    const auto gathering = gatherings_.find(key);
    for (const auto& [arrival, entry] : gathering->second.entries) {
        where_.erase(entry.open.id);
        remove_name(entry.open);
        strike(entry);
        refuse(entry, error);
    }
    erase(gathering);
}

// The opens of an aborted attempt come first again, because later opens must agree with them.
void Directory::reinsert(std::vector<Entry> entries, Time now) {
    if (entries.empty()) return;
    const wire::GroupKey key = entries.front().open.key;
    Gathering& gathering = gatherings_[key];
    not_before(key, gathering, Time{});
    if (!agree(entries, gathering)) {  // so all are placed once more, and some are refused
        for (auto& [arrival, entry] : gathering.entries) {
            ++visited_;
            where_.erase(entry.open.id);
            remove_name(entry.open);
            strike(entry);
            entries.push_back(std::move(entry));
        }
        gathering = {};
    }
    std::sort(entries.begin(), entries.end(),
              [](const Entry& a, const Entry& b) { return a.arrival < b.arrival; });
    for (Entry& entry : entries) place(key, std::move(entry));
    if (const auto at = gatherings_.find(key); at != gatherings_.end())  // or all were refused
        not_before(key, at->second, now + config_.retry_delay);
}

// Nothing that came meanwhile contradicts these opens of an attempt, which agree among themselves.
bool Directory::agree(const std::vector<Entry>& entries, const Gathering& gathering) const {
    if (gathering.entries.empty()) return true;
    const bool automatic = gathering.entries.begin()->second.open.rank < 0;
    if (gathering.nodes.size() + entries.size() > wire::group_nodes_max) return false;
    return std::ranges::none_of(entries, [&](const Entry& entry) {
        const wire::GroupOpen& open = entry.open;
        return difference(open, gathering) || automatic != (open.rank < 0) ||
               (open.rank >= 0 && gathering.taken.contains(static_cast<uint32_t>(open.rank)));
    });
}

bool Directory::form_if_complete(const wire::GroupKey& key, Time now) {
    const auto at = gatherings_.find(key);
    if (at == gatherings_.end()) return false;
    Gathering& gathering = at->second;
    if (gathering.entries.empty() || gathering.entries.size() < gathering.size || now < gathering.not_before)
        return false;
    const bool leading = leads(gathering.entries.begin()->second.open);  // or it goes to another leader
    if (!leading ||
        !std::ranges::all_of(gathering.nodes, [&](const auto& node) { return may_prepare(node.first); })) {
        not_before(key, gathering, now + config_.retry_delay);
        return false;
    }
    std::vector<Entry> entries;
    while (entries.size() < gathering.size) {
        Entry& first = gathering.entries.begin()->second;
        where_.erase(first.open.id);
        remove_name(first.open);
        strike(first);
        leave(gathering, first.open);
        entries.push_back(std::move(first));
        gathering.entries.erase(gathering.entries.begin());
    }
    if (gathering.entries.empty()) erase(at);
    prepare(std::move(entries), now);
    return true;
}

// The members' values, or else this node's configuration. A collective time-out without a barrier time-out
// counts for barriers too.
wire::TimeoutsRecord Directory::agreed(const std::vector<wire::GroupOpen>& opens) const {
    wire::TimeoutsRecord out;
    for (const wire::GroupOpen& open : opens) {
        out.collective_ms = std::max(out.collective_ms, open.timeouts.collective_ms);
        out.barrier_ms = std::max(out.barrier_ms, open.timeouts.barrier_ms);
        out.rpc_ms = std::max(out.rpc_ms, open.timeouts.rpc_ms);
    }
    if (out.barrier_ms < 0)
        out.barrier_ms = out.collective_ms < 0 ? config_.timeouts.barrier_ms : out.collective_ms;
    if (out.collective_ms < 0) out.collective_ms = config_.timeouts.collective_ms;
    if (out.rpc_ms < 0) out.rpc_ms = config_.timeouts.rpc_ms;
    return out;
}

void Directory::limit_doubling(wire::PlanTableRecord& plan, const Forming& forming) const {
    if (!trial_ || trial_->group != forming.prepare.name) {
        plan.doubling_bytes_max =
            doubling_bytes_among(forming.nodes.size(), plan.doubling_bytes_max, plan.small_bytes_max);
        return;
    }
    plan.version = std::min(plan.version, plan_version_by_size);
    plan.doubling_bytes_max = std::min(trial_->doubling_bytes_max, plan.small_bytes_max);
}

void Directory::prepare(std::vector<Entry> entries, Time now) {
    std::vector<wire::GroupOpen> opens;
    for (const Entry& entry : entries) opens.push_back(entry.open);
    const std::vector<uint32_t> ranks =
        assign_ranks(opens, static_cast<uint32_t>(entries.size()), config_.host_of);
    Forming forming;
    forming.prepare.group = config_.next_group();
    forming.prepare.key = opens[0].key;
    forming.prepare.name = opens[0].name;
    forming.prepare.plan = config_.plan;
    forming.prepare.timeouts = agreed(opens);
    forming.prepare.plan.bulk_shards = opens[0].bulk_shards;
    forming.prepare.members.resize(entries.size());
    std::map<NodeId, wire::Nonce> nonces;
    for (size_t i = 0; i < opens.size(); ++i) {
        const NodeId& node = opens[i].id.origin;
        forming.prepare.members[ranks[i]] = {
            opens[i].id, node, ranks[i], opens[i].pid, opens[i].incarnation, opens[i].features, {}};
        add_nonce(nonces[node], opens[i].nonce);
        forming.nodes[node] = opens[i].incarnation;
        forming.waiting_for.insert(node);
        forming.prepare.plan.bulk_shards = std::min(forming.prepare.plan.bulk_shards, opens[i].bulk_shards);
    }
    for (wire::GroupMemberRecord& member : forming.prepare.members) member.nonce = nonces[member.node];
    forming.prepare.plan.version =
        std::min(config_.plan.version, plan_version_of(common_features(forming.prepare.members)));
    wire::PlanTableRecord& plan = forming.prepare.plan;
    plan.lanes = std::max<uint32_t>(plan.lanes, plan.bulk_shards);  // so that each shard has one
    limit_doubling(plan, forming);
    forming.entries = std::move(entries);
    forming.deadline = now + config_.prepare_timeout;
    for (const auto& [node, incarnation] : forming.nodes) {
        if (reach(node, incarnation) == Reach::here)
            sends_.push_back({node, forming.prepare});
        else
            forming.unsent.insert(node);
    }
    const GroupId id = forming.prepare.group;
    for (size_t i = 0; i < forming.entries.size(); ++i) {
        attempt_of_[forming.entries[i].open.id] = {id, i};
        enrol(forming.entries[i]);
    }
    forming.whose = turn_of(forming.entries.front());
    deadlines_.add(forming.whose, forming.deadline, id);
    forming_.emplace(id, std::move(forming));
}

void Directory::on_connected(const NodeId& node) {
    for (auto& [id, forming] : forming_) {  // the prepare was not sent yet
        if (!forming.unsent.contains(node) || reach(node, forming.nodes.at(node)) != Reach::here) continue;
        forming.unsent.erase(node);
        sends_.push_back({node, forming.prepare});
    }
}

void Directory::on_prepared(const NodeId& from, const wire::GroupPrepared& prepared, Time now) {
    const auto at = forming_.find(prepared.group);
    if (at == forming_.end() || !at->second.waiting_for.contains(from)) return;
    if (prepared.error.code != Errc::ok) return abort_attempt(prepared.group, prepared.error, {}, now);
    at->second.waiting_for.erase(from);
    at->second.tags[from] = prepared.tag;
    if (at->second.waiting_for.empty()) decide(prepared.group, now);
}

void Directory::decide(const GroupId& group, Time now) {
    std::vector<wire::Tag> tags;
    for (const auto& [node, tag] : forming_.at(group).tags) tags.push_back(tag);
    if (const auto liar = unproven(group, tags))
        expel(group, *liar, now);
    else
        commit(group, std::move(tags));
}

// [R21] The tag came from the node itself, so its opens of this key are not of this job.
void Directory::expel(const GroupId& group, const NodeId& node, Time now) {
    const Error error{Errc::pending, unproven_text(config_.name_of(node)), -1, -1, node.hex()};
    std::set<wire::RequestId> out;
    for (const Entry& entry : forming_.at(group).entries) {
        if (entry.open.id.origin != node) continue;
        out.insert(entry.open.id);
        refuse(entry, {Errc::permission, error.text, -1, -1, node.hex()});
    }
    abort_attempt(group, error, out, now);
}

void Directory::commit(const GroupId& group, std::vector<wire::Tag> tags) {
    const Forming forming = take(group);
    std::vector<NodeId> nodes;
    for (const auto& [node, incarnation] : forming.nodes) nodes.push_back(node);
    for (const NodeId& node : nodes) sends_.push_back({node, wire::GroupCommit{group, tags}});
    committed_.push_back({group, std::move(nodes), std::move(tags)});
}

void Directory::abort_attempt(const GroupId& group, const Error& error, const std::set<wire::RequestId>& out,
                              Time now) {
    Forming forming = take(group);
    const bool again = error.code == Errc::pending;
    for (const auto& [node, incarnation] : forming.nodes)
        if (!forming.unsent.contains(node)) sends_.push_back({node, wire::GroupRefused{{}, group, error}});
    std::vector<Entry> back;
    for (Entry& entry : forming.entries) {
        if (out.contains(entry.open.id)) continue;
        if (!again) {
            end_unlinked(entry, error);
        } else if (leads(entry.open)) {
            back.push_back(std::move(entry));
        } else {
            orphans_.push_back(std::move(entry));
        }
    }
    reinsert(std::move(back), now);
}

void Directory::erase_waiting(const wire::RequestId& request) {
    const auto at = where_.find(request);
    const auto [key, arrival] = at->second;
    where_.erase(at);
    const auto gathering = gatherings_.find(key);
    const Entry& entry = gathering->second.entries.at(arrival);
    remove_name(entry.open);
    strike(entry);
    leave(gathering->second, entry.open);
    gathering->second.entries.erase(arrival);
    if (gathering->second.entries.empty()) erase(gathering);
}

void Directory::leave(Gathering& gathering, const wire::GroupOpen& open) {
    if (open.rank >= 0) gathering.taken.erase(static_cast<uint32_t>(open.rank));
    for (size_t i = 0; i < gathering.timeouts.size(); ++i)
        if (timeouts_of(open)[i] >= 0) --gathering.timeouts[i].entries;
    const auto node = gathering.nodes.find(open.id.origin);
    if (--node->second == 0) gathering.nodes.erase(node);
}

void Directory::remove(const wire::RequestId& request, const NodeId& from, bool expired, Time now) {
    Entry* entry = find(request);
    if (entry == nullptr || (from != request.origin && !drop_via(*entry, from))) return;
    if (const auto attempt = attempt_of_.find(request); attempt != attempt_of_.end()) {
        const Error error{Errc::pending, who(entry->open) + " gave up", -1, -1, {}};
        return abort_attempt(GroupId(attempt->second.first), error, {request}, now);
    }
    if (expired) keep_expired(entry->open, now);
    erase_waiting(request);
}

// The leader itself is not connected to a member node [R7], or to another incarnation of it. A leader that is
// no member does not end the group of nodes that may well reach each other: its link may come back, or they
// find another leader [R28].
Error Directory::unsent_fault(const Forming& forming) const {
    const NodeId node = *forming.unsent.begin();
    if (reach(node, forming.nodes.at(node)) != Reach::nowhere)
        return {Errc::pending,
                "node " + config_.name_of(config_.self) +
                    " is not connected to the present incarnation of node " + config_.name_of(node),
                -1,
                -1,
                {}};
    if (!forming.nodes.contains(config_.self))
        return {Errc::pending,
                "node " + config_.name_of(config_.self) + ", which collects the ranks, and node " +
                    config_.name_of(node) + " do not reach each other",
                -1,
                -1,
                {}};
    const auto member = std::find_if(forming.prepare.members.begin(), forming.prepare.members.end(),
                                     [&](const auto& m) { return m.node == node; });
    return {Errc::link_lost,
            unreachable_text(config_.name_of(config_.self), config_.name_of(node), forming.prepare.name),
            member->rank, -1, node.hex()};
}

void Directory::on_time(Time now) {
    // Few at once: what they send is in the control log before there are more [R24].
    for (size_t n = 0; n < config_.retries_at_once_max; ++n) {
        const auto group = deadlines_.take(now);
        if (!group) break;
        abort_late(*group, now);
    }
    for (size_t n = 0; n < config_.retries_at_once_max; ++n) {
        const auto key = retries_.take(now);
        if (!key) return;
        ++visited_;
        not_before(*key, gatherings_.at(*key), Time{});
        if (form_if_complete(*key, now)) again(*key, now);
    }
}

// There may be enough opens for another group of this key.
void Directory::again(const wire::GroupKey& key, Time now) {
    const auto at = gatherings_.find(key);
    if (at != gatherings_.end() && at->second.entries.size() >= at->second.size)
        not_before(key, at->second, now);
}

void Directory::abort_late(const GroupId& group, Time now) {
    ++visited_;
    const Forming& forming = forming_.at(group);
    Error error{Errc::pending, {}, -1, -1, {}};
    if (!forming.unsent.empty())
        error = unsent_fault(forming);
    else
        error.text = "node " + config_.name_of(*forming.waiting_for.begin()) + " did not answer in time";
    abort_attempt(group, error, {}, now);
}

std::optional<Directory::Outgoing> Directory::poll_send() {
    if (sends_.empty()) return std::nullopt;
    Outgoing out = std::move(sends_.front());
    sends_.pop_front();
    return out;
}
std::optional<Directory::Committed> Directory::poll_committed() {
    if (committed_.empty()) return std::nullopt;
    Committed out = std::move(committed_.front());
    committed_.pop_front();
    return out;
}
std::optional<Listed> Directory::poll_orphan() {
    if (orphans_.empty()) return std::nullopt;
    auto out = std::move(orphans_.front());
    orphans_.pop_front();
    return out;
}

Time Directory::wake_at() const {
    return std::min(deadlines_.next(), retries_.next());
}

}  // namespace nexar::rendezvous
