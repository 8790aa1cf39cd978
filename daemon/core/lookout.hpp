// Lookout: for how long a thread that finds no work looks again, and yields, before it sleeps. The time
// counts from the end of its latest work: how long that took says nothing of when more comes, and who awaits
// the answer of another host after a turn of 100 us would otherwise sleep at once.
//
// A sleep with its wake-up takes 20 to 100 us. When most of the waits that outlasted the usual time were over
// within four times as much, the thread looks for so long (Karlin, Li, Manasse, Owicki, "Empirical studies of
// competitive spinning for a shared-memory multiprocessor", 1991: as long as recent waits suggest). A host
// whose work comes less often pays for the usual time only. Dry: the caller passes the time.
#pragma once

#include <algorithm>

#include "core/time.hpp"

namespace nexar {

class Lookout {
  public:
    static constexpr int longest = 4;  // times the usual time

    explicit Lookout(Duration usual) : usual_(usual) {}  // zero: it sleeps at once

    // Work was found at `began`, and was over at `ended`.
    void worked(Time began, Time ended) {
        const Duration waited = began - idle_since_;
        if (waited >= usual_)
            score_ = std::clamp(score_ + (waited < longest * usual_ ? 1 : -1), 0, score_max);
        idle_since_ = ended;
    }
    // False: it sleeps.
    bool looks(Time now) const { return now - idle_since_ < window(); }
    Duration window() const { return score_ < score_max / 2 ? usual_ : longest * usual_; }

  private:
    static constexpr int score_max = 8;  // a few waits of the other kind change nothing

    Duration usual_;
    Time idle_since_{};
    int score_ = 0;  // waits beyond the usual time that were short, less those that were long
};

}  // namespace nexar
