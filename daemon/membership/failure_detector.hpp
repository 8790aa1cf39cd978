// Failure detector: turns silence and closed connections into suspicion (docs/protocol/failure.md [F1]-[F4]).
// Sans-io; it concludes nothing about a group, that is the arbiter's part. One thread, owned by Membership.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>

#include "core/ids.hpp"
#include "core/time.hpp"

namespace nexar::membership {

struct DetectorConfig {
    Duration interval{1'000'000'000};  // I: a heartbeat after so long without sending anything
    Duration timeout{5'000'000'000};   // T: silence until suspicion
    Duration window_min{200'000'000};  // W after a close ...
    Duration window_max{600'000'000};
    unsigned redials_max = 3;  // ... or so many failed redials
};

class FailureDetector {
  public:
    enum class State : uint8_t { alive, probing, suspected };
    struct Change {
        PeerIndex peer;
        State state;         // alive (again) or suspected
        std::string reason;  // "silent for 5000 ms", "connection closed (refused), 3 redials failed"
    };

    FailureDetector(const DetectorConfig& config, Time now);

    // Input. Time never goes backwards. An unknown peer is ignored: it has just been forgotten.
    void on_up(PeerIndex peer, Time now);     // a connection stands, also a later one of the same life
    void on_heard(PeerIndex peer, Time now);  // any authenticated packet
    void on_sent(PeerIndex peer, Time now);   // anything that the peer will authenticate; saves a heartbeat
    void on_rtt(PeerIndex peer, Duration rtt);
    void on_closed(PeerIndex peer, const std::string& why, Time now);
    void on_redial_failed(PeerIndex peer, Time now);
    void on_gone(PeerIndex peer);  // proof of death: forget this life
    void on_time(Time now);

    // Output.
    std::optional<PeerIndex> poll_heartbeat();
    std::optional<Change> poll_change();
    Time wake_at() const;

    std::optional<State> state_of(PeerIndex peer) const;
    Duration silence_of(PeerIndex peer, Time now) const;

  private:
    struct Peer {
        State state = State::alive;
        bool connected = false;
        Time heard, sent;
        Time window_ends = never;
        Duration rtt{};
        unsigned redials = 0;
        std::string why;
    };
    void move(PeerIndex index, Peer& peer, State to, std::string reason);
    void restart_silences(Time now);
    Time next_of(const Peer& peer) const;
    Peer* find(PeerIndex peer);

    DetectorConfig config_;
    std::map<PeerIndex, Peer> peers_;
    std::deque<PeerIndex> heartbeats_;
    std::deque<Change> changes_;
    // When on_time() is due at the latest, whatever traffic postpones: later by T/2 means that we were
    // stalled.
    Time promised_;
};

}  // namespace nexar::membership
