// dst = dst op src against the oracle: every type, operator, length and instruction set, and the special
// values.
#include "reduce/reduce.hpp"

#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "oracle.hpp"

using namespace nexar::reduce;
using namespace nexar::reduce::test;

namespace {

struct Case {
    Dtype dtype;
    ReduceOp op;
    Elements a, b, expected;
};

Case make_case(Dtype dtype, ReduceOp op, size_t count) {
    Case made{dtype, op, make_elements(dtype, count, 1), make_elements(dtype, count, 2), {}};
    for (size_t i = 0; i < count; ++i)
        made.expected.push_back(fold(dtype, op, std::vector{made.a[i], made.b[i]}));
    return made;
}

// Reduces `count` elements from `first` on, between guard bytes, and compares every byte of the buffer.
bool reduces(const Case& which, size_t first, size_t count, size_t dst_offset, size_t src_offset) {
    const auto part = [&](const Elements& all) { return std::span(all).subspan(first, count); };
    Buffer dst = lay_out(which.dtype, part(which.a), dst_offset);
    const Buffer src = lay_out(which.dtype, part(which.b), src_offset);

    reduce_into(&dst[dst_offset], &src[src_offset], count, which.dtype, which.op);

    return dst == lay_out(which.dtype, part(which.expected), dst_offset);
}

std::string label(Dtype dtype, ReduceOp op) {
    return std::string(name_of(dtype)) + " " + std::string(name_of(op));
}

Bits reduced(Dtype dtype, ReduceOp op, Bits a, Bits b) {
    Buffer dst = lay_out(dtype, std::vector{a}, 0);
    const Buffer src = lay_out(dtype, std::vector{b}, 0);
    reduce_into(dst.data(), src.data(), 1, dtype, op);
    return element_at(dtype, dst, 0, 0);
}

}  // namespace

TEST_CASE("every type and operator matches the oracle at every short length and alignment") {
    constexpr size_t longest = 67;
    for (const Dtype dtype : all_dtypes) {
        for (const ReduceOp op : plain_ops) {
            const Case which = make_case(dtype, op, 8 * longest);
            on_every_target([&](const Kernels&) {
                INFO(label(dtype, op));
                for (size_t count = 0; count <= longest; ++count) {
                    INFO("count " << count);
                    REQUIRE(reduces(which, 0, count, 0, 0));
                    REQUIRE(reduces(which, count, count, 1, 0));
                    REQUIRE(reduces(which, 3 * count, count, 0, 3));
                    REQUIRE(reduces(which, 7 * count, count, 7, 13));
                }
            });
        }
    }
}

TEST_CASE("every type and operator matches the oracle on long odd buffers") {
    for (const Dtype dtype : all_dtypes) {
        for (const ReduceOp op : plain_ops) {
            const Case which = make_case(dtype, op, 4099);
            on_every_target([&](const Kernels&) {
                INFO(label(dtype, op));
                CHECK(reduces(which, 0, 4099, 0, 0));
                CHECK(reduces(which, 1, 1021, 5, 2));
                CHECK(reduces(which, 17, 2047, 63, 33));
            });
        }
    }
}

// Sums and products of the half types have conversions of their own in some instruction sets.
TEST_CASE("every 16-bit float is widened and rounded as the oracle does, ties and subnormals included") {
    constexpr size_t values = 65536;
    for (const Dtype dtype : {Dtype::f16, Dtype::bf16}) {
        const FloatFormat f = format_of(dtype);
        const Bits minus_zero = f.sign(), half = encode(f, 0.5), next_to_one = encode(f, 1.0) + 1;
        Case sums{dtype, ReduceOp::sum, {}, {}, {}}, products{dtype, ReduceOp::prod, {}, {}, {}};
        for (Bits value = 0; value < values; ++value) {
            // Half of the value's last place, where there is such a number.
            const double last_place = decode(f, value ^ 1) - decode(f, value);
            for (const Bits other : {minus_zero, encode(f, last_place / 2), encode(f, -last_place / 2)}) {
                sums.a.push_back(value);
                sums.b.push_back(other);
            }
            for (const Bits other : {half, next_to_one, value, value ^ 0x155}) {
                products.a.push_back(value);
                products.b.push_back(other);
            }
        }
        for (Case* which : {&sums, &products}) {
            for (size_t i = 0; i < which->a.size(); ++i) {
                which->expected.push_back(fold(dtype, which->op, std::vector{which->a[i], which->b[i]}));
            }
            on_every_target([&](const Kernels&) {
                INFO(label(dtype, which->op));
                CHECK(reduces(*which, 0, which->a.size(), 0, 0));
            });
        }
    }
}

TEST_CASE("special values meet special values as the oracle says") {
    for (const Dtype dtype : float_dtypes) {
        const FloatFormat f = format_of(dtype);
        const Bits one = encode(f, 1.0);
        Elements specials;
        for (const Bits sign : {Bits{0}, f.sign()}) {
            for (const Bits m :
                 {Bits{0}, Bits{1}, one, one + 1, f.infinity() - 1, f.infinity(), f.infinity() + 1, f.nan}) {
                specials.push_back(sign | m);
            }
        }
        on_every_target([&](const Kernels&) {
            for (const ReduceOp op : plain_ops) {
                for (const Bits a : specials) {
                    for (const Bits b : specials) {
                        INFO(label(dtype, op) << std::hex << " of " << a << " and " << b);
                        CHECK(reduced(dtype, op, a, b) == fold(dtype, op, std::vector{a, b}));
                    }
                }
            }
        });
    }
}

TEST_CASE("min and max order the zeros, whichever comes first") {
    on_every_target([](const Kernels&) {
        for (const Dtype dtype : float_dtypes) {
            const Bits minus_zero = format_of(dtype).sign();
            CHECK(reduced(dtype, ReduceOp::min, 0, minus_zero) == minus_zero);
            CHECK(reduced(dtype, ReduceOp::min, minus_zero, 0) == minus_zero);
            CHECK(reduced(dtype, ReduceOp::max, 0, minus_zero) == 0);
            CHECK(reduced(dtype, ReduceOp::max, minus_zero, 0) == 0);
        }
    });
}

TEST_CASE("a NaN on either side gives the one NaN at its position and nowhere else") {
    constexpr size_t count = 67;
    on_every_target([](const Kernels&) {
        for (const Dtype dtype : float_dtypes) {
            const FloatFormat f = format_of(dtype);
            // Signalling, with a sign and a payload: nothing of it may survive.
            const Bits odd_nan = f.other_nan();
            for (const ReduceOp op : plain_ops) {
                for (size_t at = 0; at < count; ++at) {
                    Elements a(count, encode(f, 2.0)), b(count, encode(f, 3.0));
                    (at % 2 == 0 ? a : b)[at] = odd_nan;
                    Buffer dst = lay_out(dtype, a, 0);
                    const Buffer src = lay_out(dtype, b, 0);

                    reduce_into(dst.data(), src.data(), count, dtype, op);

                    Elements expected(count, fold(dtype, op, std::vector{encode(f, 2.0), encode(f, 3.0)}));
                    expected[at] = f.nan;
                    INFO(label(dtype, op) << " at " << at);
                    REQUIRE((dst == lay_out(dtype, expected, 0)));
                }
            }
        }
    });
}

TEST_CASE("infinity minus infinity and zero times infinity give the one NaN") {
    on_every_target([](const Kernels&) {
        for (const Dtype dtype : float_dtypes) {
            const FloatFormat f = format_of(dtype);
            CHECK(reduced(dtype, ReduceOp::sum, f.infinity(), f.infinity() | f.sign()) == f.nan);
            CHECK(reduced(dtype, ReduceOp::prod, 0, f.infinity()) == f.nan);
        }
    });
}

TEST_CASE("integers wrap around") {
    on_every_target([](const Kernels&) {
        for (const Dtype dtype : all_dtypes) {
            if (is_float(dtype)) continue;
            const Bits top = Bits{1} << (8 * size_of(dtype) - 1);
            const Bits all = 2 * top - 1;
            INFO(name_of(dtype));
            CHECK(reduced(dtype, ReduceOp::sum, all, 1) == 0);
            CHECK(reduced(dtype, ReduceOp::sum, top - 1, 1) == top);
            CHECK(reduced(dtype, ReduceOp::sum, top, top) == 0);
            CHECK(reduced(dtype, ReduceOp::prod, all, all) == 1);
            CHECK(reduced(dtype, ReduceOp::prod, top, all) == top);
            CHECK(reduced(dtype, ReduceOp::prod, top + 1, top + 3) == 3);
        }
    });
}

TEST_CASE("min and max know which integers are signed") {
    on_every_target([](const Kernels&) {
        for (const Dtype dtype : {Dtype::i8, Dtype::i16, Dtype::i32, Dtype::i64}) {
            const Bits minus_one = ~Bits{0} >> (64 - 8 * size_of(dtype));
            CHECK(reduced(dtype, ReduceOp::min, minus_one, 1) == minus_one);
            CHECK(reduced(dtype, ReduceOp::max, minus_one, 1) == 1);
        }
        for (const Dtype dtype : {Dtype::u8, Dtype::u16, Dtype::u32, Dtype::u64}) {
            const Bits largest = ~Bits{0} >> (64 - 8 * size_of(dtype));
            CHECK(reduced(dtype, ReduceOp::min, largest, 1) == 1);
            CHECK(reduced(dtype, ReduceOp::max, largest, 1) == largest);
        }
    });
}

#if defined(__x86_64__)
TEST_CASE("a caller that flushes subnormals and rounds upwards gets the same bits, and its settings back") {
    // Flush to zero, denormals are zero, round up, all exceptions masked.
    constexpr unsigned fast = 0x1f80 | 0x8000 | 0x0040 | 0x4000;
    on_every_target([](const Kernels&) {
        const unsigned saved = _mm_getcsr();
        _mm_setcsr(fast);
        const Bits subnormal = reduced(Dtype::f32, ReduceOp::sum, 1, 2);
        const Bits rounded = reduced(Dtype::f32, ReduceOp::sum, 0x3f800000, 1);
        const Bits half = reduced(Dtype::f16, ReduceOp::sum, 1, 2);
        const unsigned after = _mm_getcsr();
        _mm_setcsr(saved);

        CHECK(subnormal == 3);
        CHECK(rounded == 0x3f800000);
        CHECK(half == 3);
        CHECK((after & ~0x3fu) == fast);
    });
}
#endif
