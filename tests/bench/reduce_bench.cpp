// How fast the reduction kernels are, beside plain memory traffic of the same shape. Not a test: it prints,
// and judges nothing. One thread, timed by its own CPU clock, so that a busy machine disturbs it less. Rates
// count the bytes that an operation must read and write; lines that are written are read by the CPU first,
// which is not counted.
//
//   reduce_bench [KiB per buffer, default 65536] [all]     all: every instruction set, not only the best
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "reduce/kernels.hpp"
#include "reduce/reduce.hpp"

using namespace nexar::reduce;

namespace {

constexpr size_t rounds = 7;
constexpr size_t sources_max = 8;

using Buffer = std::vector<unsigned char>;

double cpu_seconds() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

// Best of several, in GB/s.
template <class Body>
double rate(size_t bytes, Body body) {
    const size_t repeats = std::max(size_t{1}, (size_t{16} << 20) / bytes);
    double best = 0;
    for (size_t i = 0; i < rounds; ++i) {
        const double begin = cpu_seconds();
        for (size_t k = 0; k < repeats; ++k) body();
        best = std::max(best, static_cast<double>(repeats * bytes) / (cpu_seconds() - begin) / 1e9);
    }
    return best;
}

// Small numbers of about one in every type's eyes: 0x3c3c... is neither NaN nor subnormal in any of them.
std::vector<Buffer> make_buffers(size_t bytes) {
    std::vector<Buffer> buffers;
    for (size_t s = 0; s <= sources_max; ++s) buffers.emplace_back(bytes, static_cast<unsigned char>(0x3c));
    return buffers;
}

void bench_triad(std::vector<Buffer>& buffers, size_t bytes) {
    auto* dst = reinterpret_cast<float*>(buffers[0].data());
    const auto* src = reinterpret_cast<const float*>(buffers[1].data());
    const double copied = rate(2 * bytes, [&] { std::memcpy(dst, src, bytes); });
    const double added = rate(3 * bytes, [&] {
        for (size_t i = 0; i < bytes / sizeof(float); ++i) dst[i] += src[i];
    });
    std::printf("memcpy %.1f GB/s, compiler's a[i] += b[i] %.1f GB/s\n", copied, added);
}

void bench_dtype(std::vector<Buffer>& buffers, size_t bytes, Dtype dtype) {
    const size_t count = bytes / size_of(dtype);
    std::vector<const void*> srcs;
    for (size_t s = 1; s <= sources_max; ++s) srcs.push_back(buffers[s].data());
    std::printf("  %-8s", name_of(dtype).data());
    for (const ReduceOp op :
         {ReduceOp::sum, ReduceOp::prod, ReduceOp::max, ReduceOp::band, ReduceOp::land, ReduceOp::minloc}) {
        if (!may_reduce(dtype, op)) continue;
        const double two =
            rate(3 * bytes, [&] { reduce_into(buffers[0].data(), buffers[1].data(), count, dtype, op); });
        const double many =
            rate((sources_max + 1) * bytes, [&] { reduce_many(buffers[0].data(), srcs, count, dtype, op); });
        std::printf("  %s %5.1f, of %zu %5.1f", name_of(op).data(), two, sources_max, many);
    }
    if (!may_reduce(dtype, ReduceOp::avg)) return static_cast<void>(std::putchar('\n'));
    const double divided = rate(2 * bytes, [&] { finish_avg(buffers[0].data(), count, dtype, 3); });
    std::printf("  avg's end %5.1f\n", divided);
}

}  // namespace

int main(int argc, char* argv[]) {
    const size_t bytes = (argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 65536) << 10;
    auto buffers = make_buffers(bytes);
    bench_triad(buffers, bytes);
    const size_t targets = argc > 2 ? usable_kernels().size() : 1;
    for (const Kernels* target : usable_kernels().first(targets)) {
        std::printf("%s, GB/s of reads and writes\n", target->target);
        choose_kernels_for_test(target);
        for (int code = 0; code < dtype_count; ++code) bench_dtype(buffers, bytes, *dtype_from(code));
    }
    return EXIT_SUCCESS;
}
