// Transfers between two meshes over memory of their own: every word is distinct, and is looked at afterwards.
#pragma once

#include <cstdint>
#include <vector>

#include "core/random.hpp"
#include "link/mesh.hpp"
#include "support/regions.hpp"

namespace nexar::test {

inline link::TransferKey key(uint64_t op, uint32_t phase) {
    link::TransferKey k;
    k.op.group = GroupId{1, 2, 3};
    k.op.op = op;
    k.phase = phase;
    return k;
}

// `count` transfers from one to the other, each over memory of its own, distinct in every word.
struct Transfers {
    std::vector<std::vector<uint32_t>> from, to, before;
    uint64_t op;
    bool reduce;
    Class cls = Class::bulk;

    Transfers(uint64_t op_number, size_t count, size_t words, bool with_reduce)
        : op(op_number), reduce(with_reduce) {
        Random random(op + 17);
        for (size_t i = 0; i < count; ++i) {
            from.emplace_back(words);
            to.emplace_back(words);
            for (uint32_t& w : from.back()) w = static_cast<uint32_t>(random.next());
            for (uint32_t& w : to.back()) w = static_cast<uint32_t>(random.next());
        }
        before = to;
    }
    static link::Extents memory(std::vector<uint32_t>& words) {
        // Two extents, the first of an odd number of words.
        const Place bytes = place_of(words.data());
        const size_t first = (words.size() / 3 | 1) * 4;
        return {{bytes, first}, {bytes + first, words.size() * 4 - first}};
    }
    link::Batch recvs(link::PeerIndex peer, uint64_t first_handle) {
        link::Batch batch;
        batch.first_handle = first_handle;
        for (uint32_t i = 0; i < to.size(); ++i) {
            link::RecvSpec r;
            r.key = key(op, i);
            r.from = peer;
            r.cls = cls;
            r.agreement = {11, 22};
            r.memory = memory(to[i]);
            if (reduce) r.reduce = link::RecvSpec::Reduce{Dtype::u32, ReduceOp::sum};
            batch.recvs.push_back(r);
        }
        return batch;
    }
    link::Batch sends(link::PeerIndex peer, uint64_t first_handle) {
        link::Batch batch;
        batch.first_handle = first_handle;
        for (uint32_t i = 0; i < from.size(); ++i) {
            link::SendSpec s;
            s.key = key(op, i);
            s.to = peer;
            s.cls = cls;
            s.agreement = {11, 22};
            s.memory = memory(from[i]);
            batch.sends.push_back(s);
        }
        return batch;
    }
    // The number of words that differ from applying each chunk exactly once.
    size_t wrong() const {
        size_t n = 0;
        for (size_t t = 0; t < to.size(); ++t)
            for (size_t i = 0; i < to[t].size(); ++i)
                n += to[t][i] != (reduce ? before[t][i] : 0) + from[t][i];
        return n;
    }
};

}  // namespace nexar::test
