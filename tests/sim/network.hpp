// The network between simulated nodes: per pair and mesh two directions of four ordered class streams, with
// seeded latency, jitter between the classes, random splits, limited room. A channel that breaks loses what
// is in it from some byte on. A direction that is blocked keeps its bytes and moves none.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <vector>

#include "clock.hpp"
#include "connections/carrier.hpp"
#include "link/mesh.hpp"
#include "support/longer_frames.hpp"

namespace nexar::sim {

struct NetworkShape {
    Duration latency_min{5us};
    Duration jitter{20us};
    size_t room = 1024 * 1024;  // per class; more than the largest frame, a chunk with its header
    bool split_bytes = true;
};

// One direction of one channel generation.
class Pipe final : public link::Channel {
  public:
    using Deliver = std::function<void(link::Class, Bytes)>;

    bool is_ahead = false;  // its sender is of a later version, with longer frames; each write is one frame

    Pipe(Clock& clock, const NetworkShape& shape, Deliver deliver, std::function<void()> room_again)
        : clock_(clock), shape_(shape), deliver_(std::move(deliver)), room_again_(std::move(room_again)) {}

    size_t room(link::Class cls) const override {
        const Stream& s = streams_[size_t(cls)];
        return s.queued >= shape_.room ? 0 : shape_.room - s.queued;
    }
    size_t held(link::Class cls) const override { return streams_[size_t(cls)].queued; }
    void write(link::Class cls, std::span<const Bytes> parts) override {
        Stream& s = streams_[size_t(cls)];
        std::vector<std::byte> block;
        for (Bytes part : parts) block.insert(block.end(), part.begin(), part.end());
        if (is_ahead) block = test::longer(block);
        s.queued += block.size();
        s.written += block.size();
        s.blocks.push_back(std::move(block));
        // In order within a class; the classes overtake one another.
        s.last = std::max(s.last, clock_.now() + shape_.latency_min + clock_.some(shape_.jitter));
        clock_.at(s.last, [this, cls, alive = alive_] {
            if (*alive) arrive(cls);
        });
    }
    // What has arrived counts as acknowledged.
    connections::Progress progress(link::Class cls) const {
        const Stream& s = streams_[size_t(cls)];
        return {s.written, s.written - s.queued};
    }
    void set_blocked(bool blocked) {
        blocked_ = blocked;
        if (blocked) return;
        for (size_t c = 0; c < link::class_count; ++c)
            for (; streams_[c].held > 0; --streams_[c].held) arrive(static_cast<link::Class>(c));
    }
    // Whatever is in it is lost; callbacks already scheduled do nothing.
    void close() { *alive_ = false; }
    ~Pipe() { close(); }

  private:
    struct Stream {
        std::deque<std::vector<std::byte>> blocks;
        size_t queued = 0, held = 0;
        uint64_t written = 0;
        Time last{};
    };

    void arrive(link::Class cls) {
        Stream& s = streams_[size_t(cls)];
        if (blocked_) {
            ++s.held;
            return;
        }
        const std::vector<std::byte> block = std::move(s.blocks.front());
        s.blocks.pop_front();
        s.queued -= block.size();
        const auto alive = alive_;
        Bytes left(block);
        while (!left.empty() && *alive) {
            size_t n = left.size();
            if (shape_.split_bytes && clock_.random.one_in(4)) n = 1 + clock_.random.below(n);
            if (shape_.split_bytes && clock_.random.one_in(32))
                n = std::min<size_t>(n, 1 + clock_.random.below(40));
            deliver_(cls, left.first(n));
            left = left.subspan(n);
        }
        if (*alive) room_again_();
    }

    Clock& clock_;
    const NetworkShape& shape_;
    Deliver deliver_;
    std::function<void()> room_again_;
    std::array<Stream, link::class_count> streams_;
    bool blocked_ = false;
    std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace nexar::sim
