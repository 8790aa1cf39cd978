// f16 and bf16 to f32 and back: every 16-bit value, and every boundary between two of them.
#include <catch2/catch_test_macros.hpp>
#include <vector>

#include "oracle.hpp"
#include "reduce/reduce.hpp"

using namespace nexar::reduce;
using namespace nexar::reduce::test;

namespace {

constexpr FloatFormat f32_format{8, 23, 0x7fc00000};

struct Half {
    const char* name;
    Dtype dtype;
    void (*widen)(void*, const void*, size_t);
    void (*narrow)(void*, const void*, size_t);
};
constexpr Half halves[] = {{"f16", Dtype::f16, f16_to_f32, f32_to_f16},
                           {"bf16", Dtype::bf16, bf16_to_f32, f32_to_bf16}};

std::vector<uint16_t> all_values() {
    std::vector<uint16_t> values(65536);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<uint16_t>(i);
    return values;
}

std::vector<uint32_t> widened(const Half& half, const std::vector<uint16_t>& values) {
    std::vector<uint32_t> wide(values.size());
    half.widen(wide.data(), values.data(), values.size());
    return wide;
}

std::vector<uint16_t> narrowed(const Half& half, const std::vector<uint32_t>& values) {
    std::vector<uint16_t> narrow(values.size());
    half.narrow(narrow.data(), values.data(), values.size());
    return narrow;
}

bool is_nan(FloatFormat format, Bits bits) {
    return (bits & (format.sign() - 1)) > format.infinity();
}

// Around every value and around every tie between neighbours.
std::vector<uint32_t> boundaries(FloatFormat format) {
    std::vector<uint32_t> edges;
    for (Bits value = 0; value <= format.infinity(); ++value) {
        const auto here = static_cast<uint32_t>(encode(f32_format, decode(format, value)));
        const double next = value + 1 < format.infinity() ? decode(format, value + 1)
                                                          : 2 * decode(format, format.infinity() - 1) -
                                                                decode(format, format.infinity() - 2);
        const auto tie = static_cast<uint32_t>(encode(f32_format, decode(format, value) / 2 + next / 2));
        for (const uint32_t at : {here, tie}) {
            for (const uint32_t edge : {at - 1, at, at + 1}) {
                edges.push_back(edge & 0x7fffffff);
                edges.push_back(edge | 0x80000000);
            }
        }
    }
    return edges;
}

}  // namespace

TEST_CASE("every 16-bit value widens exactly, NaNs to one NaN") {
    on_every_target([](const Kernels&) {
        for (const Half& half : halves) {
            const FloatFormat format = format_of(half.dtype);

            const auto wide = widened(half, all_values());

            size_t wrong = 0;
            for (size_t i = 0; i < wide.size(); ++i)
                wrong += wide[i] != encode(f32_format, decode(format, i));
            INFO(half.name);
            CHECK(wrong == 0);
        }
    });
}

TEST_CASE("every 16-bit value survives the round trip, NaNs as one NaN") {
    on_every_target([](const Kernels&) {
        for (const Half& half : halves) {
            const FloatFormat format = format_of(half.dtype);

            const auto back = narrowed(half, widened(half, all_values()));

            size_t wrong = 0;
            for (size_t i = 0; i < back.size(); ++i) wrong += back[i] != (is_nan(format, i) ? format.nan : i);
            INFO(half.name);
            CHECK(wrong == 0);
        }
    });
}

TEST_CASE("narrowing rounds to nearest even at every boundary, subnormals and overflow included") {
    for (const Half& half : halves) {
        const FloatFormat format = format_of(half.dtype);
        const auto edges = boundaries(format);
        std::vector<Bits> expected;
        for (const uint32_t edge : edges) expected.push_back(encode(format, decode(f32_format, edge)));

        on_every_target([&](const Kernels&) {
            const auto narrow = narrowed(half, edges);

            size_t wrong = 0;
            for (size_t i = 0; i < edges.size(); ++i) wrong += narrow[i] != expected[i];
            INFO(half.name << ", " << edges.size() << " values");
            CHECK(wrong == 0);
        });
    }
}

TEST_CASE("narrowing known values") {
    on_every_target([](const Kernels&) {
        // 1 + 0.99951 carries into the exponent; the largest f16 and the tie above it; the smallest
        // subnormals and their ties; NaNs with payload in the low bits only.
        const std::vector<uint32_t> wide{0x3fffffff, 0x477fe000, 0x477fefff, 0x477ff000,
                                         0x33800000, 0x33000000, 0x33000001, 0x33c00000,
                                         0x7f800001, 0xff800001, 0xffffffff, 0x7f800000};
        const std::vector<uint16_t> f16{0x4000, 0x7bff, 0x7bff, 0x7c00, 0x0001, 0x0000,
                                        0x0001, 0x0002, 0x7e00, 0x7e00, 0x7e00, 0x7c00};
        CHECK(narrowed(halves[0], wide) == f16);

        // 257 ties down to 256, 259 up to 260; the largest f32 becomes infinity.
        const std::vector<uint32_t> more{0x43808000, 0x43818000, 0x7f7fffff,
                                         0x00008000, 0x00008001, 0x7f800001};
        const std::vector<uint16_t> bf16{0x4380, 0x4382, 0x7f80, 0x0000, 0x0001, 0x7fc0};
        CHECK(narrowed(halves[1], more) == bf16);
    });
}

TEST_CASE("random f32 narrow as the oracle does") {
    uint64_t seed = 7;
    std::vector<uint32_t> wide(200003);
    for (uint32_t& value : wide) value = static_cast<uint32_t>(splitmix(seed));
    for (const Half& half : halves) {
        const FloatFormat format = format_of(half.dtype);
        on_every_target([&](const Kernels&) {
            const auto narrow = narrowed(half, wide);

            size_t wrong = 0;
            for (size_t i = 0; i < wide.size(); ++i) {
                wrong += narrow[i] != encode(format, decode(f32_format, wide[i]));
            }
            CHECK(wrong == 0);
        });
    }
}

TEST_CASE("conversions write exactly their elements at any address") {
    on_every_target([](const Kernels&) {
        for (const Half& half : halves) {
            const FloatFormat format = format_of(half.dtype);
            for (size_t count = 0; count <= 67; ++count) {
                const Elements elements = make_elements(half.dtype, count, count);
                const Buffer narrow = lay_out(half.dtype, elements, 3);
                Buffer wide = lay_out(Dtype::f32, Elements(count), 5);
                Buffer back = lay_out(half.dtype, Elements(count), 1);

                half.widen(&wide[5], &narrow[3], count);
                half.narrow(&back[1], &wide[5], count);

                Elements expected;
                for (const Bits bits : elements) expected.push_back(is_nan(format, bits) ? format.nan : bits);
                REQUIRE((back == lay_out(half.dtype, expected, 1)));
                for (size_t i = 0; i < 5; ++i) REQUIRE(wide[i] == guard);
                for (size_t i = 5 + 4 * count; i < wide.size(); ++i) REQUIRE(wide[i] == guard);
            }
        }
    });
}
