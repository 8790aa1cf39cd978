// See local_job.hpp.
#include "engine/local_job.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "core/check.hpp"
#include "reduce/partials.hpp"
#include "reduce/reduce.hpp"

namespace nexar::engine {
namespace {

// A position in an extent list.
struct Cursor {
    const link::Extents* extents;
    size_t index = 0;
    size_t offset = 0;

    Cursor(const link::Extents& list, size_t skip) : extents(&list) { advance(skip); }
    std::byte* at() const { return (*extents)[index].data() + offset; }
    size_t run() const { return index == extents->size() ? 0 : (*extents)[index].bytes - offset; }
    void advance(size_t n) {
        while (index < extents->size() && n >= (*extents)[index].bytes - offset) {
            n -= (*extents)[index].bytes - offset;
            ++index;
            offset = 0;
        }
        offset += n;
    }
};

void run_flat(const WorkerJob& job, std::span<void* const> dsts, std::span<const void* const> srcs,
              size_t bytes) {
    const size_t count = bytes / reduce::size_of(job.dtype);
    switch (job.kind) {
        case WorkerJob::Kind::reduce:
            reduce::reduce_many_to(dsts, srcs, count, job.dtype, job.op);
            break;
        case WorkerJob::Kind::premul_sum:
            reduce::premul_sum(dsts, srcs, job.scalars, count, job.dtype);
            break;
        case WorkerJob::Kind::copy:
            for (void* dst : dsts)
                if (dst != srcs[0]) std::memmove(dst, srcs[0], bytes);
            break;
        case WorkerJob::Kind::finish_avg:
            for (void* dst : dsts) reduce::finish_avg(dst, count, job.dtype, job.divisor);
            break;
        case WorkerJob::Kind::identity:
            for (void* dst : dsts) reduce::fill_identity(dst, count, job.dtype, job.op);
            break;
        case WorkerJob::Kind::partials:
            break;  // its lists have elements of two widths: run_partials()
    }
}

// Small operations have few lists of one extent each: those need neither cursors nor memory for them.
constexpr size_t contiguous_lists_max = 16;

bool is_contiguous(const Vector<link::Extents>& lists) {
    return lists.size() <= contiguous_lists_max &&
           std::ranges::all_of(lists, [](const link::Extents& list) { return list.size() == 1; });
}

// False: the job is not of that kind, and nothing was done.
bool run_contiguous(const WorkerJob& job, size_t begin, size_t end) {
    if (!is_contiguous(job.dsts) || !is_contiguous(job.srcs)) return false;
    std::array<void*, contiguous_lists_max> dsts;
    std::array<const void*, contiguous_lists_max> srcs;
    for (size_t i = 0; i < job.dsts.size(); ++i) dsts[i] = job.dsts[i][0].data() + begin;
    for (size_t i = 0; i < job.srcs.size(); ++i) srcs[i] = job.srcs[i][0].data() + begin;
    run_flat(job, std::span(dsts).first(job.dsts.size()), std::span(srcs).first(job.srcs.size()),
             end - begin);
    return true;
}

// Bytes [begin, end) of the first dst, and of the others as many elements.
void run_partials(const WorkerJob& job, size_t begin, size_t end) {
    const size_t value = reduce::size_of(job.dtype), partial = reduce::size_of(partial_type(job.dtype));
    const size_t to = job.to_partial ? partial : value;
    Vector<Cursor> dst_at, src_at;
    for (const auto& list : job.dsts) dst_at.emplace_back(list, begin);
    Vector<size_t> widths;
    for (size_t i = 0; i < job.srcs.size(); ++i) {
        widths.push_back(job.sources[i].is_partial ? partial : value);
        src_at.emplace_back(job.srcs[i], begin / to * widths[i]);
    }
    Vector<void*> dsts(dst_at.size());
    Vector<reduce::PartialSource> srcs(src_at.size());
    for (size_t left = (end - begin) / to; left > 0;) {
        size_t run = left;  // elements
        for (const Cursor& c : dst_at) run = std::min(run, c.run() / to);
        for (size_t i = 0; i < src_at.size(); ++i) run = std::min(run, src_at[i].run() / widths[i]);
        NEXAR_CHECK(run > 0);
        for (size_t i = 0; i < dst_at.size(); ++i) dsts[i] = dst_at[i].at();
        for (size_t i = 0; i < src_at.size(); ++i)
            srcs[i] = {src_at[i].at(), job.sources[i].ranks, job.sources[i].is_partial};
        reduce::combine_partials(
            {dsts, srcs, job.scalars, run, job.dtype, job.op, job.tree_ranks, job.to_partial, job.divisor});
        for (Cursor& c : dst_at) c.advance(run * to);
        for (size_t i = 0; i < src_at.size(); ++i) src_at[i].advance(run * widths[i]);
        left -= run;
    }
}

}  // namespace

size_t bytes_of(const WorkerJob& job) {
    return job.dsts.empty() ? 0 : link::bytes_of(job.dsts[0]);
}

size_t total_bytes(const WorkerJob& job) {
    return bytes_of(job) * (job.dsts.size() + job.srcs.size());
}

void run_here(const WorkerJob& job) {
    run_piece(job, 0, bytes_of(job));
}

void run_piece(const WorkerJob& job, size_t begin, size_t end) {
    if (job.kind == WorkerJob::Kind::partials) return run_partials(job, begin, end);
    if (begin == end || run_contiguous(job, begin, end)) return;
    Vector<Cursor> dst_at, src_at;
    for (const auto& list : job.dsts) dst_at.emplace_back(list, begin);
    for (const auto& list : job.srcs) src_at.emplace_back(list, begin);
    Vector<void*> dsts(dst_at.size());
    Vector<const void*> srcs(src_at.size());
    for (size_t left = end - begin; left > 0;) {
        size_t run = left;
        for (const Cursor& c : dst_at) run = std::min(run, c.run());
        for (const Cursor& c : src_at) run = std::min(run, c.run());
        NEXAR_CHECK(run > 0);  // all lists cover the same bytes
        for (size_t i = 0; i < dst_at.size(); ++i) dsts[i] = dst_at[i].at();
        for (size_t i = 0; i < src_at.size(); ++i) srcs[i] = src_at[i].at();
        run_flat(job, dsts, srcs, run);
        for (Cursor& c : dst_at) c.advance(run);
        for (Cursor& c : src_at) c.advance(run);
        left -= run;
    }
}

}  // namespace nexar::engine
