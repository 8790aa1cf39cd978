#include "reduce/partials.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <memory>

#include "core/check.hpp"
#include "core/recycled.hpp"
#include "reduce/fp_env.hpp"
#include "reduce/kernels.hpp"
#include "reduce/reduce.hpp"

namespace nexar::reduce {
namespace {

constexpr size_t block_bytes = 4096;  // of partials at a time: a stack of them fits into the nearest caches
struct Block : RecycledObject {
    std::byte bytes[block_bytes];
    std::byte* data() { return bytes; }
};

// The partials of one block of elements that wait for their other halves.
class Stack {
  public:
    Stack(const PartialJob& job, size_t begin, size_t count) : job_(job), begin_(begin), count_(count) {}

    void push(const PartialSource& source, const uint64_t* scalar) {
        if (blocks_.size() == waiting_.size()) blocks_.emplace_back(std::make_unique<Block>());
        waiting_.push_back({source.ranks, load(source, scalar, *blocks_[waiting_.size()])});
        while (waiting_.size() > 1 && folds()) fold();
    }

    const void* result() const {
        NEXAR_CHECK(waiting_.size() == 1);
        return waiting_[0].at;
    }
    void* own() { return blocks_[0]->data(); }
    void restart(size_t begin, size_t count) {
        begin_ = begin, count_ = count;
        waiting_.clear();
    }

  private:
    struct Waiting {
        RankRange ranks;
        const void* at;
    };

    const void* load(const PartialSource& source, const uint64_t* scalar, Block& to) {
        const size_t width = size_of(source.is_partial ? partial_type(job_.dtype) : job_.dtype);
        const void* at = static_cast<const std::byte*>(source.at) + begin_ * width;
        if (source.is_partial) return at;
        if (scalar != nullptr) {
            void* const product = product_.data();
            premul_sum({&product, 1}, {&at, 1}, {scalar, 1}, count_, job_.dtype);
            at = product;
        } else if (partial_type(job_.dtype) == job_.dtype) {
            return at;
        }
        widen(to.data(), at, count_, job_.dtype);
        return to.data();
    }

    bool folds() const {
        const Waiting& left = waiting_[waiting_.size() - 2];
        return job_.tree_ranks == 0 || are_halves(left.ranks, waiting_.back().ranks, job_.tree_ranks);
    }

    void fold() {
        const Waiting right = waiting_.back();
        waiting_.pop_back();
        Waiting& left = waiting_.back();
        const std::array<const void*, 2> srcs{left.at, right.at};
        void* const to = blocks_[waiting_.size() - 1]->data();
        const Dtype dtype = partial_type(job_.dtype);
        kernels().reduce({{&to, 1}, srcs, count_ * size_of(dtype)}, dtype, job_.op);
        left = {{left.ranks.begin, right.ranks.end}, to};
    }

    const PartialJob& job_;
    size_t begin_, count_;
    Vector<Waiting> waiting_;
    Vector<std::unique_ptr<Block>> blocks_;  // by place in the stack
    Block product_;
};

void finish(const PartialJob& job, Stack& stack, size_t begin, size_t count) {
    const Dtype dtype = partial_type(job.dtype);
    const void* result = stack.result();
    if (job.divisor != 0) {
        void* const to = stack.own();
        kernels().divide({{&to, 1}, {&result, 1}, count * size_of(dtype)}, dtype, job.divisor);
        result = to;
    }
    const size_t width = size_of(job.to_partial ? dtype : job.dtype);
    for (void* dst : job.dsts) {
        void* const at = static_cast<std::byte*>(dst) + begin * width;
        if (job.to_partial)
            std::memmove(at, result, count * width);
        else
            narrow(at, result, count, job.dtype);
    }
}

}  // namespace

bool are_halves(RankRange left, RankRange right, uint32_t ranks) {
    const uint64_t length = left.end - left.begin;
    return left.end == right.begin && std::has_single_bit(length) && left.begin % (2 * length) == 0 &&
           right.end == std::min<uint64_t>(left.begin + 2 * length, ranks);
}

std::vector<RankRange> subtrees_of(std::span<const uint32_t> members, uint32_t ranks) {
    std::vector<RankRange> out;
    for (const uint32_t rank : members) {
        out.push_back({rank, rank + 1});
        while (out.size() > 1 && are_halves(out[out.size() - 2], out.back(), ranks)) {
            const uint32_t end = out.back().end;
            out.pop_back();
            out.back().end = end;
        }
    }
    return out;
}

Dtype partial_type(Dtype dtype) {
    const TypeRow* row = find_type(static_cast<uint64_t>(dtype));
    return row != nullptr && is_narrow(*row) ? Dtype::f32 : dtype;
}

void widen(void* partial, const void* values, size_t count, Dtype dtype) {
    if (count == 0) return;  // no memory
    if (partial_type(dtype) == dtype)
        std::memmove(partial, values, count * size_of(dtype));
    else
        kernels().widen(partial, values, count, dtype);
}

void narrow(void* values, const void* partial, size_t count, Dtype dtype) {
    if (count == 0) return;
    if (partial_type(dtype) == dtype)
        std::memmove(values, partial, count * size_of(dtype));
    else
        kernels().narrow(values, partial, count, dtype);
}

void combine_partials(const PartialJob& job) {
    if (job.srcs.empty() || !may_reduce(job.dtype, job.op)) return;
    const FpEnv env;
    const size_t step = block_bytes / size_of(partial_type(job.dtype));
    Stack stack(job, 0, 0);
    for (size_t begin = 0; begin < job.count; begin += step) {
        const size_t count = std::min(step, job.count - begin);
        stack.restart(begin, count);
        const uint64_t* scalar = job.scalars.empty() ? nullptr : job.scalars.data();
        for (const PartialSource& source : job.srcs) {
            const bool scales = scalar != nullptr && !source.is_partial;
            stack.push(source, scales ? scalar++ : nullptr);
        }
        finish(job, stack, begin, count);
    }
}

}  // namespace nexar::reduce
