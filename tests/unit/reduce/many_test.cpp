// Many sources in one pass, several destinations, destinations that are sources.
#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

#include "oracle.hpp"
#include "reduce/reduce.hpp"

using namespace nexar::reduce;
using namespace nexar::reduce::test;

namespace {

constexpr size_t sources_max = 17;
constexpr size_t count = 301;

// Each source at its own alignment, with data of its own.
struct Sources {
    Dtype dtype;
    std::vector<Elements> elements;
    std::vector<Buffer> buffers;

    explicit Sources(Dtype type, size_t n) : dtype(type) {
        for (size_t s = 0; s < n; ++s) {
            elements.push_back(make_elements(type, count, 100 + s));
            buffers.push_back(lay_out(type, elements.back(), s));
        }
    }

    unsigned char* at(size_t s) { return &buffers[s][s]; }

    std::vector<const void*> pointers() {
        std::vector<const void*> all;
        for (size_t s = 0; s < buffers.size(); ++s) all.push_back(at(s));
        return all;
    }

    Elements expected(ReduceOp op) const {
        Elements results;
        for (size_t i = 0; i < count; ++i) {
            Elements column;
            for (const Elements& source : elements) column.push_back(source[i]);
            results.push_back(fold(dtype, op, column));
        }
        return results;
    }
};

}  // namespace

TEST_CASE("one to seventeen sources are folded from left to right") {
    for (const Dtype dtype : all_dtypes) {
        for (const ReduceOp op : plain_ops) {
            for (size_t n = 1; n <= sources_max; ++n) {
                Sources sources(dtype, n);
                const Buffer expected = lay_out(dtype, sources.expected(op), 9);
                on_every_target([&](const Kernels&) {
                    Buffer dst = lay_out(dtype, Elements(count), 9);

                    reduce_many(&dst[9], sources.pointers(), count, dtype, op);

                    INFO(name_of(dtype) << " " << name_of(op) << " of " << n);
                    CHECK((dst == expected));
                });
            }
        }
    }
}

TEST_CASE("the destination may be any one of the sources") {
    for (const Dtype dtype : all_dtypes) {
        for (const size_t alias : {size_t{0}, size_t{2}, size_t{4}}) {
            on_every_target([&](const Kernels&) {
                Sources sources(dtype, 5);
                const Buffer expected = lay_out(dtype, sources.expected(ReduceOp::sum), alias);

                reduce_many(sources.at(alias), sources.pointers(), count, dtype, ReduceOp::sum);

                CHECK((sources.buffers[alias] == expected));
            });
        }
    }
}

TEST_CASE("several destinations get the same result, even where each is a source") {
    for (const Dtype dtype : all_dtypes) {
        on_every_target([&](const Kernels&) {
            Sources sources(dtype, 4);
            const Elements expected = sources.expected(ReduceOp::max);
            Buffer extra = lay_out(dtype, Elements(count), 11);
            std::vector<void*> dsts{&extra[11]};
            for (size_t s = 0; s < 4; ++s) dsts.push_back(sources.at(s));

            reduce_many_to(dsts, sources.pointers(), count, dtype, ReduceOp::max);

            CHECK((extra == lay_out(dtype, expected, 11)));
            for (size_t s = 0; s < 4; ++s) CHECK((sources.buffers[s] == lay_out(dtype, expected, s)));
        });
    }
}

TEST_CASE("sums of f16 are rounded once, not at each source") {
    // 2048 + 1 is a tie in f16: rounding at each step would stay at 2048 for ever.
    const uint16_t big = 0x6800, one = 0x3c00;
    std::vector<const void*> srcs{&big};
    for (int i = 0; i < 16; ++i) srcs.push_back(&one);
    on_every_target([&](const Kernels&) {
        uint16_t dst = 0;

        reduce_many(&dst, srcs, 1, Dtype::f16, ReduceOp::sum);

        CHECK(decode(format_of(Dtype::f16), dst) == 2064);
    });
}

TEST_CASE("no sources and no destinations do nothing") {
    on_every_target([](const Kernels&) {
        uint32_t dst = 42;
        const uint32_t src = 1;
        const std::vector<const void*> srcs{&src};

        reduce_many(&dst, {}, 1, Dtype::u32, ReduceOp::sum);
        reduce_many_to({}, srcs, 1, Dtype::u32, ReduceOp::sum);
        reduce_many(nullptr, srcs, 0, Dtype::u32, ReduceOp::sum);

        CHECK(dst == 42);
    });
}
