#include "engine/local_job.hpp"

#include <algorithm>
#include <cstring>

#include "core/check.hpp"
#include "reduce/reduce.hpp"

namespace nexar::engine {
namespace {

// Walks an extent list in runs.
class Walk {
  public:
    explicit Walk(const link::Extents& extents) : at_(extents.begin()), end_(extents.end()) { skip_empty(); }
    bool ended() const { return at_ == end_; }
    size_t run() const { return at_->bytes - used_; }
    std::byte* data() const { return at_->data + used_; }
    void advance(size_t n) {
        used_ += n;
        if (used_ < at_->bytes) return;
        ++at_;
        used_ = 0;
        skip_empty();
    }

  private:
    void skip_empty() {
        while (at_ != end_ && at_->bytes == 0) ++at_;
    }
    link::Extents::const_iterator at_, end_;
    size_t used_ = 0;
};

void run_flat(const WorkerJob& job, std::span<void* const> dsts, std::span<const void* const> srcs,
              size_t bytes) {
    const size_t count = bytes / reduce::size_of(job.dtype);
    switch (job.kind) {
        case WorkerJob::Kind::reduce:
            return reduce::reduce_many_to(dsts, srcs, count, job.dtype, job.op);
        case WorkerJob::Kind::copy:
            for (void* dst : dsts)
                if (dst != srcs[0]) std::memmove(dst, srcs[0], bytes);
            return;
        case WorkerJob::Kind::finish_avg:
            for (void* dst : dsts) reduce::finish_avg(dst, count, job.dtype, job.divisor);
            return;
    }
}

}  // namespace

size_t total_bytes(const WorkerJob& job) {
    return job.dsts.empty() ? 0 : link::bytes_of(job.dsts[0]) * (job.dsts.size() + job.srcs.size());
}

void run_here(const WorkerJob& job) {
    std::vector<Walk> walks;
    for (const auto& list : job.dsts) walks.emplace_back(list);
    for (const auto& list : job.srcs) walks.emplace_back(list);
    std::vector<void*> dsts(job.dsts.size());
    std::vector<const void*> srcs(job.srcs.size());
    while (!walks.empty() && !walks[0].ended()) {
        size_t run = walks[0].run();
        for (const Walk& w : walks) run = std::min(run, w.ended() ? 0 : w.run());
        NEXAR_CHECK(run > 0);  // all lists cover the same bytes
        for (size_t i = 0; i < dsts.size(); ++i) dsts[i] = walks[i].data();
        for (size_t i = 0; i < srcs.size(); ++i) srcs[i] = walks[dsts.size() + i].data();
        run_flat(job, dsts, srcs, run);
        for (Walk& w : walks) w.advance(run);
    }
}

}  // namespace nexar::engine
