// avg: a sum, divided once at the end.
#include <catch2/catch_test_macros.hpp>
#include <vector>

#include "oracle.hpp"
#include "reduce/reduce.hpp"

using namespace nexar::reduce;
using namespace nexar::reduce::test;

TEST_CASE("avg sums until it is finished") {
    on_every_target([](const Kernels&) {
        for (const Dtype dtype : all_dtypes) {
            const Elements a = make_elements(dtype, 99, 5), b = make_elements(dtype, 99, 6);
            Buffer averaged = lay_out(dtype, a, 0), summed = averaged;
            const Buffer src = lay_out(dtype, b, 0);

            reduce_into(averaged.data(), src.data(), 99, dtype, ReduceOp::avg);
            reduce_into(summed.data(), src.data(), 99, dtype, ReduceOp::sum);

            CHECK((averaged == summed));
        }
    });
}

TEST_CASE("finishing divides every element once, as the oracle does") {
    const uint64_t divisors[] = {1,
                                 2,
                                 3,
                                 7,
                                 127,
                                 128,
                                 129,
                                 1000,
                                 65535,
                                 65537,
                                 1u << 24,
                                 (1u << 24) + 1,
                                 uint64_t{1} << 31,
                                 uint64_t{1} << 32,
                                 (uint64_t{1} << 63) - 1,
                                 uint64_t{1} << 63,
                                 ~uint64_t{0}};
    for (const Dtype dtype : all_dtypes) {
        const Elements elements = make_elements(dtype, 515, 77);
        for (const uint64_t divisor : divisors) {
            Elements quotients;
            for (const Bits element : elements) quotients.push_back(divide(dtype, element, divisor));
            const Buffer expected = lay_out(dtype, quotients, 5);
            on_every_target([&](const Kernels&) {
                Buffer data = lay_out(dtype, elements, 5);

                finish_avg(&data[5], elements.size(), dtype, divisor);

                INFO(name_of(dtype) << " by " << divisor);
                CHECK((data == expected));
            });
        }
    }
}

TEST_CASE("integers truncate towards zero") {
    int32_t data[] = {7, -7, INT32_MIN, INT32_MAX};
    finish_avg(data, 4, Dtype::i32, 2);
    CHECK(data[0] == 3);
    CHECK(data[1] == -3);
    CHECK(data[2] == INT32_MIN / 2);
    CHECK(data[3] == INT32_MAX / 2);
}

TEST_CASE("a divisor of zero counts as one") {
    int64_t whole = -5;
    finish_avg(&whole, 1, Dtype::i64, 0);
    CHECK(whole == -5);
    float number = 2.5f;
    finish_avg(&number, 1, Dtype::f32, 0);
    CHECK(number == 2.5f);
}

TEST_CASE("finishing nothing touches nothing") {
    for (const Dtype dtype : all_dtypes) finish_avg(nullptr, 0, dtype, 3);
}
