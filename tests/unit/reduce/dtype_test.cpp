// The numbers, sizes and names of element types and operators.
#include "reduce/dtype.hpp"

#include <catch2/catch_test_macros.hpp>
#include <string>

using namespace nexar::reduce;

TEST_CASE("type numbers never change") {
    const char* const names[] = {"f32", "f64", "f16", "bf16", "i8",  "i32",
                                 "i64", "u8",  "u32", "u64",  "i16", "u16"};
    const size_t sizes[] = {4, 8, 2, 2, 1, 4, 8, 1, 4, 8, 2, 2};
    for (int code = 0; code < dtype_count; ++code) {
        const auto dtype = dtype_from(code);
        REQUIRE(dtype.has_value());
        CHECK(static_cast<int>(*dtype) == code);
        CHECK(name_of(*dtype) == names[code]);
        CHECK(size_of(*dtype) == sizes[code]);
    }
}

TEST_CASE("operator numbers never change") {
    const char* const names[] = {"sum", "prod", "min", "max", "avg"};
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
