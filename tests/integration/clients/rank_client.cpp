// One rank of a group in C++, for tests that mix it with Python ranks: collectives of the values of
// harness/values.py; it compares every element.
//
//   rank_client COUNT ROUNDS      rank, size and group come from the environment
#include <nexar.h>

#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <vector>

namespace {

int fail(const char* what) {
    nexar_perror(what);
    return 1;
}

float element(uint64_t rank, uint64_t i, uint64_t round) {
    return static_cast<float>(((i + round) * 1009 + rank * 7919) % 100003);
}

// want(i) for each element of got.
template <class Want>
bool all_right(const std::vector<float>& got, uint64_t round, Want want) {
    for (uint64_t i = 0; i < got.size(); ++i) {
        if (got[i] == want(i)) continue;
        std::printf("round %llu, element %llu: %g, want %g\n", static_cast<unsigned long long>(round),
                    static_cast<unsigned long long>(i), static_cast<double>(got[i]),
                    static_cast<double>(want(i)));
        return false;
    }
    return true;
}

struct Rank {
    nexar_group* group = nullptr;
    uint32_t rank = 0, size = 0;

    std::vector<float> values(uint64_t count, uint64_t round) const {
        std::vector<float> out(count);
        for (uint64_t i = 0; i < count; ++i) out[i] = element(rank, i, round);
        return out;
    }
    bool all_reduce(uint64_t count, uint64_t round) const {
        const std::vector<float> in = values(count, round);
        std::vector<float> out(count);
        if (nexar_all_reduce(group, in.data(), out.data(), count, NEXAR_F32, NEXAR_SUM, nullptr) != NEXAR_OK)
            return fail("all_reduce") == 0;
        return all_right(out, round, [&](uint64_t i) {
            float want = 0;
            for (uint64_t r = 0; r < size; ++r) want += element(r, i, round);
            return want;
        });
    }
    bool all_to_all(uint64_t count, uint64_t round) const {
        const std::vector<float> in = values(count * size, round);
        std::vector<float> out(count * size);
        nexar_request request = 0;
        const bool started = nexar_all_to_all_start(group, in.data(), out.data(), count, NEXAR_F32, nullptr,
                                                    &request) == NEXAR_OK;
        if (!started || nexar_request_wait(request, NEXAR_TIMEOUT_NONE, nullptr) != NEXAR_OK ||
            nexar_request_free(request) != NEXAR_OK)
            return fail("all_to_all") == 0;
        return all_right(out, round,
                         [&](uint64_t i) { return element(i / count, rank * count + i % count, round); });
    }
    // Some ranks have none. To all ranks, and to a root and back.
    bool gathervs(uint64_t count, uint64_t round) const {
        std::vector<uint64_t> counts(size);
        std::vector<float> want;
        for (uint32_t r = 0; r < size; ++r) {
            counts[r] = (round + r) % 4 * count;
            for (uint64_t i = 0; i < counts[r]; ++i) want.push_back(element(r, i, round));
        }
        const std::vector<float> in = values(counts[rank], round);
        std::vector<float> out(want.size());
        if (nexar_all_gatherv(group, in.data(), out.data(), counts.data(), NEXAR_F32, nullptr) != NEXAR_OK)
            return fail("all_gatherv") == 0;
        if (!all_right(out, round, [&](uint64_t i) { return want[i]; })) return false;
        const auto root = static_cast<uint32_t>(round % size);
        out.assign(rank == root ? want.size() : 0, 0);
        if (nexar_gatherv(group, in.data(), out.data(), counts.data(), NEXAR_F32, root, nullptr) != NEXAR_OK)
            return fail("gatherv") == 0;
        if (!all_right(out, round, [&](uint64_t i) { return want[i]; })) return false;
        std::vector<float> back(in.size());
        if (nexar_scatterv(group, out.data(), back.data(), counts.data(), NEXAR_F32, root, nullptr) !=
            NEXAR_OK)
            return fail("scatterv") == 0;
        return all_right(back, round, [&](uint64_t i) { return in[i]; });
    }
    bool reduce_scatterv(uint64_t count, uint64_t round) const {
        std::vector<uint64_t> counts(size);
        uint64_t all = 0, own_at = 0;
        for (uint32_t r = 0; r < size; ++r) {
            if (r == rank) own_at = all;
            all += counts[r] = (round + r) % 4 * count;
        }
        const std::vector<float> in = values(all, round);
        std::vector<float> out(counts[rank]);
        if (nexar_reduce_scatterv(group, in.data(), out.data(), counts.data(), NEXAR_F32, NEXAR_SUM,
                                  nullptr) != NEXAR_OK)
            return fail("reduce_scatterv") == 0;
        return all_right(out, round, [&](uint64_t i) {
            float want = 0;
            for (uint64_t r = 0; r < size; ++r) want += element(r, own_at + i, round);
            return want;
        });
    }
    // Blocks of lengths that only their two ranks know.
    bool all_to_allv(uint64_t count, uint64_t round) const {
        const auto sent = [&](uint64_t s, uint64_t r) { return (round + s + 2 * r) % 3 * count; };
        std::vector<uint64_t> sends(size), receives(size);
        std::vector<float> want;
        for (uint32_t other = 0; other < size; ++other) {
            sends[other] = sent(rank, other), receives[other] = sent(other, rank);
            uint64_t at = 0;
            for (uint32_t below = 0; below < rank; ++below) at += sent(other, below);
            for (uint64_t i = 0; i < receives[other]; ++i) want.push_back(element(other, at + i, round));
        }
        const std::vector<float> in = values(std::accumulate(sends.begin(), sends.end(), uint64_t{0}), round);
        std::vector<float> out(want.size());
        if (nexar_all_to_allv(group, in.data(), sends.data(), out.data(), receives.data(), NEXAR_F32,
                              nullptr) != NEXAR_OK)
            return fail("all_to_allv") == 0;
        return all_right(out, round, [&](uint64_t i) { return want[i]; });
    }
    // To a root, and back from it.
    bool gather_and_scatter(uint64_t count, uint64_t round) const {
        const std::vector<float> in = values(count, round);
        const auto root = static_cast<uint32_t>(round % size);
        std::vector<float> all(rank == root ? count * size : 0), out(count);
        if (nexar_gather(group, in.data(), all.data(), count, NEXAR_F32, root, nullptr) != NEXAR_OK)
            return fail("gather") == 0;
        if (!all_right(all, round, [&](uint64_t i) { return element(i / count, i % count, round); }))
            return false;
        if (nexar_scatter(group, all.data(), out.data(), count, NEXAR_F32, root, nullptr) != NEXAR_OK)
            return fail("scatter") == 0;
        return all_right(out, round, [&](uint64_t i) { return element(rank, i, round); });
    }
    // In place and, without this rank, apart.
    bool scans(uint64_t count, uint64_t round) const {
        const std::vector<float> in = values(count, round);
        std::vector<float> with = in, below(count);
        if (nexar_scan(group, with.data(), with.data(), count, NEXAR_F32, NEXAR_SUM, nullptr) != NEXAR_OK ||
            nexar_exclusive_scan(group, in.data(), below.data(), count, NEXAR_F32, NEXAR_SUM, nullptr) !=
                NEXAR_OK)
            return fail("scan") == 0;
        const auto sum = [&](uint64_t ranks, uint64_t i) {
            float want = 0;
            for (uint64_t r = 0; r < ranks; ++r) want += element(r, i, round);
            return want;
        };
        return all_right(with, round, [&](uint64_t i) { return sum(rank + 1, i); }) &&
               all_right(below, round, [&](uint64_t i) { return sum(rank, i); });
    }
};

}  // namespace

int main(int argc, char** argv) {
    if (argc != 3) return 2;
    const uint64_t count = std::strtoull(argv[1], nullptr, 10), rounds = std::strtoull(argv[2], nullptr, 10);
    nexar_session* session = nullptr;
    Rank me;
    if (nexar_session_open(nullptr, &session) != NEXAR_OK) return fail("session");
    if (nexar_group_open(session, nullptr, &me.group) != NEXAR_OK) return fail("group");
    if (nexar_group_rank(me.group, &me.rank) != NEXAR_OK || nexar_group_size(me.group, &me.size) != NEXAR_OK)
        return fail("rank");

    for (uint64_t round = 0; round < rounds; ++round)
        if (!me.all_reduce(count, round) || !me.all_to_all(count, round) || !me.gathervs(count, round) ||
            !me.all_to_allv(count, round) || !me.reduce_scatterv(count, round) ||
            !me.gather_and_scatter(count, round) || !me.scans(count, round))
            return 1;
    std::printf("rank %u: %llu right\n", me.rank, static_cast<unsigned long long>(rounds));
    nexar_group_free(me.group);
    nexar_session_close(session);
    return 0;
}
