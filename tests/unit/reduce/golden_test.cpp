// The same bits on every instruction set, machine and Highway version: hashes of results, fixed here for
// good. A change of one of them is a change of what users compute, and must never be an accident.
#include <catch2/catch_test_macros.hpp>
#include <iterator>
#include <string>
#include <vector>

#include "oracle.hpp"
#include "reduce/partials.hpp"
#include "reduce/reduce.hpp"

using namespace nexar::reduce;
using namespace nexar::reduce::test;

namespace {

// FNV-1a, 64 bits.
uint64_t hashed(uint64_t hash, const Buffer& buffer) {
    for (const unsigned char byte : buffer) hash = (hash ^ byte) * 0x100000001b3;
    return hash;
}

// All operators over five sources, then an average by three.
uint64_t golden(Dtype dtype) {
    constexpr size_t count = 1031, sources = 5;
    std::vector<Buffer> buffers;
    std::vector<const void*> pointers;
    for (size_t s = 0; s < sources; ++s)
        buffers.push_back(lay_out(dtype, make_elements(dtype, count, 900 + s), 0));
    for (const Buffer& buffer : buffers) pointers.push_back(buffer.data());

    uint64_t hash = 0xcbf29ce484222325;
    for (const ReduceOp op : plain_ops) {
        Buffer dst = lay_out(dtype, Elements(count), 0);
        reduce_many(dst.data(), pointers, count, dtype, op);
        hash = hashed(hash, dst);
        finish_avg(dst.data(), count, dtype, 3);
        hash = hashed(hash, dst);
    }
    return hash;
}

constexpr size_t ranks = 13;  // no power of two
constexpr size_t elements = 1031;

// Bytes of `dtype`, also where an element is more than a number.
Buffer content(Dtype dtype, uint64_t seed) {
    const auto pairs = [seed](Dtype value, Dtype index) {
        const Elements values = make_elements(value, elements, seed),
                       indices = make_elements(index, elements, seed + 77);
        Buffer out;
        for (size_t i = 0; i < elements; ++i) {
            // Small, so that many values meet their equals.
            const Buffer one = lay_out(value, std::vector{i % 3 == 0 ? values[i % 7] : values[i]}, 0);
            const Buffer two = lay_out(index, std::vector{indices[i] % 8}, 0);
            out.insert(out.end(), one.begin(), one.begin() + ptrdiff_t(size_of(value)));
            out.insert(out.end(), two.begin(), two.begin() + ptrdiff_t(size_of(index)));
        }
        return out;
    };
    if (dtype == Dtype::f32_i32) return pairs(Dtype::f32, Dtype::i32);
    if (dtype == Dtype::f64_i64) return pairs(Dtype::f64, Dtype::i64);
    if (dtype == Dtype::i32_i32) return pairs(Dtype::i32, Dtype::i32);
    if (dtype == Dtype::i64_i64) return pairs(Dtype::i64, Dtype::i64);
    Buffer out = lay_out(dtype, make_elements(dtype, elements, seed), 0);
    out.resize(elements * size_of(dtype));
    return out;
}

// What `ranks` ranks have, and the scalar of each.
struct Given {
    Dtype dtype;
    std::vector<Buffer> buffers;
    std::vector<const void*> pointers;
    std::vector<PartialSource> sources;
    Elements scalars = std::vector<Bits>(ranks);

    explicit Given(Dtype type) : dtype(type) {
        for (uint32_t r = 0; r < ranks; ++r) buffers.push_back(content(type, 500 + 1000 * r));
        for (uint32_t r = 0; r < ranks; ++r) {
            pointers.push_back(buffers[r].data());
            sources.push_back({buffers[r].data(), {r, r + 1}, false});
        }
        if (may_reduce(type, ReduceOp::premul_sum)) scalars = make_elements(type, ranks, 8);
    }

    // The collective without a flag: identity, result, and the average of an average.
    uint64_t plain(uint64_t hash, ReduceOp op) const {
        Buffer identity(elements * size_of(dtype)), out(identity);
        fill_identity(identity.data(), elements, dtype, op);
        void* const to = out.data();
        if (op == ReduceOp::premul_sum)
            premul_sum({&to, 1}, pointers, scalars, elements, dtype);
        else
            reduce_many(to, pointers, elements, dtype, op);
        if (op == ReduceOp::avg) finish_avg(to, elements, dtype, ranks);
        return hashed(hashed(hash, identity), out);
    }

    // With the flags deterministic (a tree of all ranks) and f32 partials (none).
    uint64_t partials(uint64_t hash, ReduceOp op, uint32_t tree_ranks) const {
        Buffer out(elements * size_of(dtype));
        void* const to = out.data();
        const bool premul = op == ReduceOp::premul_sum;
        PartialJob job{{&to, 1},  sources, {}, elements, dtype, op == ReduceOp::prod ? op : ReduceOp::sum,
                       tree_ranks};
        if (premul) job.scalars = scalars;
        if (op == ReduceOp::avg) job.divisor = ranks;
        combine_partials(job);
        return hashed(hash, out);
    }
};

bool has_partials(Dtype dtype, ReduceOp op) {
    return is_float(dtype) &&
           (op == ReduceOp::sum || op == ReduceOp::prod || op == ReduceOp::avg || op == ReduceOp::premul_sum);
}

// Every reduction that the type has, in every way in which it is computed.
uint64_t golden_of_all(Dtype dtype) {
    const Given given(dtype);
    uint64_t hash = 0xcbf29ce484222325;
    for (int code = 0; code < reduce_op_count; ++code) {
        const auto op = static_cast<ReduceOp>(code);
        if (!may_reduce(dtype, op)) continue;
        hash = given.plain(hash, op);
        if (!has_partials(dtype, op)) continue;
        hash = given.partials(hash, op, ranks);
        hash = given.partials(hash, op, 0);
    }
    return hash;
}

struct Golden {
    Dtype dtype;
    uint64_t hash;
};
constexpr Golden goldens[] = {
    {Dtype::f32, 0x2e6d735ce6bb1fb9},      {Dtype::f64, 0x66f492ab97a6248},
    {Dtype::f16, 0x7fb67d50b7a4c076},      {Dtype::bf16, 0x6859ffdd759b062d},
    {Dtype::i8, 0xa7fc7590c9995afb},       {Dtype::i32, 0x6d01d22402e8d7b3},
    {Dtype::i64, 0xf3e6b0a3884d1f96},      {Dtype::u8, 0x32ca083278344c65},
    {Dtype::u32, 0x9c896389e78c5dd0},      {Dtype::u64, 0xb5fc8f83baec39cb},
    {Dtype::i16, 0xefe3111702a4c7ed},      {Dtype::u16, 0x980d9bb76f20ae70},
    {Dtype::f8e4m3fn, 0x47fb89e8ba31a367}, {Dtype::f8e5m2, 0xedf33041a3f94205},
};
// In the order of their numbers.
constexpr uint64_t goldens_of_all[] = {
    0x5926595c0038fec2, 0x322e64e7687416c4, 0x9144a9a62c95e7ed, 0x9d46c23f3fa66df4, 0x9e4cdd1b69377510,
    0x0cc8b4ba92af747e, 0x0fc496029fc96eda, 0xcf4f4e8c936b4f39, 0x83c905c49149c10f, 0xd8143dc998d0026c,
    0xa18300f51a50cdbc, 0x9bb60fd2793cb51f, 0xd547152a79ddf26c, 0xde802deb0bede69b, 0x00c4b9868ec529b2,
    0xffc45a90cadc7c0d, 0xaf3304098acd77f9, 0x189baa47a8b059d1, 0x581f8fd400fa89ae};

}  // namespace

TEST_CASE("results are the golden bits on every instruction set") {
    on_every_target([](const Kernels&) {
        for (const Golden& expected : goldens) {
            INFO(name_of(expected.dtype));
            CHECK(golden(expected.dtype) == expected.hash);
        }
    });
}

TEST_CASE("every reduction of every type is the golden bits: plain, deterministic, and with f32 partials") {
    on_every_target([](const Kernels&) {
        for (int code = 0; code < dtype_count; ++code) {
            const auto dtype = static_cast<Dtype>(code);
            INFO(name_of(dtype));
            CHECK(golden_of_all(dtype) == goldens_of_all[code]);
        }
    });
}

TEST_CASE("this CPU offers more than one instruction set to compare", "[!mayfail]") {
    CHECK(usable_kernels().size() > 1);
}
