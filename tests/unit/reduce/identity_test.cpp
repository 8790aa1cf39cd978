// The identities: what is combined with one stays as it is, whatever it is; and their bits.
#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <tuple>
#include <vector>

#include "oracle.hpp"
#include "reduce/reduce.hpp"

using namespace nexar::reduce;
using namespace nexar::reduce::test;

namespace {

constexpr size_t count = 4099;

// Any bits, as a combination gives them: without NaNs of other bits, truth values as 0 and 1.
std::vector<std::byte> any_results(Dtype dtype, ReduceOp op) {
    std::vector<std::byte> out(count * size_of(dtype)), zeros(out.size());
    uint64_t seed = 7;
    for (std::byte& b : out) b = static_cast<std::byte>(splitmix(seed));
    const ReduceOp plain = op == ReduceOp::premul_sum ? ReduceOp::sum : op;
    const void* const given = out.data();
    if (is_logical(dtype, op)) reduce_many(out.data(), {&given, 1}, count, dtype, op);
    const bool is_sum = plain == ReduceOp::sum;
    if (is_sum) reduce_into(out.data(), zeros.data(), count, dtype, plain);  // -0 becomes +0, also below
    if (!is_logical(dtype, op) && !is_sum && op != ReduceOp::bxor && op != ReduceOp::prod)
        reduce_into(out.data(), std::vector(out).data(), count, dtype, op);
    return out;
}

uint64_t bits_of(Dtype dtype, ReduceOp op) {
    uint64_t out = 0;
    fill_identity(&out, 1, dtype, op);
    return out;
}

}  // namespace

TEST_CASE("what is combined with an identity, from either side, stays as it is: every type and operator") {
    for (int d = 0; d < dtype_count; ++d)
        for (int o = 0; o < reduce_op_count; ++o) {
            const auto dtype = static_cast<Dtype>(d);
            const auto op = static_cast<ReduceOp>(o);
            if (!may_reduce(dtype, op) || op == ReduceOp::avg) continue;
            CAPTURE(name_of(dtype), name_of(op));
            std::vector<std::byte> values = any_results(dtype, op);
            std::vector<std::byte> identity(values.size(), std::byte{0xa5});
            fill_identity(identity.data(), count, dtype, op);
            // A product's NaNs get the type's bits.
            if (op == ReduceOp::prod) reduce_into(values.data(), identity.data(), count, dtype, op);
            std::vector<std::byte> left = identity, right = values;
            reduce_into(left.data(), values.data(), count, dtype, op);
            reduce_into(right.data(), identity.data(), count, dtype, op);
            REQUIRE(std::memcmp(left.data(), values.data(), values.size()) == 0);
            REQUIRE(std::memcmp(right.data(), values.data(), values.size()) == 0);
        }
}

TEST_CASE("the identities' bits, written down") {
    const std::vector<std::tuple<Dtype, ReduceOp, uint64_t>> wanted{
        {Dtype::f32, ReduceOp::sum, 0},
        {Dtype::f32, ReduceOp::prod, 0x3f800000},
        {Dtype::f32, ReduceOp::min, 0x7f800000},
        {Dtype::f32, ReduceOp::max, 0xff800000},
        {Dtype::f32, ReduceOp::premul_sum, 0},
        {Dtype::f64, ReduceOp::max, 0xfff0000000000000},
        {Dtype::f8e4m3fn, ReduceOp::min, 0x7e},
        {Dtype::f8e4m3fn, ReduceOp::max, 0xfe},
        {Dtype::f8e5m2, ReduceOp::max, 0xfc},
        {Dtype::i16, ReduceOp::min, 0x7fff},
        {Dtype::i16, ReduceOp::max, 0x8000},
        {Dtype::u16, ReduceOp::max, 0},
        {Dtype::u64, ReduceOp::min, UINT64_MAX},
        {Dtype::i32, ReduceOp::band, 0xffffffff},
        {Dtype::i32, ReduceOp::land, 1},
        {Dtype::i32, ReduceOp::lxor, 0},
        {Dtype::boolean, ReduceOp::min, 1},
        {Dtype::boolean, ReduceOp::max, 0},
        {Dtype::boolean, ReduceOp::band, 1},
        {Dtype::f32_i32, ReduceOp::minloc, 0x7fffffff7f800000},
        {Dtype::i32_i32, ReduceOp::maxloc, 0x7fffffff80000000},
    };
    for (const auto& [dtype, op, bits] : wanted) {
        CAPTURE(name_of(dtype), name_of(op));
        REQUIRE(bits_of(dtype, op) == bits);
    }
    REQUIRE(bits_of(Dtype::f32, ReduceOp::avg) == 0);
}
