// BulkWatch: finds bulk connections over which nothing comes although transfers wait for them, while the
// control connection of the same two nodes may be well: a blocked port, a broken path; and those over TCP
// that answer but move no bulk data, since the path loses its large packets
// (docs/protocol/connections.md [P13]). A peer of which no transfer waits is not judged. Dry.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "connections/carrier.hpp"
#include "core/ids.hpp"
#include "core/time.hpp"

namespace nexar::connections {

struct BulkWatchConfig {
    Duration interval{1'000'000'000};   // between two looks, and between probes of a silent connection
    Duration timeout{5'000'000'000};    // of silence: the connection is made anew; twice that: it is cut off
    uint64_t crawl_bytes = 128 * 1024;  // over TCP: fewer in `timeout` are no progress while more is owed
};

class BulkWatch {
  public:
    enum class Action : uint8_t {
        probe,    // received from lately; something that it acknowledges is to be sent
        renew,    // silent: its connection is to be closed, and is dialled again
        stuck,    // the same of one that answers, and does not acknowledge what was written
        cut_off,  // silent for long, through a new connection or without one
    };
    struct Judged {
        PeerIndex peer;
        Action action;
        bool operator==(const Judged&) const = default;
    };

    struct Waiting {  // a peer with transfers
        PeerIndex peer;
        std::optional<Moved> over_tcp{};  // none: QUIC carries, or nothing does
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
    std::vector<Judged> look(const std::vector<Waiting>& waiting, Time now);
    // A connection over TCP has ended. Transfers waited for it, and nothing came or moved for two looks?
    bool ended_stuck(PeerIndex peer, const Moved& moved, Time now) const;
    Time wake_at() const { return next_; }

  private:
    struct Row {
        bool received = true;  // since the last look
        Time silent_since{};
        bool renewed = false;         // once in this silence
        std::optional<Moved> mark{};  // when it moved last
        Time marked_at{};
    };
    bool has_moved(const Row& row, const std::optional<Moved>& now) const;
    BulkWatchConfig config_;
    std::map<PeerIndex, Row> rows_;  // of peers for which transfers waited at the last look
    Time next_ = never;              // the next look
};

}  // namespace nexar::connections
