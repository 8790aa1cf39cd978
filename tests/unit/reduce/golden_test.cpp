// The same bits on every instruction set, machine and Highway version: hashes of results, fixed here for
// good. A change of one of them is a change of what users compute, and must never be an accident.
#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

#include "oracle.hpp"
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

}  // namespace

TEST_CASE("results are the golden bits on every instruction set") {
    on_every_target([](const Kernels&) {
        for (const Golden& expected : goldens) {
            INFO(name_of(expected.dtype));
            CHECK(golden(expected.dtype) == expected.hash);
        }
    });
}

TEST_CASE("this CPU offers more than one instruction set to compare", "[!mayfail]") {
    CHECK(usable_kernels().size() > 1);
}
