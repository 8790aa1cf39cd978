// What the link costs without a network: ns per 256 KiB chunk (copied, or combined) and per 8-byte transfer,
// both nodes together. The bytes' own cost is shown beside it. Not a ctest; made to be run under callgrind
// too:
//   link_bench [copy|reduce|small] [rounds]
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "link/frame.hpp"
#include "reduce/reduce.hpp"
#include "support/mesh_pair.hpp"

using namespace nexar;
using namespace nexar::link;

namespace {

double ns_each(size_t n, const auto& f) {
    const auto start = std::chrono::steady_clock::now();
    for (size_t i = 0; i < n; ++i) f(i);
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
    return took.count() / static_cast<double>(n);
}

void bench_bulk(bool reduce, size_t rounds) {
    constexpr size_t chunks = 16, bytes = chunks * chunk_bytes_max;
    std::vector<std::byte> from(bytes), to(bytes), through(bytes);
    const Region from_region = region_of(from), to_region = region_of(to);
    MeshPair pair;
    const double each = ns_each(
        rounds, [&](size_t i) { transfer(pair, i, from_region, to_region, bytes, Class::bulk, reduce); });
    // What any implementation over this pipe pays: into the pipe, out of it.
    const double floor = ns_each(rounds, [&](size_t) {
        for (size_t c = 0; c < chunks; ++c) {
            const size_t at = c * chunk_bytes_max;
            std::memcpy(through.data() + at, from.data() + at, chunk_bytes_max);
            if (reduce)
                reduce::reduce_into(to.data() + at, through.data() + at, chunk_bytes_max / 4, Dtype::f32,
                                    ReduceOp::sum);
            else
                std::memcpy(to.data() + at, through.data() + at, chunk_bytes_max);
        }
    });
    std::printf("%-6s  %8.0f ns per 256 KiB chunk, of which the bytes alone %8.0f\n",
                reduce ? "reduce" : "copy", each / chunks, floor / chunks);
    if (pair.ended != 2 * rounds) std::abort();
}

void bench_small(size_t rounds) {
    std::vector<std::byte> from(8), to(8);
    const Region from_region = region_of(from), to_region = region_of(to);
    MeshPair pair;
    const double each =
        ns_each(rounds, [&](size_t i) { transfer(pair, i, from_region, to_region, 8, Class::small, true); });
    std::printf("small   %8.0f ns per 8-byte transfer (both nodes: post, data, ack, done)\n", each);
    if (pair.ended != 2 * rounds) std::abort();
}

}  // namespace

int main(int argc, char** argv) {
    const std::string what = argc > 1 ? argv[1] : "";
    const size_t rounds = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 0;
    if (what.empty() || what == "copy") bench_bulk(false, rounds != 0 ? rounds : 200);
    if (what.empty() || what == "reduce") bench_bulk(true, rounds != 0 ? rounds : 200);
    if (what.empty() || what == "small") bench_small(rounds != 0 ? rounds : 300'000);
}
