// premul_sum: each source times its scalar, rounded to the type, then a sum.
#include <catch2/catch_test_macros.hpp>
#include <vector>

#include "oracle.hpp"
#include "reduce/reduce.hpp"

using namespace nexar::reduce;
using namespace nexar::reduce::test;

namespace {

constexpr size_t count = 4099;

Elements scalars_of(Dtype dtype, size_t sources) {
    Elements out = make_elements(dtype, sources, 5);
    if (is_float(dtype)) out[0] = encode(format_of(dtype), 0.25);
    return out;
}

}  // namespace

TEST_CASE("every product is rounded to the type, then the products are summed") {
    for (const Dtype dtype : all_dtypes) {
        for (const size_t sources : {1u, 2u, 19u}) {
            const Elements scalars = scalars_of(dtype, sources);
            std::vector<Elements> elements;
            for (size_t s = 0; s < sources; ++s) elements.push_back(make_elements(dtype, count, 60 + s));
            Elements want(count);
            for (size_t i = 0; i < count; ++i) {
                Elements products;
                for (size_t s = 0; s < sources; ++s)
                    products.push_back(fold(dtype, ReduceOp::prod, std::vector{elements[s][i], scalars[s]}));
                want[i] = fold(dtype, ReduceOp::sum, products);
            }
            on_every_target([&](const Kernels&) {
                std::vector<Buffer> buffers;
                for (size_t s = 0; s < sources; ++s) buffers.push_back(lay_out(dtype, elements[s], s));
                std::vector<const void*> srcs;
                for (size_t s = 0; s < sources; ++s) srcs.push_back(&buffers[s][s]);
                Buffer apart = lay_out(dtype, Elements(count), 9);
                const std::vector<void*> dsts{&apart[9], &buffers[0][0]};

                premul_sum(dsts, srcs, scalars, count, dtype);

                INFO(name_of(dtype) << " of " << sources);
                CHECK((apart == lay_out(dtype, want, 9)));
                CHECK((buffers[0] == lay_out(dtype, want, 0)));  // in place
            });
        }
    }
}

TEST_CASE("between nodes premul_sum is a sum") {
    uint32_t a = 5;
    const uint32_t b = 7;
    reduce_into(&a, &b, 1, Dtype::u32, ReduceOp::premul_sum);
    CHECK(a == 12);
}
