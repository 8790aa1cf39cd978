// See rendezvous.hpp. Opens of this node, and opens that it passes on. deadlines.cpp has what is due,
// member.cpp the member's side of prepare and commit, directory.cpp the leader's.
#include "rendezvous/rendezvous.hpp"

#include <algorithm>

#include "core/check.hpp"
#include "rendezvous/texts.hpp"
#include "wire/limits.hpp"
#include "wire/text.hpp"

namespace nexar::rendezvous {

namespace {

constexpr size_t answers_at_once_max = 64;  // in one turn: room is looked for again after it
constexpr size_t refusals_max = 65536;      // that wait for room, of each node

}  // namespace

Rendezvous::Rendezvous(Config config)
    : config_(std::move(config)),
      leader_(config_.self),
      next_request_((config_.incarnation.counter << 32) + 1),
      next_group_(config_.first_group),
      directory_(directory_config()),
      local_(directory_config()),
      refusals_(refusals_max) {
    NEXAR_CHECK(config_.open_log_bytes_max > 0);
    for (Directory* directory : {&directory_, &local_})
        directory->reach = [this](const NodeId& node, Incarnation incarnation) {
            return reach_of(node, incarnation);
        };
    for (Directory* directory : {&directory_, &local_})
        directory->may_prepare = [this](const NodeId& node) { return room_of(node).prepares > 0; };
    directory_.leads = [this](const wire::GroupOpen&) { return leader_ == config_.self; };
    local_.leads = [](const wire::GroupOpen&) { return true; };
    directory_.unproven = [this](const GroupId& group, const auto& tags) -> std::optional<NodeId> {
        const auto at = reservations_.find(group);
        if (at == reservations_.end()) return std::nullopt;
        const auto liar = first_unproven(at->second, tags);
        if (liar) actions_.push_back(Unproven{group, *liar, config_.self});
        return liar;
    };
    local_.unproven = [](const GroupId&, const auto&) { return std::nullopt; };
}

DirectoryConfig Rendezvous::directory_config() {
    return {config_.self,
            [this] { return GroupId{config_.self.prefix(), config_.incarnation.nonce, next_group_++}; },
            config_.plan,
            config_.timeouts,
            config_.prepare_timeout,
            config_.retry_delay,
            config_.directory_max,
            config_.node_opens_max,
            [this](const NodeId& node) { return name_of(node); },
            config_.host_of};
}

std::string Rendezvous::name_of(const NodeId& node) const {
    return config_.name_of ? config_.name_of(node) : node.short_hex();
}

// ---- Opens of this node ----

Result<wire::RequestId> Rendezvous::open(const OpenSpec& spec, Time now) {
    if (spec.name.empty() || spec.name.size() > wire::group_name_bytes_max || !wire::is_clean_text(spec.name))
        return fail(Errc::invalid_argument, "a group's name is 1 to " +
                                                std::to_string(wire::group_name_bytes_max) +
                                                " bytes of UTF-8 without control characters");
    if (spec.size == 0 || spec.size > wire::ranks_max)
        return fail(Errc::invalid_argument, "group size " + std::to_string(spec.size) + ", allowed is 1 to " +
                                                std::to_string(wire::ranks_max));
    if (spec.rank < -1 || spec.rank >= static_cast<int64_t>(spec.size))
        return fail(Errc::invalid_argument, "rank " + std::to_string(spec.rank) + " of a group of " +
                                                std::to_string(spec.size) + ", allowed is 0 to " +
                                                std::to_string(spec.size - 1) + ", or -1 for any");
    Own own;
    own.open = {{config_.self, next_request_++},
                spec.key,
                spec.name,
                spec.size,
                spec.rank,
                spec.pid,
                config_.incarnation,
                config_.bulk_shards,
                spec.timeouts,
                config_.features,
                config_.proof.nonce(),
                spec.opener_mark};
    own.session = spec.session;
    own.local = spec.local;
    own.proof = spec.proof;
    own.payer = spec.payer;
    own.parent_ranks = spec.parent_ranks;
    own.timeout = std::clamp(spec.timeout, Duration{1}, config_.timeout_max);
    own.since = now;
    own.free_since = now;
    own.deadline = spec.timeout == Duration{0} ? never : now + own.timeout;
    Own& kept = own_[own.open.id] = own;
    by_session_.insert({own.session, own.open.id});
    waiting_.add(own.open, own.local);
    if (!own.local) by_mark_.insert({own.open.opener_mark, own.open.id});
    ++musters_[{own.local, own.open.key}].opens;
    list(kept, now);
    settle(now);
    return own.open.id;
}

void Rendezvous::list(Own& own, Time now) {
    own.list_at = never;
    reschedule(own);
    if (own.listed != leader_of(own)) own.former_leaders.add(own.listed);
    own.listed = leader_of(own);
    own.sent_in = leader_changes_;
    if (!own.local) announce();
    if (leader_of(own) == config_.self)
        directory_of(own).add(own.open, config_.self, now);
    else
        send(leader_, own.open, own.payer);
}

void Rendezvous::withdraw(const wire::RequestId& request, Time now) {
    const auto at = own_.find(request);
    if (at == own_.end() || at->second.withdrawn) return;
    Own& own = at->second;
    const wire::GroupWithdraw message{request, own.open.key, false, false};
    send(own.listed, message, own.payer);
    leave_second(own, false);
    if (own.reserved) {
        own.withdrawn = true;  // the attempt may still be committed [R12]
        waiting_.remove(own.open);
        const NodeId& leader = reservations_.at(*own.reserved).leader;
        if (leader != own.listed) send(leader, message, own.payer);
    } else {
        forget(at);
    }
    settle(now);
}

void Rendezvous::end(const wire::RequestId& request, Error error, Time now) {
    const auto at = own_.find(request);
    if (at == own_.end() || at->second.withdrawn) return;
    Own& own = at->second;
    if (own.reserved) {
        if (!own.ending) own.ending = std::move(error);
        return;
    }
    send(own.listed, wire::GroupWithdraw{request, own.open.key, false, false}, own.payer);
    fail_open(request, std::move(error));
    settle(now);
}

bool Rendezvous::is_reserved(const wire::RequestId& request) const {
    const auto at = own_.find(request);
    return at != own_.end() && at->second.reserved.has_value();
}

void Rendezvous::withdraw_session(SessionId session, Time now) {
    std::vector<wire::RequestId> requests;
    for (auto at = by_session_.lower_bound({session, {}}); at != by_session_.end() && at->first == session;
         ++at)
        requests.push_back(at->second);
    for (const wire::RequestId& request : requests) withdraw(request, now);
}

void Rendezvous::fail_open(const wire::RequestId& request, Error error) {
    const auto own = own_.find(request);
    if (own == own_.end()) return;
    leave_second(own->second, false);
    forget(own);
    actions_.push_back(Failed{request, std::move(error)});
}

void Rendezvous::forget(Owned own) {
    leave_question(own->second);
    waiting_.remove(own->second.open);
    if (own->second.due_at != never) due_.remove(turn_of(own->second), own->second.due_at, own->first);
    by_session_.erase({own->second.session, own->first});
    by_mark_.erase({own->second.open.opener_mark, own->first});
    const auto muster = musters_.find({own->second.local, own->second.open.key});
    if (--muster->second.opens == 0) musters_.erase(muster);
    own_.erase(own);
}

// Out of reservations_.
Rendezvous::Reservation Rendezvous::take(const GroupId& group) {
    Reservation reservation = std::move(reservations_.extract(group).mapped());
    if (reservation.due_at != never) reservations_due_.remove(reservation.whose, reservation.due_at, group);
    return reservation;
}

// ---- Opens of other nodes [R1] ----

void Rendezvous::on_open(const NodeId& from, const wire::GroupOpen& open, Time now) {
    if (open.id.origin == config_.self) return;
    // Only its own connection says in which incarnation a node is. If another one is right, its node will
    // connect in it, and send its opens itself [R17].
    const auto peer = peers_.find(open.id.origin);
    const bool is_known =
        peer != peers_.end() && peer->second != Incarnation{} && open.incarnation != Incarnation{};
    if (is_known && open.incarnation != peer->second) return;
    pass_on(open, from, now);
}

void Rendezvous::pass_on(const wire::GroupOpen& open, const NodeId& via, Time now) {
    announce();
    // What an attempt of this node has, which leads no more, is passed on when the attempt is aborted.
    if (leader_ == config_.self || directory_.has_attempt_with(open.id))
        return directory_.add(open, via, now);
    const Listed* known = relayed_.find(open.id);
    if (known == nullptr || !known->came_through(via))
        if (const auto full = no_room_to_pass_on(open.id.origin, via, known != nullptr))
            return send(via, wire::GroupRefused{open.id, {}, *full});
    if (known == nullptr) {
        relayed_.put({open, via});
    } else if (!is_same(known->open, open)) {
        if (via != open.id.origin || known->via == via) return;
        send(leader_, wire::GroupWithdraw{open.id, known->open.key, false, false});
        relayed_.put({open, via});
    }
    relayed_.add_via(open, via);
    relayed_.set_sent(open.id, leader_, leader_changes_);
    send(leader_, open);
}

// [R24] [R25]
std::optional<Error> Rendezvous::no_room_to_pass_on(const NodeId& origin, const NodeId& via,
                                                    bool known) const {
    const std::string self = name_of(config_.self);
    const auto name = [this](const NodeId& node) { return name_of(node); };
    if (const auto share = relayed_.full(via, origin, config_.node_opens_max))
        return too_many_opens(opens_of(name, origin, via), self, *share);
    if (relayed_.size() >= config_.directory_max)
        return too_many_opens("all nodes of the cluster", self, config_.directory_max);
    if (known || room_of(leader_).refusals > 0) return {};
    return Error{Errc::table_full,
                 "too many opens pass through node " + self + " to node " + name_of(leader_),
                 -1,
                 -1,
                 {}};
}

void Rendezvous::on_withdraw(const NodeId& from, const wire::GroupWithdraw& withdraw, Time now) {
    refusals_.remove(withdraw.id, from);
    directory_.remove(withdraw.id, from, withdraw.expired, now);
    if (from == config_.self) local_.remove(withdraw.id, from, withdraw.expired, now);
    const Listed* const relayed = relayed_.find(withdraw.id);
    if (relayed == nullptr) return;
    const Listed listed = *relayed;
    if (from != withdraw.id.origin && !relayed_.drop_via(withdraw.id, from)) return;
    relayed_.erase(withdraw.id);
    leave_former(listed);
    if (leader_ != config_.self) send(leader_, withdraw);
}

// The leader had lost this node and removed the open: it is sent there again. A reserved open is listed again
// when its attempt is aborted.
void Rendezvous::on_unlisted(const NodeId& from, const wire::RequestId& request, Time now) {
    if (const auto own = own_.find(request); own != own_.end()) {
        if (!own->second.reserved && !own->second.withdrawn && from == leader_of(own->second))
            list(own->second, now);
        else if (from == own->second.second)
            own->second.second = {};  // listed there again later
    } else if (const Listed* relayed = relayed_.find(request); relayed != nullptr && from == leader_) {
        relayed_.set_sent(request, leader_, leader_changes_);
        send(leader_, relayed->open);
    }
}

// ---- Peers ----

Reach Rendezvous::reach_of(const NodeId& node, Incarnation incarnation) const {
    const auto up = peers_.find(node);
    const bool is_self = node == config_.self;
    if (!is_self && up == peers_.end()) {
        const auto lost = lost_.find(node);
        if (lost == lost_.end() || incarnation == Incarnation{} || lost->second == incarnation)
            return Reach::nowhere;
        return lost->second.counter > incarnation.counter ? Reach::over : Reach::not_yet;
    }
    const Incarnation present = is_self ? config_.incarnation : up->second;
    if (incarnation == Incarnation{} || present == Incarnation{} || present == incarnation)
        return Reach::here;
    return present.counter > incarnation.counter ? Reach::over : Reach::not_yet;
}

// ---- Messages, time, output ----

bool Rendezvous::on_message(const NodeId& from, const wire::Message& message, Time now) {
    if (const auto* open = std::get_if<wire::GroupOpen>(&message))
        on_open(from, *open, now);
    else if (const auto* withdraw = std::get_if<wire::GroupWithdraw>(&message))
        on_withdraw(from, *withdraw, now);
    else if (const auto* prepare = std::get_if<wire::GroupPrepare>(&message))
        on_prepare(from, *prepare, now);
    else if (const auto* prepared = std::get_if<wire::GroupPrepared>(&message))
        on_prepared(from, *prepared, now);
    else if (const auto* commit_ = std::get_if<wire::GroupCommit>(&message))
        on_commit(from, *commit_, now);
    else if (const auto* refused = std::get_if<wire::GroupRefused>(&message))
        on_refused(from, *refused, now);
    else if (const auto* query = std::get_if<wire::GroupQuery>(&message))
        on_query(from, query->group);
    else if (const auto* unlisted = std::get_if<wire::GroupUnlisted>(&message))
        on_unlisted(from, unlisted->id, now);
    else if (const auto* leads = std::get_if<wire::GroupLeader>(&message))
        on_leader(from, *leads, now);
    else if (const auto* request = std::get_if<wire::GroupStatusRequest>(&message))
        on_status_request(from, *request, now);
    else if (const auto* status = std::get_if<wire::GroupStatus>(&message))
        on_status(from, *status, now);
    else
        return false;
    if (from != config_.self) settle(now);
    return true;
}

void Rendezvous::send(const NodeId& to, wire::Message message, const PayerRef& payer) {
    if (to == config_.self)
        inbox_.push_back(std::move(message));
    else if (!hold(to, message))
        actions_.push_back(Send{to, std::move(message), payer});
}

void Rendezvous::on_prepared(const NodeId& from, const wire::GroupPrepared& prepared, Time now) {
    directory_.on_prepared(from, prepared, now);
    if (from == config_.self) local_.on_prepared(from, prepared, now);
}

// True: the directory had something.
bool Rendezvous::read(Directory& directory, Time now) {
    bool moved = false;
    while (auto out = directory.poll_send()) {
        moved = true;
        send(out->to, std::move(out->message));
    }
    while (auto committed = directory.poll_committed()) {
        moved = true;
        auto& [group, nodes, tags] = *committed;
        decided(group, {Outcome::committed, std::move(nodes), std::move(tags), config_.self, now, false});
    }
    return moved;
}

// Delivers messages between this node's directory and its member side until none is left. It ends: each
// message is a reply to another one, and no exchange repeats without a deadline.
void Rendezvous::settle(Time now) {
    for (;;) {
        bool moved = false;
        for (Directory* directory : {&directory_, &local_}) moved |= read(*directory, now);
        while (auto orphan = directory_.poll_orphan()) {
            moved = true;
            move(*orphan, now);
        }
        if (!inbox_.empty()) {
            moved = true;
            const wire::Message message = std::move(inbox_.front());
            inbox_.pop_front();
            on_message(config_.self, message, now);
        }
        if (!moved) return;
    }
}

void Rendezvous::on_time(Time now) {
    directory_.on_time(now);
    local_.on_time(now);
    settle(now);
    if (now >= relist_at_) go_on(now);
    if (now >= second_at_) list_with_second(now);
    send_refusals(now);
    end_due(now);
    settle(now);
}

Time Rendezvous::wake_at() const {
    return std::min({directory_.wake_at(), local_.wake_at(), refusals_at_, relist_at_, second_at_,
                     due_.next(), reservations_due_.next()});
}

// A leader's answer to one open waits until there is room for it: one user's opens must not fill what belongs
// to all. A withdrawal that arrives meanwhile makes it unnecessary. True: the message is not sent
// now.
bool Rendezvous::hold(const NodeId& to, const wire::Message& message) {
    const auto* refused = std::get_if<wire::GroupRefused>(&message);
    const bool of_open = refused != nullptr && refused->id.number != 0;
    if (!of_open && !std::holds_alternative<wire::GroupStatus>(message)) return false;
    const bool room = actions_.size() < answers_at_once_max && room_of(to).refusals >= refusal_bytes_max;
    if (!of_open) return !room;  // the asker waits for it for status_wait
    if (room && !refusals_.has(to)) return false;
    refusals_.add(to, *refused);
    if (refusals_at_ == never) refusals_at_ = Time{};
    return true;
}

void Rendezvous::send_refusals(Time now) {
    if (now < refusals_at_) return;
    refusals_at_ = never;
    for (const NodeId& node : refusals_.nodes()) {
        const size_t room = room_of(node).refusals / refusal_bytes_max;
        for (size_t n = 0; n < std::min(room, answers_at_once_max) && refusals_.has(node); ++n)
            actions_.push_back(Send{node, *refusals_.take(node)});
        if (refusals_.has(node))
            refusals_at_ =
                std::min(refusals_at_, room > answers_at_once_max ? now : now + config_.retry_delay);
    }
}

LogRoom Rendezvous::room_of(const NodeId& node) const {
    return config_.log_room && node != config_.self ? config_.log_room(node) : LogRoom{};
}

std::optional<Action> Rendezvous::poll_action() {
    if (actions_.empty()) return std::nullopt;
    Action out = std::move(actions_.front());
    actions_.pop_front();
    return out;
}

}  // namespace nexar::rendezvous
