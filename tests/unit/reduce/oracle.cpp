// The reference arithmetic and the data of the tests; see oracle.hpp.
#include "oracle.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

namespace nexar::reduce::test {
namespace {

constexpr FloatFormat f32_format{8, 23, 0x7fc00000};

double as_double(Bits bits) {
    double value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

Bits as_bits(double value) {
    if (std::isnan(value)) return Bits{0x7ff8} << 48;
    Bits bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

double smaller(double a, double b) {
    if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<double>::quiet_NaN();
    if (a == b) return std::signbit(a) ? a : b;
    return a < b ? a : b;
}

double combine(ReduceOp op, double a, double b) {
    switch (op) {
        case ReduceOp::prod:
            return a * b;
        case ReduceOp::min:
            return smaller(a, b);
        case ReduceOp::max:
            return -smaller(-a, -b);
        default:
            return a + b;
    }
}

// f32 and narrower. Double holds products exactly, and is wide enough (53 >= 2 * 24 + 2) that rounding a sum
// to f32 afterwards gives the correctly rounded sum.
Bits fold_small_floats(FloatFormat format, ReduceOp op, std::span<const Bits> elements) {
    double acc = decode(format, elements[0]);
    for (const Bits element : elements.subspan(1)) {
        const double exact = combine(op, acc, decode(format, element));
        acc = decode(f32_format, encode(f32_format, exact));
    }
    return encode(format, acc);
}

// At least 2 * 53 + 2 bits of fraction: what is rounded to them first is rounded to double as if at once.
#if defined(__x86_64__)
__extension__ using Quad = __float128;
#else
using Quad = long double;
#endif
static_assert(sizeof(Quad) == 16);

Bits fold_doubles(ReduceOp op, std::span<const Bits> elements) {
    double acc = as_double(elements[0]);
    for (const Bits element : elements.subspan(1)) {
        const double next = as_double(element);
        const auto a = static_cast<Quad>(acc);
        const auto b = static_cast<Quad>(next);
        if (op == ReduceOp::sum) {
            acc = static_cast<double>(a + b);
        } else if (op == ReduceOp::prod) {
            acc = static_cast<double>(a * b);
        } else {
            acc = combine(op, acc, next);
        }
    }
    return as_bits(acc);
}

bool is_signed_integer(Dtype dtype) {
    return dtype == Dtype::i8 || dtype == Dtype::i16 || dtype == Dtype::i32 || dtype == Dtype::i64;
}

__extension__ using Wide = __int128;

Wide to_wide(Dtype dtype, Bits bits) {
    const auto width = static_cast<int>(8 * size_of(dtype));
    const Wide value = static_cast<Wide>(bits);
    const bool negative = is_signed_integer(dtype) && (bits >> (width - 1)) != 0;
    return negative ? value - (Wide{1} << width) : value;
}

Bits from_wide(Dtype dtype, Wide value) {
    const Wide modulus = Wide{1} << (8 * size_of(dtype));
    return static_cast<Bits>(((value % modulus) + modulus) % modulus);
}

Bits fold_integers(Dtype dtype, ReduceOp op, std::span<const Bits> elements) {
    Wide acc = to_wide(dtype, elements[0]);
    for (const Bits element : elements.subspan(1)) {
        const Wide next = to_wide(dtype, element);
        if (op == ReduceOp::sum) acc += next;
        // Up to 64 by 64 bits; only two u64 maxima pass 2^127, so take those apart.
        if (op == ReduceOp::prod) acc = acc * (next / 2) % (Wide{1} << 64) * 2 + (next % 2) * acc;
        if (op == ReduceOp::min) acc = next < acc ? next : acc;
        if (op == ReduceOp::max) acc = next > acc ? next : acc;
        acc = to_wide(dtype, from_wide(dtype, acc));
    }
    return from_wide(dtype, acc);
}

Elements special_elements(Dtype dtype) {
    const Bits top = Bits{1} << (8 * size_of(dtype) - 1);
    if (!is_float(dtype)) return {0, 1, 2, top - 1, top, top + 1, 2 * top - 2, 2 * top - 1};
    const FloatFormat f = format_of(dtype);
    const Bits one_place = Bits{1} << f.fraction_bits;
    Elements specials;
    for (const Bits sign : {Bits{0}, f.sign()}) {
        for (const Bits magnitude : {Bits{0}, Bits{1}, Bits{3}, one_place - 1, one_place, one_place + 1,
                                     encode(f, 1.0), encode(f, 1.0) + 1, encode(f, 1.0) - 1, f.infinity() - 1,
                                     f.infinity(), f.infinity() + 1, f.infinity() + one_place - 1}) {
            specials.push_back(sign | magnitude);
        }
    }
    return specials;
}

}  // namespace

bool is_float(Dtype dtype) {
    return std::ranges::find(float_dtypes, dtype) != float_dtypes.end();
}

FloatFormat format_of(Dtype dtype) {
    if (dtype == Dtype::f64) return {11, 52, Bits{0x7ff8} << 48};
    if (dtype == Dtype::f16) return {5, 10, 0x7e00};
    if (dtype == Dtype::bf16) return {8, 7, 0x7fc0};
    if (dtype == Dtype::f8e4m3fn) return {4, 3, 0x7f, true};
    if (dtype == Dtype::f8e5m2) return {5, 2, 0x7e};
    return f32_format;
}

double decode(FloatFormat format, Bits bits) {
    const Bits magnitude = bits & (format.sign() - 1);
    const int bias = (1 << (format.exponent_bits - 1)) - 1;
    const auto exponent = static_cast<int>(magnitude >> format.fraction_bits);
    const Bits one_place = Bits{1} << format.fraction_bits;
    const Bits fraction = magnitude & (one_place - 1);
    double value;
    if (magnitude > format.infinity() || (format.finite && magnitude == format.nan)) {
        value = std::numeric_limits<double>::quiet_NaN();
    } else if (magnitude == format.infinity()) {
        value = std::numeric_limits<double>::infinity();
    } else if (exponent == 0) {
        value = std::ldexp(static_cast<double>(fraction), 1 - bias - format.fraction_bits);
    } else {
        value = std::ldexp(static_cast<double>(fraction + one_place), exponent - bias - format.fraction_bits);
    }
    return (bits & format.sign()) != 0 ? -value : value;
}

Bits encode(FloatFormat format, double value) {
    if (std::isnan(value) || (format.finite && std::isinf(value))) return format.nan;
    const Bits sign = std::signbit(value) ? format.sign() : 0;
    value = std::fabs(value);
    if (value == 0) return sign;
    if (std::isinf(value)) return sign | format.infinity();
    const int bias = (1 << (format.exponent_bits - 1)) - 1;
    int exponent;
    std::frexp(value, &exponent);
    const int place = std::max(exponent - 1, 1 - bias) - format.fraction_bits;
    const double in_places = std::ldexp(value, -place);
    double whole;
    const double rest = std::modf(in_places, &whole);
    auto places = static_cast<Bits>(whole);
    if (rest > 0.5 || (rest == 0.5 && places % 2 == 1)) ++places;
    // Counting places from zero passes through all subnormals into the normal numbers, and at last to
    // infinity.
    const auto binades = static_cast<Bits>(place - (1 - bias - format.fraction_bits));
    const Bits magnitude = (binades << format.fraction_bits) + places;
    if (format.finite && magnitude >= format.nan) return format.nan;
    return sign | std::min(magnitude, format.infinity());
}

Bits fold(Dtype dtype, ReduceOp op, std::span<const Bits> elements) {
    if (dtype == Dtype::f64) return fold_doubles(op, elements);
    if (is_float(dtype)) return fold_small_floats(format_of(dtype), op, elements);
    return fold_integers(dtype, op, elements);
}

Bits divide(Dtype dtype, Bits element, uint64_t divisor) {
    if (dtype == Dtype::f64) {
        const auto wide = static_cast<Quad>(as_double(element));
        return as_bits(static_cast<double>(wide / static_cast<Quad>(divisor)));
    }
    if (is_float(dtype)) {
        const FloatFormat format = format_of(dtype);
        const double by = decode(f32_format, encode(f32_format, static_cast<double>(divisor)));
        return encode(format, decode(f32_format, encode(f32_format, decode(format, element) / by)));
    }
    return from_wide(dtype, to_wide(dtype, element) / static_cast<Wide>(divisor));
}

Elements make_elements(Dtype dtype, size_t count, uint64_t seed) {
    const Elements specials = special_elements(dtype);
    const Bits all = size_of(dtype) == 8 ? ~Bits{0} : (Bits{1} << (8 * size_of(dtype))) - 1;
    Elements elements(count);
    for (Bits& element : elements) {
        const uint64_t kind = splitmix(seed) % 10;
        element = splitmix(seed) & all;
        if (kind == 0) element = specials[splitmix(seed) % specials.size()];
        // Numbers of about one: their sums cancel, round and carry.
        if (kind > 4 && is_float(dtype)) {
            const FloatFormat f = format_of(dtype);
            const Bits exponent = static_cast<Bits>((1 << (f.exponent_bits - 1)) - 4) + splitmix(seed) % 7;
            const Bits keep = f.sign() | ((Bits{1} << f.fraction_bits) - 1);
            element = (element & keep) | (exponent << f.fraction_bits);
        }
    }
    return elements;
}

Buffer lay_out(Dtype dtype, std::span<const Bits> elements, size_t offset) {
    const size_t bytes = size_of(dtype);
    Buffer buffer(offset + elements.size() * bytes + 64, guard);
    for (size_t i = 0; i < elements.size(); ++i)
        std::memcpy(&buffer[offset + i * bytes], &elements[i], bytes);
    return buffer;
}

Bits element_at(Dtype dtype, const Buffer& buffer, size_t offset, size_t index) {
    Bits bits = 0;
    std::memcpy(&bits, &buffer[offset + index * size_of(dtype)], size_of(dtype));
    return bits;
}

void on_every_target(const std::function<void(const Kernels&)>& body) {
    for (const Kernels* target : usable_kernels()) {
        INFO("instruction set " << target->target);
        choose_kernels_for_test(target);
        body(*target);
    }
    choose_kernels_for_test(nullptr);
}

uint64_t splitmix(uint64_t& state) {
    uint64_t mixed = state += 0x9e3779b97f4a7c15;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
    return mixed ^ (mixed >> 31);
}

}  // namespace nexar::reduce::test
