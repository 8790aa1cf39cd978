#include "connections/bulk_watch.hpp"

#include <algorithm>
#include <utility>

namespace nexar::connections {

void BulkWatch::set_waiting(bool waiting, Time now) {
    if (waiting == (next_ != never)) return;
    next_ = waiting ? now + config_.interval : never;
    rows_.clear();
}

// All that was owed at the mark has been acknowledged, or much has gone either way. On a slow path the
// acknowledgement waits in the peer's queue, behind what comes from there.
bool BulkWatch::has_moved(const Row& row, const std::optional<Moved>& now) const {
    if (!row.mark || !now || row.mark->connection != now->connection) return true;
    if (now->sent.acknowledged >= row.mark->sent.written) return true;
    return now->sent.acknowledged - row.mark->sent.acknowledged + now->received - row.mark->received >=
           config_.crawl_bytes;
}

bool BulkWatch::ended_stuck(PeerIndex peer, const Moved& moved, Time now) const {
    const auto at = rows_.find(peer);
    if (at == rows_.end()) return false;
    const Row& row = at->second;
    return (!row.received && now - row.silent_since >= 2 * config_.interval) ||
           (!has_moved(row, moved) && now - row.marked_at >= 2 * config_.interval);
}

// A look that is much too late means that this process did not run: the silence of others is not known.
std::vector<BulkWatch::Judged> BulkWatch::look(const std::vector<Waiting>& waiting, Time now) {
    const bool stalled = now - next_ >= config_.timeout / 2;
    next_ = now + config_.interval;
    std::map<PeerIndex, Row> before = std::exchange(rows_, {});
    std::vector<Judged> out;
    for (const auto& [peer, moved] : waiting) {
        Row& row = rows_[peer] = before[peer];
        if (std::exchange(row.received, false) || stalled) {
            row.silent_since = now;
            row.renewed = false;
        }
        if (has_moved(row, moved) || stalled) {
            row.mark = moved;
            row.marked_at = now;
        }
        const Duration silence = now - row.silent_since;
        if (silence >= 2 * config_.timeout)
            out.push_back({peer, Action::cut_off});
        else if (silence >= config_.timeout && !std::exchange(row.renewed, true))
            out.push_back({peer, Action::renew});
        else if (row.mark && now - row.marked_at >= config_.timeout)
            out.push_back({peer, Action::stuck});
        else
            out.push_back({peer, Action::probe});
    }
    return out;
}

}  // namespace nexar::connections
