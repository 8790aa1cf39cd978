// One rank of a group in C++, for tests that mix it with Python ranks: all_reduces the values of
// harness/values.py and compares every element.
//
//   rank_client COUNT ROUNDS      rank, size and group come from the environment
#include <nexar.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

int fail(const char* what) {
    nexar_perror(what);
    return 1;
}

float element(uint64_t rank, uint64_t i, uint64_t round) {
    return static_cast<float>(((i + round) * 1009 + rank * 7919) % 100003);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 3) return 2;
    const uint64_t count = std::strtoull(argv[1], nullptr, 10), rounds = std::strtoull(argv[2], nullptr, 10);
    nexar_session* session = nullptr;
    nexar_group* group = nullptr;
    if (nexar_session_open(nullptr, &session) != NEXAR_OK) return fail("session");
    if (nexar_group_open(session, nullptr, &group) != NEXAR_OK) return fail("group");
    uint32_t rank = 0, size = 0;
    if (nexar_group_rank(group, &rank) != NEXAR_OK || nexar_group_size(group, &size) != NEXAR_OK)
        return fail("rank");

    std::vector<float> in(count), out(count);
    for (uint64_t round = 0; round < rounds; ++round) {
        for (uint64_t i = 0; i < count; ++i) in[i] = element(rank, i, round);
        if (nexar_all_reduce(group, in.data(), out.data(), count, NEXAR_F32, NEXAR_SUM, nullptr) != NEXAR_OK)
            return fail("all_reduce");
        for (uint64_t i = 0; i < count; ++i) {
            float want = 0;
            for (uint64_t r = 0; r < size; ++r) want += element(r, i, round);
            if (out[i] == want) continue;
            std::printf("round %llu, element %llu: %g, want %g\n", static_cast<unsigned long long>(round),
                        static_cast<unsigned long long>(i), static_cast<double>(out[i]),
                        static_cast<double>(want));
            return 1;
        }
    }
    std::printf("rank %u: %llu right\n", rank, static_cast<unsigned long long>(rounds));
    nexar_group_free(group);
    nexar_session_close(session);
    return 0;
}
