// Every pair of 8-bit floats, and every 16-bit float with sampled partners, against the oracle on every
// instruction set.
#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <vector>

#include "oracle.hpp"
#include "reduce/reduce.hpp"

using namespace nexar::reduce;
using namespace nexar::reduce::test;

namespace {

struct Columns {
    Elements a, b;
};

Columns all_pairs_of_bytes() {
    Columns out;
    for (Bits a = 0; a < 256; ++a) {
        for (Bits b = 0; b < 256; ++b) {
            out.a.push_back(a);
            out.b.push_back(b);
        }
    }
    return out;
}

Columns all_halves_with_partners(Dtype dtype) {
    const Elements partners = make_elements(dtype, 65536 * 6, 31);
    Columns out;
    for (size_t i = 0; i < partners.size(); ++i) {
        out.a.push_back(i % 65536);
        out.b.push_back(partners[i]);
    }
    return out;
}

void expect_oracle(Dtype dtype, ReduceOp op, const Columns& columns) {
    Elements expected;
    for (size_t i = 0; i < columns.a.size(); ++i)
        expected.push_back(fold(dtype, op, std::vector{columns.a[i], columns.b[i]}));
    const Buffer want = lay_out(dtype, expected, 0), src = lay_out(dtype, columns.b, 0);
    on_every_target([&](const Kernels&) {
        Buffer dst = lay_out(dtype, columns.a, 0);

        reduce_into(dst.data(), src.data(), columns.a.size(), dtype, op);

        INFO(name_of(dtype) << " " << name_of(op));
        CHECK((dst == want));
    });
}

uint64_t hashed(const Buffer& buffer, size_t bytes) {
    uint64_t hash = 0xcbf29ce484222325;
    for (size_t i = 0; i < bytes; ++i) hash = (hash ^ buffer[i]) * 0x100000001b3;
    return hash;
}

}  // namespace

TEST_CASE("every pair of 8-bit floats is combined as the oracle does") {
    for (const Dtype dtype : {Dtype::f8e4m3fn, Dtype::f8e5m2})
        for (const ReduceOp op : plain_ops) expect_oracle(dtype, op, all_pairs_of_bytes());
}

TEST_CASE("every 16-bit float is combined with sampled partners as the oracle does") {
    for (const Dtype dtype : {Dtype::f16, Dtype::bf16})
        for (const ReduceOp op : plain_ops) expect_oracle(dtype, op, all_halves_with_partners(dtype));
}

// Another implementation: made with ml_dtypes 0.6.0, as (float32(a) op float32(b)).astype(type) of every
// pair, the NaNs replaced by the type's one.
TEST_CASE("sums and products of 8-bit floats are those of ml_dtypes") {
    const struct {
        Dtype dtype;
        ReduceOp op;
        uint64_t hash;
    } theirs[] = {{Dtype::f8e4m3fn, ReduceOp::sum, 0x8c26e65ef2ab18c9},
                  {Dtype::f8e4m3fn, ReduceOp::prod, 0x93b903aa28db8d95},
                  {Dtype::f8e5m2, ReduceOp::sum, 0xbdd2decd81879c85},
                  {Dtype::f8e5m2, ReduceOp::prod, 0xd5c784057ff9557d}};
    const Columns columns = all_pairs_of_bytes();
    const Buffer src = lay_out(Dtype::u8, columns.b, 0);
    for (const auto& expected : theirs) {
        on_every_target([&](const Kernels&) {
            Buffer dst = lay_out(Dtype::u8, columns.a, 0);

            reduce_into(dst.data(), src.data(), columns.a.size(), expected.dtype, expected.op);

            INFO(name_of(expected.dtype) << " " << name_of(expected.op));
            CHECK(hashed(dst, columns.a.size()) == expected.hash);
        });
    }
}

TEST_CASE("what passes the largest 8-bit float is NaN or infinity, and a tie goes to the even one") {
    on_every_target([](const Kernels&) {
        const auto sum = [](Dtype dtype, uint8_t a, uint8_t b) {
            reduce_into(&a, &b, 1, dtype, ReduceOp::sum);
            return a;
        };
        CHECK(sum(Dtype::f8e4m3fn, 0x7e, 0x58) == 0x7e);  // 448 + 16: a tie, 448 is even
        CHECK(sum(Dtype::f8e4m3fn, 0x7e, 0x59) == 0x7f);  // 448 + 18
        CHECK(sum(Dtype::f8e4m3fn, 0xfe, 0xfe) == 0x7f);  // the NaN has no sign
        CHECK(sum(Dtype::f8e5m2, 0x7b, 0x6b) == 0x7b);    // 57344 + 3584
        CHECK(sum(Dtype::f8e5m2, 0x7b, 0x6c) == 0x7c);    // 57344 + 4096: a tie, infinity is even
        CHECK(sum(Dtype::f8e5m2, 0xfb, 0xfb) == 0xfc);
        CHECK(sum(Dtype::f8e5m2, 0x7c, 0xfc) == 0x7e);
    });
}
