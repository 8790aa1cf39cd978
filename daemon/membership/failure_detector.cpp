// See failure_detector.hpp.
#include "membership/failure_detector.hpp"

#include <algorithm>

#include "core/check.hpp"

namespace nexar::membership {

FailureDetector::FailureDetector(const DetectorConfig& config, Time now)
    : config_(config), timer_due_(now + config.interval) {}

FailureDetector::Peer* FailureDetector::find(PeerIndex peer) {
    const auto at = peers_.find(peer);
    return at == peers_.end() ? nullptr : &at->second;
}

// All transitions:
//   alive -> probing       its connection closed
//   alive -> suspected     silent for a whole timeout [F1]
//   probing -> suspected   the window ended, or enough redials failed [F1]
//   probing -> alive       connected again
//   suspected -> alive     received from again, or connected again [F4]
void FailureDetector::move(PeerIndex index, Peer& peer, State to, std::string reason) {
    NEXAR_CHECK(peer.state != to);
    NEXAR_CHECK(to != State::probing || peer.state == State::alive);
    const bool is_reported = to == State::suspected || peer.state == State::suspected;
    peer.state = to;
    if (to != State::probing) peer.window_ends = never;
    if (is_reported) changes_.push_back({index, to, std::move(reason)});
}

void FailureDetector::on_up(PeerIndex index, Time now) {
    if (peers_.empty()) timer_due_ = now + config_.interval;
    Peer& peer = peers_[index];
    peer.connected = true;
    peer.last_received_at = peer.last_sent_at = now;
    peer.redials = 0;
    if (peer.state != State::alive) move(index, peer, State::alive, "connected again");
}

void FailureDetector::on_received(PeerIndex index, Time now) {
    Peer* peer = find(index);
    if (!peer) return;
    peer->last_received_at = std::max(peer->last_received_at, now);
    // A packet that is read after the close may be an old one, so only a connection ends the probing.
    if (peer->state == State::suspected && peer->connected)
        move(index, *peer, State::alive, "received from again");
}

void FailureDetector::on_sent(PeerIndex index, Time now) {
    if (Peer* peer = find(index)) peer->last_sent_at = std::max(peer->last_sent_at, now);
}

void FailureDetector::on_rtt(PeerIndex index, Duration rtt) {
    if (Peer* peer = find(index)) peer->rtt = rtt;
}

void FailureDetector::on_closed(PeerIndex index, const std::string& why, Time now) {
    Peer* peer = find(index);
    if (!peer || !peer->connected) return;
    peer->connected = false;
    peer->redials = 0;
    peer->close_reason = why;
    if (peer->state != State::alive) return;
    move(index, *peer, State::probing, why);
    peer->window_ends = now + std::clamp(30 * peer->rtt, config_.window_min, config_.window_max);
}

void FailureDetector::on_redial_failed(PeerIndex index, Time) {
    Peer* peer = find(index);
    if (!peer || peer->state != State::probing) return;
    if (++peer->redials >= config_.redials_max)
        move(index, *peer, State::suspected,
             "connection closed (" + peer->close_reason + "), " + std::to_string(peer->redials) +
                 " redials failed");
}

void FailureDetector::on_gone(PeerIndex index) {
    peers_.erase(index);
}

void FailureDetector::restart_silences(Time now) {
    for (auto& [index, peer] : peers_) {
        peer.last_received_at = now;
        if (peer.state == State::probing)
            peer.window_ends = now + std::clamp(30 * peer.rtt, config_.window_min, config_.window_max);
    }
}

void FailureDetector::on_time(Time now) {
    if (!peers_.empty() && now > timer_due_ + config_.timeout / 2) restart_silences(now);  // [F3]
    for (auto& [index, peer] : peers_) {
        if (peer.connected && now >= peer.last_sent_at + config_.interval) {
            peer.last_sent_at = now;
            heartbeats_.push_back(index);
        }
        if (peer.state == State::alive && now >= peer.last_received_at + config_.timeout)
            move(index, peer, State::suspected,
                 "silent for " + std::to_string(to_ms(now - peer.last_received_at)) + " ms");
        else if (peer.state == State::probing && now >= peer.window_ends)
            move(index, peer, State::suspected,
                 "connection closed (" + peer.close_reason + "), no new one in time");
    }
    timer_due_ = now + config_.interval;
}

std::optional<PeerIndex> FailureDetector::poll_heartbeat() {
    if (heartbeats_.empty()) return std::nullopt;
    const PeerIndex out = heartbeats_.front();
    heartbeats_.pop_front();
    return out;
}

std::optional<FailureDetector::Change> FailureDetector::poll_change() {
    if (changes_.empty()) return std::nullopt;
    Change out = std::move(changes_.front());
    changes_.pop_front();
    return out;
}

Time FailureDetector::next_of(const Peer& peer) const {
    Time next = peer.connected ? peer.last_sent_at + config_.interval : never;
    if (peer.state == State::alive) next = std::min(next, peer.last_received_at + config_.timeout);
    if (peer.state == State::probing) next = std::min(next, peer.window_ends);
    return next;
}

Time FailureDetector::wake_at() const {
    Time next = peers_.empty() ? never : timer_due_;
    for (const auto& [index, peer] : peers_) next = std::min(next, next_of(peer));
    return next;
}

std::optional<FailureDetector::State> FailureDetector::state_of(PeerIndex peer) const {
    const auto at = peers_.find(peer);
    if (at == peers_.end()) return std::nullopt;
    return at->second.state;
}

void FailureDetector::check_invariants() const {
    for (const auto& [index, peer] : peers_) {
        NEXAR_CHECK((peer.window_ends != never) == (peer.state == State::probing));
        NEXAR_CHECK(peer.state != State::alive || peer.connected);
        NEXAR_CHECK(peer.state != State::probing || !peer.connected);
        NEXAR_CHECK(peer.state != State::probing || peer.redials < config_.redials_max);
    }
}

}  // namespace nexar::membership
