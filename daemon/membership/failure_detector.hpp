// FailureDetector: turns silence and closed connections into suspicion (docs/protocol/failure.md [F1]-[F4]).
// Sans-io. It decides nothing about groups.
//
// Thread: the owner's (engine::Watch).
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>

#include "core/ids.hpp"
#include "core/time.hpp"

namespace nexar::membership {

struct DetectorConfig {
    Duration interval{1'000'000'000};  // I: a heartbeat is sent when nothing was sent for so long
    Duration timeout{5'000'000'000};   // T: a peer is suspected when nothing was received for so long
    // A peer whose connection closed is suspected after W = clamp(30 * RTT, window_min, window_max), or after
    // redials_max failed redials.
    Duration window_min{200'000'000};
    Duration window_max{600'000'000};
    unsigned redials_max = 3;
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

    // Input. Requires: `now` never decreases. An unknown peer is ignored: on_gone() was called for it.
    void on_up(PeerIndex peer, Time now);        // connected, also when a connection replaced another
    void on_received(PeerIndex peer, Time now);  // any authenticated packet
    void on_sent(PeerIndex peer, Time now);  // any packet that the peer authenticates; replaces a heartbeat
    void on_rtt(PeerIndex peer, Duration rtt);
    void on_closed(PeerIndex peer, const std::string& why, Time now);
    void on_redial_failed(PeerIndex peer, Time now);
    void on_gone(PeerIndex peer);  // its failure or departure is proved: forget it
    void on_time(Time now);

    // Output.
    std::optional<PeerIndex> poll_heartbeat();
    std::optional<Change> poll_change();
    Time wake_at() const;

    std::optional<State> state_of(PeerIndex peer) const;

    void check_invariants() const;  // for tests; walks all peers

  private:
    struct Peer {
        State state = State::alive;
        bool connected = false;               // an alive peer is, a probed one is not
        Time last_received_at, last_sent_at;  // or when a stall restarted the silences [F3]
        Time window_ends = never;             // while probing: when the peer is suspected
        Duration rtt{};                       // zero: not measured
        unsigned redials = 0;                 // failed ones since the close
        std::string close_reason;             // of the last close
    };
    void move(PeerIndex index, Peer& peer, State to, std::string reason);
    void restart_silences(Time now);
    Time next_of(const Peer& peer) const;
    Peer* find(PeerIndex peer);

    DetectorConfig config_;
    std::map<PeerIndex, Peer> peers_;   // from on_up() to on_gone()
    std::deque<PeerIndex> heartbeats_;  // due, not polled yet
    std::deque<Change> changes_;        // not polled yet
    Time timer_due_;  // the latest time of the next on_time(); T/2 later means that this process was stalled
                      // [F3]
};

}  // namespace nexar::membership
