// The verbs in memory: all nodes of one lane in one object, chunk by chunk in an order drawn from a seed. A
// chunk is read from the sender's memory at the last possible moment, when it is applied, so an algorithm
// that overwrites memory before its send is acknowledged computes a wrong result here.
#pragma once

#include <catch2/catch_test_macros.hpp>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "collectives/extents.hpp"
#include "collectives/link.hpp"
#include "core/random.hpp"
#include "reduce/reduce.hpp"
#include "support/regions.hpp"

namespace nexar::collectives {

class MemoryNetwork {
  public:
    MemoryNetwork(uint32_t nodes, uint64_t seed, size_t chunk_bytes)
        : bytes(size_t{nodes} * nodes), nodes_(nodes), random_(seed), chunk_bytes_(chunk_bytes) {
        for (uint32_t i = 0; i < nodes; ++i) lanes_.emplace_back(*this, NodeIndex(i));
    }

    Lane& lane(uint32_t node) { return lanes_[node]; }
    Executor executor;

    // Until nothing moves any more.
    void run() {
        executor.run_ready();
        while (step()) executor.run_ready();
    }

    std::vector<uint64_t> bytes;  // from i to j: [i * nodes + j]
    size_t transfers_unfinished() const { return sends_.size() + recvs_.size(); }

  private:
    using Key = std::tuple<uint32_t, uint32_t, uint32_t>;  // from, to, phase
    struct Send {
        Extents memory;
        std::vector<bool> ready, applied;
        size_t acks_due = 0;
        std::function<void()> over;
    };
    struct Recv {
        Extents memory;
        std::optional<Arithmetic> arithmetic;
        std::vector<bool> applied;
        size_t left = 0;
        std::optional<Key> forward;
        std::function<void()> over;
    };
    struct Later {  // an acknowledgement or a local job in flight
        std::function<void()> act;
    };

    class NodeLane final : public Lane {
      public:
        NodeLane(MemoryNetwork& network, NodeIndex self) : network_(network), self_(self) {}
        NodeIndex self() const override { return self_; }
        uint32_t nodes() const override { return network_.nodes_; }
        Op& recv_copy(NodeIndex from, uint32_t phase, Extents into) override {
            Op& op = make();
            network_.post_recv({from.value, self_.value, phase}, std::move(into), {}, {},
                               [&op] { op.finish(); });
            return op;
        }
        Op& recv_reduce(NodeIndex from, uint32_t phase, Extents into, Arithmetic arithmetic) override {
            Op& op = make();
            network_.post_recv({from.value, self_.value, phase}, std::move(into), arithmetic, {},
                               [&op] { op.finish(); });
            return op;
        }
        Op& send(NodeIndex to, uint32_t phase, Extents from) override {
            Op& op = make();
            network_.post_send({self_.value, to.value, phase}, std::move(from), true, [&op] { op.finish(); });
            return op;
        }
        Op& recv_copy_send(NodeIndex from, NodeIndex to, uint32_t in, uint32_t out, Extents memory) override {
            return through(from, to, in, out, std::move(memory), {});
        }
        Op& recv_reduce_send(NodeIndex from, NodeIndex to, uint32_t in, uint32_t out, Extents memory,
                             Arithmetic arithmetic) override {
            return through(from, to, in, out, std::move(memory), arithmetic);
        }
        link::Extent scratch(size_t n) override {
            scratch_.emplace_back(n, std::byte{0xee});
            return {nexar::test::place_of(scratch_.back().data()), n};
        }
        Op& combine(Vector<Extents> dsts, Vector<Extents> srcs, Arithmetic arithmetic,
                    Vector<uint64_t> scalars) override {
            Op& op = make();
            network_.later_.push_back({[dsts, srcs, arithmetic, scalars, &op] {
                combine_now(dsts, srcs, arithmetic, scalars);
                op.finish();
            }});
            return op;
        }
        Op& copy(Extents dst, Extents src) override {
            Op& op = make();
            network_.later_.push_back({[dst, src, &op] {
                apply(dst, src, {});
                op.finish();
            }});
            return op;
        }

      private:
        Op& make() {
            ops_.push_back(std::make_unique<Op>());
            return *ops_.back();
        }
        Op& through(NodeIndex from, NodeIndex to, uint32_t in, uint32_t out, Extents memory,
                    std::optional<Arithmetic> arithmetic) {
            Op& op = make();
            auto left = std::make_shared<int>(2);
            const auto over = [&op, left] {
                if (--*left == 0) op.finish();
            };
            const Key forward{self_.value, to.value, out};
            network_.post_send(forward, memory, false, over);
            network_.post_recv({from.value, self_.value, in}, std::move(memory), arithmetic, forward, over);
            return op;
        }
        MemoryNetwork& network_;
        NodeIndex self_;
        std::deque<std::unique_ptr<Op>> ops_;
        std::deque<std::vector<std::byte>> scratch_;
    };

    static void combine_now(const Vector<Extents>& dsts, const Vector<Extents>& srcs, Arithmetic arithmetic,
                            const Vector<uint64_t>& scalars) {
        std::vector<std::vector<std::byte>> flat;
        for (const Extents& src : srcs) flat.push_back(flatten(src));
        std::vector<std::byte> result = flat[0];
        void* const to = result.data();
        const std::vector<const void*> from = [&] {
            std::vector<const void*> out;
            for (const auto& bytes : flat) out.push_back(bytes.data());
            return out;
        }();
        const size_t count = result.size() / reduce::size_of(arithmetic.dtype);
        if (scalars.empty())
            reduce::reduce_many(to, from, count, arithmetic.dtype, arithmetic.op);
        else
            reduce::premul_sum({&to, 1}, from, scalars, count, arithmetic.dtype);
        for (const Extents& dst : dsts) write(dst, result);
    }
    static void write(const Extents& dst, const std::vector<std::byte>& bytes) {
        REQUIRE(link::bytes_of(dst) == bytes.size());
        size_t at = 0;
        for (const link::Extent& e : dst) {
            if (e.bytes > 0) std::memcpy(e.data(), bytes.data() + at, e.bytes);
            at += e.bytes;
        }
    }
    static void apply(const Extents& dst, const Extents& src, const std::optional<Arithmetic>& arithmetic) {
        const std::vector<std::byte> flat_src = flatten(src);
        std::vector<std::byte> flat_dst = flatten(dst);
        REQUIRE(flat_dst.size() == flat_src.size());
        if (arithmetic)
            reduce::reduce_into(flat_dst.data(), flat_src.data(),
                                flat_dst.size() / reduce::size_of(arithmetic->dtype), arithmetic->dtype,
                                arithmetic->op);
        else
            flat_dst = flat_src;
        write(dst, flat_dst);
    }
    static std::vector<std::byte> flatten(const Extents& extents) {
        std::vector<std::byte> out;
        for (const link::Extent& e : extents) out.insert(out.end(), e.data(), e.data() + e.bytes);
        return out;
    }

    size_t chunks(const Extents& memory) const {
        return (link::bytes_of(memory) + chunk_bytes_ - 1) / chunk_bytes_;
    }

    void post_send(Key key, Extents memory, bool ready, std::function<void()> over) {
        const size_t n = chunks(memory);
        if (n == 0) return over();
        REQUIRE(used_sends_.insert(key).second);  // a phase is used once per pair
        sends_[key] = {std::move(memory), std::vector<bool>(n, ready), std::vector<bool>(n), n,
                       std::move(over)};
        note_movable(key);
    }
    void post_recv(Key key, Extents memory, std::optional<Arithmetic> arithmetic, std::optional<Key> forward,
                   std::function<void()> over) {
        const size_t n = chunks(memory);
        if (n == 0) return over();
        REQUIRE(used_recvs_.insert(key).second);
        recvs_[key] = {std::move(memory), arithmetic, std::vector<bool>(n), n, forward, std::move(over)};
        note_movable(key);
    }
    // Both ends have been posted: what of it is there can move.
    void note_movable(const Key& key) {
        const auto send = sends_.find(key);
        if (send == sends_.end() || !recvs_.contains(key)) return;
        for (size_t i = 0; i < send->second.ready.size(); ++i)
            if (send->second.ready[i]) movable_.emplace_back(key, i);
    }

    // One thing that could happen now happens.
    bool step() {
        const size_t total = movable_.size() + later_.size();
        if (total == 0) return false;
        const size_t pick = random_.below(total);
        if (pick < movable_.size()) {
            const auto [key, chunk] = std::exchange(movable_[pick], movable_.back());
            movable_.pop_back();
            move_chunk(key, chunk);
        } else {
            const size_t at = pick - movable_.size();
            const Later later = std::move(later_[at]);
            later_.erase(later_.begin() + static_cast<std::ptrdiff_t>(at));
            later.act();
        }
        return true;
    }

    void move_chunk(const Key& key, size_t chunk) {
        Send& send = sends_.at(key);
        Recv& recv = recvs_.at(key);
        const size_t total = link::bytes_of(send.memory);
        REQUIRE(link::bytes_of(recv.memory) == total);
        const size_t offset = chunk * chunk_bytes_;
        const size_t n = std::min(chunk_bytes_, total - offset);
        apply(slice(recv.memory, offset, n), slice(send.memory, offset, n), recv.arithmetic);
        bytes[std::get<0>(key) * nodes_ + std::get<1>(key)] += n;
        recv.applied[chunk] = true;
        send.applied[chunk] = true;
        if (recv.forward) {
            sends_.at(*recv.forward).ready[chunk] = true;
            if (recvs_.contains(*recv.forward)) movable_.emplace_back(*recv.forward, chunk);
        }
        later_.push_back({[this, key] {
            Send& acked = sends_.at(key);
            if (--acked.acks_due > 0) return;
            const auto over = std::move(acked.over);
            sends_.erase(key);
            over();
        }});
        if (--recv.left == 0) {
            const auto over = std::move(recv.over);
            recvs_.erase(key);
            over();
        }
    }

    uint32_t nodes_;
    Random random_;
    size_t chunk_bytes_;
    std::deque<NodeLane> lanes_;
    std::map<Key, Send> sends_;
    std::map<Key, Recv> recvs_;
    std::set<Key> used_sends_, used_recvs_;
    std::vector<std::pair<Key, size_t>> movable_;  // chunks that wait for nothing
    std::deque<Later> later_;
};

}  // namespace nexar::collectives
