// BulkWatch: finds bulk connections over which nothing comes although transfers wait for them, while the
// control connection of the same two nodes may be well: a blocked port, a broken path
// (docs/protocol/connections.md [P13]). A peer of which no transfer waits is not judged. Dry.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "core/ids.hpp"
#include "core/time.hpp"

namespace nexar::connections {

struct BulkWatchConfig {
    Duration interval{1'000'000'000};  // between two looks, and between probes of a silent connection
    Duration timeout{5'000'000'000};   // of silence: the connection is made anew; twice that: it is cut off
};

class BulkWatch {
  public:
    enum class Action : uint8_t {
        probe,    // received from lately; something that it acknowledges is to be sent
        renew,    // silent: its connection is to be closed, and is dialled again
        cut_off,  // silent for long, through a new connection or without one
    };
    struct Judged {
        PeerIndex peer;
        Action action;
        bool operator==(const Judged&) const = default;
    };

    explicit BulkWatch(const BulkWatchConfig& config) : config_(config) {}

    // Something authentic has come, or a connection has been made.
    void received(PeerIndex peer) {
        if (rows_.empty()) return;
        if (const auto at = rows_.find(peer); at != rows_.end()) at->second.received = true;
    }
    // Transfers exist, or none do: looks are due only while they do.
    void set_waiting(bool waiting, Time now);
    bool due(Time now) const { return now >= next_; }
    // One look. `waiting`: the peers with transfers.
    std::vector<Judged> look(const std::vector<PeerIndex>& waiting, Time now);
    Time wake_at() const { return next_; }

  private:
    struct Row {
        bool received = true;  // since the last look
        Time silent_since{};
        bool renewed = false;  // once in this silence
    };
    BulkWatchConfig config_;
    std::map<PeerIndex, Row> rows_;  // of peers for which transfers waited at the last look
    Time next_ = never;              // the next look
};

}  // namespace nexar::connections
