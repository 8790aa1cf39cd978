// The numbers, sizes and names of element types and operators.
#include "reduce/dtype.hpp"

#include <catch2/catch_test_macros.hpp>
#include <iterator>
#include <string>

using namespace nexar::reduce;
using nexar::reduction_count, nexar::type_count;

TEST_CASE("type numbers never change") {
    const char* const names[] = {"f32",    "f64",     "f16",     "bf16",    "i8",     "i32",  "i64",
                                 "u8",     "u32",     "u64",     "i16",     "u16",    "bool", "f8e4m3fn",
                                 "f8e5m2", "f32_i32", "f64_i64", "i32_i32", "i64_i64"};
    const size_t sizes[] = {4, 8, 2, 2, 1, 4, 8, 1, 4, 8, 2, 2, 1, 1, 1, 8, 16, 8, 16};
    STATIC_REQUIRE(std::size(names) == dtype_count);
    for (int code = 0; code < dtype_count; ++code) {
        const auto dtype = dtype_from(code);
        REQUIRE(dtype.has_value());
        CHECK(static_cast<int>(*dtype) == code);
        CHECK(name_of(*dtype) == names[code]);
        CHECK(size_of(*dtype) == sizes[code]);
        CHECK(align_of(*dtype) == (code < 15 ? sizes[code] : sizes[code] / 2));
    }
}

TEST_CASE("operator numbers never change") {
    const char* const names[] = {"sum",  "prod", "min", "max",  "avg",    "band",   "bor",
                                 "bxor", "land", "lor", "lxor", "minloc", "maxloc", "premul_sum"};
    STATIC_REQUIRE(std::size(names) == reduce_op_count);
    for (int code = 0; code < reduce_op_count; ++code) {
        const auto op = reduce_op_from(code);
        REQUIRE(op.has_value());
        CHECK(static_cast<int>(*op) == code);
        CHECK(name_of(*op) == names[code]);
    }
}

TEST_CASE("every number has a name and a size, also one that names nothing", "[H1]") {
    for (int code = dtype_count; code < 256; ++code) {
        CAPTURE(code);
        CHECK(name_of(static_cast<Dtype>(code)) == "unknown type");
        CHECK(size_of(static_cast<Dtype>(code)) == 1);
    }
    for (int code = reduce_op_count; code < 256; ++code) {
        CAPTURE(code);
        CHECK(name_of(static_cast<ReduceOp>(code)) == "unknown operator");
    }
}

TEST_CASE("numbers that name nothing are refused") {
    for (const int code : {-1, dtype_count, 255, 256, 1 << 30, -(1 << 30)}) CHECK_FALSE(dtype_from(code));
    for (const int code : {-1, reduce_op_count, 255, 256, 1 << 30}) CHECK_FALSE(reduce_op_from(code));
}

TEST_CASE(
    "an average and a scaled sum combine as sums, and truth values are those of bool and of land, lor, "
    "lxor") {
    for (int code = 0; code < reduce_op_count; ++code) {
        const auto op = static_cast<ReduceOp>(code);
        CAPTURE(code);
        const bool is_sum = op == ReduceOp::avg || op == ReduceOp::premul_sum;
        CHECK(combining(op) == (is_sum ? ReduceOp::sum : op));
        const bool is_truth = op == ReduceOp::land || op == ReduceOp::lor || op == ReduceOp::lxor;
        CHECK(is_logical(Dtype::i32, op) == is_truth);
        CHECK(is_logical(Dtype::boolean, op));
    }
    const auto none = static_cast<ReduceOp>(reduce_op_count);
    CHECK((combining(none) == none && !is_logical(Dtype::f32, none)));
}

TEST_CASE("which type has which reduction is a table, and a refusal names what is allowed") {
    const auto of = [](Dtype dtype) {
        std::string out;
        for (int code = 0; code < reduce_op_count; ++code)
            if (may_reduce(dtype, static_cast<ReduceOp>(code)))
                out += std::string(name_of(static_cast<ReduceOp>(code))) + " ";
        return out;
    };
    for (const Dtype dtype :
         {Dtype::f32, Dtype::f64, Dtype::f16, Dtype::bf16, Dtype::f8e4m3fn, Dtype::f8e5m2})
        CHECK(of(dtype) == "sum prod min max avg premul_sum ");
    for (const Dtype dtype :
         {Dtype::i8, Dtype::i16, Dtype::i32, Dtype::i64, Dtype::u8, Dtype::u16, Dtype::u32, Dtype::u64})
        CHECK(of(dtype) == "sum prod min max avg band bor bxor land lor lxor premul_sum ");
    CHECK(of(Dtype::boolean) == "min max band bor bxor land lor lxor ");
    for (const Dtype dtype : {Dtype::f32_i32, Dtype::f64_i64, Dtype::i32_i32, Dtype::i64_i64})
        CHECK(of(dtype) == "minloc maxloc ");
    CHECK_FALSE(nexar::may_reduce(type_count, 0));
    CHECK_FALSE(nexar::may_reduce(0, reduction_count));
    CHECK(nexar::reduction_refusal(12, 0) ==
          "bool has no reduction sum; allowed: min, max, band, bor, bxor, land, lor, lxor");
}
