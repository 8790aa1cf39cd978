#include "connections/bulk.hpp"

#include <algorithm>
#include <utility>

#include "core/check.hpp"
#include "wire/codec.hpp"

namespace nexar::connections {
namespace {

constexpr Duration replace_interval{5'000'000};
constexpr Duration replacement_pause{5'000'000'000};  // over QUIC, after one that failed
constexpr const char* other_dials = "the other node dials, and knows why";

Preamble preamble_of(const BulkConfig& config) {
    Preamble p;
    p.purpose = Purpose::bulk;
    p.shard = config.shard;
    p.incarnation = config.incarnation;
    p.capabilities = config.capabilities;
    return p;
}

// What the ranks of a group read that ends because of it [P13].
std::string cut_off_text(const std::string& where, Duration silence) {
    return "both live, but nothing has come over the connection for bulk data (" + where + ") for " +
           std::to_string(to_ms(silence)) +
           " ms: let the firewalls of both hosts pass that port, both ways (nexarctl doctor shows which)";
}

}  // namespace

BulkConnections::BulkConnections(const BulkConfig& config, Carrier& quic, link::Mesh& mesh, Carrier* tcp)
    : config_(config),
      mesh_(&mesh),
      tcp_(tcp),
      watch_(config.watch),
      channels_(quic, mesh, config.self, preamble_of(config)),
      schedule_(config.dial, Random(config.seed)),
      tcp_schedule_(config.tcp_dial, Random(config.seed + 1)) {}

BulkConnections::Peer* BulkConnections::find(const NodeId& node) {
    const auto known = by_node_.find(node);
    return known == by_node_.end() ? nullptr : &peers_.at(known->second);
}

void BulkConnections::introduce(const KnownPeer& known, Time now) {
    const bool is_known = by_node_.contains(known.node) && by_node_.at(known.node) == known.peer;
    by_node_[known.node] = known.peer;
    Peer& peer = peers_[known.peer];
    const bool same_path = is_known && peer.known.address == known.address;
    peer.known = known;
    if (known.traffic) mesh_->count_in(known.peer, known.traffic);
    const Target target{known.node, {}};
    schedule_.add(target, 1);
    tcp_schedule_.add(target, 1);
    // Another control connection to the same place is no sign that TCP passes there: its pause goes on [B8].
    // Who accepts has begun to wait before.
    const bool goes_on = same_path || !known.dial;
    const Time from = known.dial ? now : now + first_patience();
    const bool tcp_first = wants_tcp(peer) && !(goes_on && tcp_schedule_.is_waiting(target));
    if (tcp_first && !peer.over_tcp() && !peer.tcp_dialling) tcp_schedule_.start(target, from);
    const bool waits = !known.dial && schedule_.is_waiting(target);
    if (!peer.up && !peer.dialling && !waits) start_quic(peer, tcp_first, {}, from);
    if (!same_path) forget_reasons(peer);
    const auto [first, last] = waiting_.equal_range(known.node);
    std::vector<Opened> waited;
    for (auto it = first; it != last; ++it) waited.push_back(it->second);
    waiting_.erase(first, last);
    for (const Opened& opened : waited) on_opened(opened, now);
}

// They spoke of another address.
void BulkConnections::forget_reasons(Peer& peer) {
    peer.tcp_why.clear();
    peer.quic_why.clear();
    if (!peer.over_tcp()) push_state(peer);
}

void BulkConnections::drop(link::PeerIndex index) {
    channels_.close(index, Channels::close_goodbye, "this node counts you as gone");
    const auto at = peers_.find(index);
    if (at == peers_.end()) return;
    const NodeId node = at->second.known.node;
    if (const auto known = by_node_.find(node); known != by_node_.end() && known->second == index) {
        by_node_.erase(known);
        schedule_.remove({node, {}});
        tcp_schedule_.remove({node, {}});
        channels_.forget(node);
    }
    asked_.erase(index);
    peers_.erase(at);
}

void BulkConnections::on_garbage(link::PeerIndex from, const std::string& what) {
    channels_.close(from, Channels::close_garbage, what);
}

void BulkConnections::replace_all(Time now) {
    old_dials_.clear();  // what an earlier renewal has left has been answered, or not
    Time at = now;
    for (const auto& [node, index] : by_node_) {
        Peer& peer = peers_.at(index);
        for (const auto& dial : {peer.dialling, peer.tcp_dialling})
            if (dial) old_dials_.insert(*dial);
        peer.to_be_replaced = true;
        if (peer.up) replace(peer, at += replace_interval);
    }
}

void BulkConnections::replace(Peer& peer, Time at) {
    (peer.over_tcp() ? tcp_schedule_ : schedule_).start({peer.known.node, {}}, at);
}

void BulkConnections::ask_all() {
    asked_.clear();
    for (const auto& [index, peer] : peers_) {
        if (!peer.up) continue;
        asked_[index] = channels_.progress(index, Class::control).written;
        send_what_is_acknowledged(index);
    }
}

// The peer's loop ignores it.
void BulkConnections::send_what_is_acknowledged(link::PeerIndex peer) {
    mesh_->send_message(peer, wire::encode(wire::Heartbeat{}));
}

void BulkConnections::note_answers() {
    for (auto it = asked_.begin(); it != asked_.end();) {
        const auto [peer, before] = *it;
        const bool answered = channels_.progress(peer, Class::control).acknowledged > before;
        if (answered) {
            push_state(peers_.at(peer));
            events_.back().answers = true;
        }
        it = answered ? asked_.erase(it) : std::next(it);
    }
}

void BulkConnections::on_time(Time now) {
    channels_.on_time(now);
    while (const auto opened = channels_.poll_opened()) on_opened(*opened, now);
    while (const auto closed = channels_.poll_closed()) on_closed(*closed, now);
    while (const auto received = channels_.poll_received()) watch_.received(received->peer);
    while (channels_.poll_written()) {
    }
    note_answers();
    while (const auto target = schedule_.unanswered(now))
        dial_failed(*find(target->node), "not answered", now);
    while (const auto target = tcp_schedule_.unanswered(now))
        tcp_failed(*find(target->node), "tcp not answered", now);
    dial_tcp_due(now);
    dial_due(now);
    watch_.set_waiting(mesh_->has_transfers(), now);
    if (watch_.due(now)) look_for_silence(now);
}

void BulkConnections::look_for_silence(Time now) {
    std::vector<BulkWatch::Waiting> waiting;
    for (const auto& [index, peer] : peers_)
        if (mesh_->waits_for(index)) waiting.push_back({index, channels_.moved_over_tcp(index)});
    for (const BulkWatch::Judged& judged : watch_.look(waiting, now)) judge(judged);
}

void BulkConnections::judge(const BulkWatch::Judged& judged) {
    if (judged.action == BulkWatch::Action::probe)
        send_what_is_acknowledged(judged.peer);
    else if (judged.action == BulkWatch::Action::renew)
        channels_.close(judged.peer, Channels::close_silent, "it is silent while transfers wait for it");
    else if (judged.action == BulkWatch::Action::stuck)
        channels_.close(judged.peer, Channels::close_silent, "it moves no bulk data while transfers wait");
    else {
        const Peer& peer = peers_.at(judged.peer);
        const char* protocol = peer.carrier == CarrierKind::quic ? "UDP " : peer.up ? "TCP " : "TCP and UDP ";
        const std::string& place = peer.up ? peer.made_at : peer.known.address;
        push_state(peer, cut_off_text(protocol + place, 2 * config_.watch.timeout));
        events_.back().cut_off = mesh_->groups_waiting_for(judged.peer);
    }
}

void BulkConnections::dial_due(Time now) {
    while (const auto due = schedule_.poll_due(now)) {
        Peer& peer = *find(due->target.node);
        if (peer.dialling) channels_.abandon(*peer.dialling);
        peer.dialled_at = peer.known.address;
        const auto id = channels_.dial(now, peer.known.address, peer.known.node);
        if (id)
            peer.dialling = *id;
        else
            dial_failed(peer, id.error().text, now);
    }
}

// A dial that was to replace a connection in use: that one goes on, and the dial is repeated. While QUIC does
// not carry either, there is no reason to spare TCP.
void BulkConnections::dial_failed(Peer& peer, const std::string& why, Time now) {
    if (peer.dialling) channels_.give_up(*std::exchange(peer.dialling, std::nullopt));
    const Target target{peer.known.node, {}};
    if (peer.up && peer.to_be_replaced && !peer.over_tcp())
        return schedule_.start(target, now + replacement_pause);
    if (peer.up) return schedule_.stop(target);
    schedule_.failed(target, now);
    const std::string text = "quic: " + why + " at " + peer.dialled_at;
    if (std::exchange(peer.quic_why, text) != text) push_state(peer);
    if (wants_tcp(peer)) tcp_schedule_.hasten(target, now);
}

void BulkConnections::on_opened(const Opened& opened, Time now) {
    if (opened.theirs.purpose != Purpose::bulk || opened.theirs.shard != config_.shard)
        return channels_.refuse(opened.id, Channels::close_refused, "this port is for bulk connections");
    if (!opened.agreed)
        return channels_.refuse(opened.id, Channels::close_refused, channels_.no_common_version(opened));
    Peer* peer = find(opened.node);
    if (!peer || peer->known.incarnation != opened.theirs.incarnation) {
        const bool older = peer && opened.theirs.incarnation.counter <= peer->known.incarnation.counter;
        if (older || waiting_.size() >= config_.waiting_max)
            channels_.refuse(opened.id, Channels::close_refused,
                             "not an incarnation of this node that is known here");
        else
            waiting_.emplace(opened.node, opened);
        return;
    }
    if (!channels_.adopt(opened.id, peer->known.peer)) return;
    carries(*peer, opened, now);
    if (opened.we_dialled) peer->to_be_replaced = old_dials_.contains(opened.id);
    if (peer->to_be_replaced) replace(*peer, now + replace_interval);
    watch_.received(peer->known.peer);
    asked_.erase(peer->known.peer);  // over the connection before; that this one was made is the answer
    push_state(*peer);
    events_.back().is_new = true;
}

// A new connection is in use. Over TCP no other is wanted; over QUIC TCP is tried again.
void BulkConnections::carries(Peer& peer, const Opened& opened, Time now) {
    const Target target{peer.known.node, {}};
    const bool was_tcp = peer.over_tcp();
    peer.up = true;
    peer.up_since = now;
    peer.carrier = opened.kind;
    const std::string& dialled = opened.kind == CarrierKind::quic ? peer.dialled_at : peer.tcp_dialled_at;
    peer.made_at = opened.we_dialled ? dialled : peer.known.address;
    peer.quic_why.clear();
    schedule_.stop(target);
    if (peer.dialling) channels_.abandon(*std::exchange(peer.dialling, std::nullopt));
    if (opened.kind == CarrierKind::quic) {
        if (!wants_tcp(peer)) tcp_schedule_.stop(target);
        if (!peer.known.dial)
            peer.tcp_why.clear();
        else if (was_tcp && peer.tcp_why.empty())
            peer.tcp_why = (opened.we_dialled ? "quic was dialled before tcp, and opened after it, at "
                                              : "the other node left tcp at ") +
                           peer.known.address;
        if (was_tcp && wants_tcp(peer) && !peer.tcp_dialling) tcp_schedule_.failed(target, now);
        return;
    }
    if (peer.tcp_dialling) channels_.abandon(*std::exchange(peer.tcp_dialling, std::nullopt));
    peer.tcp_why.clear();
    tcp_schedule_.stop(target);
}

void BulkConnections::on_closed(const Closed& closed, Time now) {
    const auto [first, last] = waiting_.equal_range(closed.node);
    const auto waits = std::find_if(first, last, [&](const auto& w) { return w.second.id == closed.id; });
    if (waits != last) waiting_.erase(waits);
    if (closed.peer) return lost(closed, now);
    Peer* peer = find(closed.node);
    if (peer && peer->dialling == closed.id) dial_failed(*peer, closed.why.text(), now);
    if (peer && peer->tcp_dialling == closed.id) tcp_failed(*peer, closed.why.text(), now);
}

Duration BulkConnections::first_patience() const {
    return std::min(config_.first_patience, config_.watch.timeout);
}

// Who accepts dials as well, unless the peer has dialled again by then: it may not know that the connection
// has ended, or its dials may not pass where ours do [P12].
Duration BulkConnections::patience(const Peer& peer, const ClosedBy& why) const {
    if (peer.known.dial) return Duration{};
    if (!why.by_peer) return why.code == Channels::close_silent ? Duration{} : config_.stand_in_patience;
    const bool refused = why.code == Channels::close_refused || why.code == Channels::close_goodbye;
    return refused ? first_patience() : config_.stand_in_patience;
}

void BulkConnections::lost(const Closed& closed, Time now) {
    const auto at = peers_.find(*closed.peer);
    // The connection that replaces it may have been adopted in this very turn.
    if (at == peers_.end() || channels_.conn_of(*closed.peer)) return;
    Peer& peer = at->second;
    const bool was_tcp = peer.over_tcp();
    peer.up = false;
    const Time from = now + patience(peer, closed.why);
    const bool is_announced = find(closed.node) == &peer;
    if (is_announced && was_tcp && wants_tcp(peer))
        redial_tcp(peer, closed, now, from);
    else if (is_announced && !peer.dialling && closed.why.code == Channels::close_replaced &&
             peer.tcp_dialling)
        start_quic(peer, true, {},
                   from);  // the peer has moved to TCP; that it stands is seen here a moment later
    else if (is_announced && !peer.dialling)
        redial(peer, closed.rtt, now, from);
    // What swallows UDP may let TCP pass, whatever its pause is. Who accepts has not dialled it yet.
    const bool may_pass = is_announced && !was_tcp && wants_tcp(peer) && !peer.tcp_dialling;
    const Target target{peer.known.node, {}};
    if (may_pass && !peer.known.dial)
        tcp_schedule_.start(target, from);
    else if (may_pass && closed.why.code == Channels::close_silent)
        tcp_schedule_.hasten(target, now);
    push_state(peer, closed.why.reason.empty() ? closed.why.cause : closed.why.reason);
}

// What broke TCP may have broken this connection only: it is dialled again at once, and QUIC a moment later.
// Where TCP does not carry, or broke soon, QUIC is dialled at once, and TCP after a pause. A peer that found
// it silent may have been unable to say so: we see only that it broke.
void BulkConnections::redial_tcp(Peer& peer, const Closed& closed, Time now, Time from) {
    const Target target{peer.known.node, {}};
    const Duration lasted = now - peer.up_since;
    const bool stalled =
        closed.why.code == Channels::close_silent || watch_.ended_stuck(peer.known.peer, closed.moved, now);
    const bool again = !stalled && lasted >= config_.young;
    if (lasted >= config_.tcp_settled &&
        closed.moved.sent.acknowledged + closed.moved.received >= config_.tcp_settled_bytes)
        tcp_schedule_.settled(target);
    peer.tcp_why = (stalled ? "tcp stalled at " : "tcp broke at ") + peer.made_at;
    if (!stalled && !closed.why.text().empty()) peer.tcp_why += " (" + closed.why.text() + ")";
    if (!peer.tcp_dialling && again) tcp_schedule_.start_again(target, from, 3 * closed.rtt);
    if (!peer.tcp_dialling && !again) tcp_schedule_.failed(target, from);
    if (!peer.dialling) start_quic(peer, again, 3 * closed.rtt, from);
}

void BulkConnections::start_quic(Peer& peer, bool tcp_first, Duration pace, Time now) {
    peer.quic_waits = tcp_first;
    schedule_.start({peer.known.node, {}}, tcp_first ? now + config_.tcp_patience : now, pace != Duration{},
                    pace);
}

void BulkConnections::dial_tcp_due(Time now) {
    while (const auto due = tcp_schedule_.poll_due(now)) {
        Peer& peer = *find(due->target.node);
        if (peer.tcp_dialling) channels_.abandon(*peer.tcp_dialling);
        peer.tcp_dialled_at = peer.known.address;
        const auto id = channels_.dial(now, peer.known.address, peer.known.node, tcp_);
        if (id)
            peer.tcp_dialling = *id;
        else
            tcp_failed(peer, id.error().text, now);
    }
}

// QUIC carries at once what TCP does not. A dial that was to replace a connection in use: as dial_failed().
void BulkConnections::tcp_failed(Peer& peer, const std::string& why, Time now) {
    const Target target{peer.known.node, {}};
    if (peer.tcp_dialling) channels_.give_up(*std::exchange(peer.tcp_dialling, std::nullopt));
    if (peer.over_tcp() && peer.to_be_replaced) return tcp_schedule_.failed(target, now);
    if (peer.over_tcp() || !wants_tcp(peer)) return tcp_schedule_.stop(target);
    tcp_schedule_.failed(target, now);
    if (!peer.up && !peer.dialling && peer.quic_waits) start_quic(peer, false, {}, now);
    const std::string text = (why.starts_with("tcp") ? why : "tcp: " + why) + " at " + peer.tcp_dialled_at;
    const std::string before = std::exchange(peer.tcp_why, text);
    if (before != peer.tcp_why) push_state(peer);
}

std::string BulkConnections::carrier_why(const Peer& peer) const {
    if (peer.over_tcp()) return {};
    const std::string not_tcp = not_tcp_why(peer);
    if (!peer.quic_why.empty()) return not_tcp + "; " + peer.quic_why;
    if (peer.up) return not_tcp;
    if (peer.dialling) return not_tcp + "; quic has not answered yet at " + peer.dialled_at;
    if (peer.known.dial) return not_tcp + "; quic is dialled next";
    return not_tcp == other_dials ? not_tcp : not_tcp + "; " + other_dials;
}

std::string BulkConnections::not_tcp_why(const Peer& peer) const {
    if (!tcp_) return "tcp_bulk is off on this node";
    if (!peer.known.tcp) return "the other node carries no bulk data over TCP";
    if (!peer.is_ours() || (!peer.known.dial && peer.tcp_why.empty())) return other_dials;
    return peer.tcp_why.empty() ? "tcp has not answered yet at " + peer.known.address : peer.tcp_why;
}

void BulkConnections::push_state(const Peer& peer, std::string why) {
    BulkState state{peer.known.peer, peer.up, std::move(why), {}};
    state.carrier = peer.carrier;
    state.carrier_why = carrier_why(peer);
    events_.push_back(std::move(state));
}

// One that did not last long (the peer refuses us?) is no reason to hurry.
void BulkConnections::redial(const Peer& peer, Duration rtt, Time now, Time from) {
    if (now - peer.up_since >= config_.young)
        schedule_.start({peer.known.node, {}}, from, true, 3 * rtt);
    else
        schedule_.failed({peer.known.node, {}}, from);
}

std::optional<BulkState> BulkConnections::poll_event() {
    if (events_.empty()) return std::nullopt;
    BulkState front = std::move(events_.front());
    events_.pop_front();
    return front;
}

std::vector<link::PeerIndex> BulkConnections::peers() const {
    std::vector<link::PeerIndex> out;
    for (const auto& [index, peer] : peers_) out.push_back(index);
    return out;
}

void BulkConnections::check_invariants() const {
    channels_.check_invariants();
    schedule_.check_invariants();
    tcp_schedule_.check_invariants();
    NEXAR_CHECK(by_node_.size() <= peers_.size());
    NEXAR_CHECK(waiting_.size() <= config_.waiting_max);
    for (const auto& [node, index] : by_node_) NEXAR_CHECK(peers_.at(index).known.node == node);
    for (const auto& [index, peer] : peers_) {
        NEXAR_CHECK(peer.known.peer == index);
        NEXAR_CHECK(peer.up == channels_.conn_of(index).has_value());
    }
}

}  // namespace nexar::connections
