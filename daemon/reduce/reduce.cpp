// The functions of reduce.hpp: argument shapes, the floating-point environment, integer averages.
#include "reduce/reduce.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <type_traits>

#include "core/recycled.hpp"
#include "reduce/fp_env.hpp"
#include "reduce/kernels.hpp"
#include "reduce/plain.hpp"

namespace nexar::reduce {
namespace {

// Unsigned throughout: the magnitude of the lowest value has no signed form.
template <class T>
T divide_towards_zero(T value, uint64_t divisor) {
    using U = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
    if (divisor > std::numeric_limits<U>::max()) return 0;
    const bool negative = value < 0;
    const U bits = static_cast<U>(value);
    const U quotient = (negative ? U{0} - bits : bits) / static_cast<U>(divisor);
    return static_cast<T>(negative ? U{0} - quotient : quotient);
}

template <class T>
void divide_integers(void* data, size_t count, uint64_t divisor) {
    auto* at = static_cast<unsigned char*>(data);
    for (size_t i = 0; i < count; ++i, at += sizeof(T)) {
        T value;
        std::memcpy(&value, at, sizeof value);
        value = divide_towards_zero(value, divisor);
        std::memcpy(at, &value, sizeof value);
    }
}

void divide_floats(void* data, size_t count, Dtype dtype, uint64_t divisor) {
    const FpEnv env;
    const std::array<void*, 1> dsts{data};
    const std::array<const void*, 1> srcs{data};
    kernels().divide({dsts, srcs, count * size_of(dtype)}, dtype, divisor);
}

constexpr size_t scaled_bytes = 2048;  // Of each source at a time: they fit into the nearest cache.

// `scaled_bytes` of the scalar's copies, for a product with another buffer.
class Copies {
  public:
    explicit Copies(size_t element) : element_(element) {}
    const void* of(uint64_t scalar) {
        if (!filled_ || scalar != scalar_) {
            std::memcpy(bytes_.data(), &scalar, element_);
            for (size_t have = element_; have < bytes_.size(); have *= 2)
                std::memcpy(bytes_.data() + have, bytes_.data(), have);
            scalar_ = scalar, filled_ = true;
        }
        return bytes_.data();
    }

  private:
    alignas(64) std::array<std::byte, scaled_bytes> bytes_;
    size_t element_;
    uint64_t scalar_ = 0;
    bool filled_ = false;
};

}  // namespace

void reduce_into(void* dst, const void* src, size_t count, Dtype dtype, ReduceOp op) {
    const std::array<const void*, 2> srcs{dst, src};
    reduce_many(dst, srcs, count, dtype, op);
}

void reduce_many(void* dst, std::span<const void* const> srcs, size_t count, Dtype dtype, ReduceOp op) {
    const std::array<void*, 1> dsts{dst};
    reduce_many_to(dsts, srcs, count, dtype, op);
}

void reduce_many_to(std::span<void* const> dsts, std::span<const void* const> srcs, size_t count, Dtype dtype,
                    ReduceOp op) {
    if (srcs.empty() || count == 0) return;
    if (!may_reduce(dtype, op)) return;
    const Job job{dsts, srcs, count * size_of(dtype)};
    const FpEnv env;
    if (is_plain(dtype, op)) return reduce_plain(job, dtype, op);
    kernels().reduce(job, dtype, combining(op));
}

void premul_sum(std::span<void* const> dsts, std::span<const void* const> srcs,
                std::span<const uint64_t> scalars, size_t count, Dtype dtype) {
    if (!may_reduce(dtype, ReduceOp::premul_sum)) return;
    Vector<std::byte> scaled(srcs.size() * scaled_bytes);
    Vector<const void*> values(srcs.size());
    Vector<void*> results(dsts.begin(), dsts.end());
    Copies copies(size_of(dtype));
    for (size_t at = 0, bytes = count * size_of(dtype); at < bytes; at += scaled_bytes) {
        const size_t length = std::min(scaled_bytes, bytes - at), elements = length / size_of(dtype);
        for (size_t s = 0; s < srcs.size(); ++s) {
            void* const product = &scaled[s * scaled_bytes];
            const std::array<const void*, 2> factors{static_cast<const std::byte*>(srcs[s]) + at,
                                                     copies.of(scalars[s])};
            reduce_many(product, factors, elements, dtype, ReduceOp::prod);
            values[s] = product;
        }
        for (size_t d = 0; d < dsts.size(); ++d) results[d] = static_cast<std::byte*>(dsts[d]) + at;
        reduce_many_to(results, values, elements, dtype, ReduceOp::sum);
    }
}

void finish_avg(void* data, size_t count, Dtype dtype, uint64_t divisor) {
    if (divisor == 0) divisor = 1;
    switch (dtype) {
        case Dtype::f32:
        case Dtype::f64:
        case Dtype::f16:
        case Dtype::bf16:
        case Dtype::f8e4m3fn:
        case Dtype::f8e5m2:
            return divide_floats(data, count, dtype, divisor);
        case Dtype::i8:
            return divide_integers<int8_t>(data, count, divisor);
        case Dtype::i16:
            return divide_integers<int16_t>(data, count, divisor);
        case Dtype::i32:
            return divide_integers<int32_t>(data, count, divisor);
        case Dtype::i64:
            return divide_integers<int64_t>(data, count, divisor);
        case Dtype::u8:
            return divide_integers<uint8_t>(data, count, divisor);
        case Dtype::u16:
            return divide_integers<uint16_t>(data, count, divisor);
        case Dtype::u32:
            return divide_integers<uint32_t>(data, count, divisor);
        case Dtype::u64:
            return divide_integers<uint64_t>(data, count, divisor);
        default:
            return;  // They have no avg.
    }
}

void f16_to_f32(void* f32, const void* f16, size_t count) {
    const FpEnv env;
    kernels().widen(f32, f16, count, Dtype::f16);
}

void bf16_to_f32(void* f32, const void* bf16, size_t count) {
    const FpEnv env;
    kernels().widen(f32, bf16, count, Dtype::bf16);
}

void f32_to_f16(void* f16, const void* f32, size_t count) {
    const FpEnv env;
    kernels().narrow(f16, f32, count, Dtype::f16);
}

void f32_to_bf16(void* bf16, const void* f32, size_t count) {
    const FpEnv env;
    kernels().narrow(bf16, f32, count, Dtype::bf16);
}

}  // namespace nexar::reduce
