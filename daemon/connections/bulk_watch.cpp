#include "connections/bulk_watch.hpp"

#include <algorithm>
#include <utility>

namespace nexar::connections {

void BulkWatch::set_waiting(bool waiting, Time now) {
    if (waiting == (next_ != never)) return;
    next_ = waiting ? now + config_.interval : never;
    rows_.clear();
}

// A look that is much too late means that this process did not run: the silence of others is not known.
std::vector<BulkWatch::Judged> BulkWatch::look(const std::vector<PeerIndex>& waiting, Time now) {
    const bool stalled = now - next_ >= config_.timeout / 2;
    next_ = now + config_.interval;
    std::map<PeerIndex, Row> before = std::exchange(rows_, {});
    std::vector<Judged> out;
    for (const PeerIndex peer : waiting) {
        Row& row = rows_[peer] = before[peer];
        if (std::exchange(row.received, false) || stalled) row = {false, now, false};
        const Duration silence = now - row.silent_since;
        if (silence >= 2 * config_.timeout)
            out.push_back({peer, Action::cut_off});
        else if (silence >= config_.timeout && !std::exchange(row.renewed, true))
            out.push_back({peer, Action::renew});
        else
            out.push_back({peer, Action::probe});
    }
    return out;
}

}  // namespace nexar::connections
