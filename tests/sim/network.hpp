// The network between simulated nodes: per pair and mesh two directions of four ordered class streams, with
// seeded latency, random splits, limited room. A channel that breaks loses what is in it from some byte on. A
// direction that is blocked keeps its bytes and moves none. As QUIC carries, the classes overtake one another
// at random; as TCP carries (tcp/connection.hpp), what the kernel has taken of one record after the other
// stays in order, and only what waits behind it is overtaken by what is more urgent.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
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
class Pipe : public link::Channel {
  public:
    using Deliver = std::function<void(Class, Bytes)>;

    bool is_ahead = false;  // its sender is of a later version, with longer frames; each write is one frame

    virtual ~Pipe() { close(); }
    Pipe(const Pipe&) = delete;

    size_t room(Class cls) const override {
        const Stream& s = streams_[size_t(cls)];
        return s.queued >= shape_.room ? 0 : shape_.room - s.queued;
    }
    size_t held(Class cls) const override {
        const Stream& s = streams_[size_t(cls)];
        return s.written - s.arrived;
    }
    void write(Class cls, std::span<const Bytes> parts) override {
        Stream& s = streams_[size_t(cls)];
        std::vector<std::byte> block;
        for (Bytes part : parts) block.insert(block.end(), part.begin(), part.end());
        if (is_ahead) block = test::longer(block);
        s.queued += block.size();
        s.written += block.size();
        send(cls, std::move(block));
    }
    // What has arrived counts as acknowledged.
    connections::Progress progress(Class cls) const {
        const Stream& s = streams_[size_t(cls)];
        return {s.written, s.arrived};
    }
    void set_blocked(bool blocked) {
        blocked_ = blocked;
        if (!blocked) let_go();
    }
    // Whatever is in it is lost; callbacks already scheduled do nothing.
    void close() { *alive_ = false; }

  protected:
    struct Stream {
        std::deque<std::vector<std::byte>> blocks;  // written
        size_t queued = 0;                          // bytes that take room
        uint64_t written = 0, arrived = 0;
    };
    Pipe(Clock& clock, const NetworkShape& shape, Deliver deliver, std::function<void()> room_again)
        : clock_(clock), shape_(shape), deliver_(std::move(deliver)), room_again_(std::move(room_again)) {}

    virtual void send(Class cls, std::vector<std::byte> block) = 0;
    virtual void let_go() = 0;  // what has come while it was blocked
    Duration latency() { return shape_.latency_min + clock_.some(shape_.jitter); }
    void at(Time when, std::function<void()> act) {
        clock_.at(when, [alive = alive_, act = std::move(act)] {
            if (*alive) act();
        });
    }

    Clock& clock_;
    const NetworkShape& shape_;
    Deliver deliver_;
    std::function<void()> room_again_;
    std::array<Stream, class_count> streams_;
    bool blocked_ = false;
    std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

class QuicPipe final : public Pipe {
  public:
    QuicPipe(Clock& clock, const NetworkShape& shape, Deliver deliver, std::function<void()> room_again)
        : Pipe(clock, shape, std::move(deliver), std::move(room_again)) {}

  private:
    // In order within a class; the classes overtake one another.
    void send(Class cls, std::vector<std::byte> block) override {
        streams_[size_t(cls)].blocks.push_back(std::move(block));
        Time& last = last_[size_t(cls)];
        last = std::max(last, clock_.now() + latency());
        at(last, [this, cls] { arrive(cls); });
    }
    void let_go() override {
        for (size_t c = 0; c < class_count; ++c)
            for (; held_[c] > 0; --held_[c]) arrive(static_cast<Class>(c));
    }
    void arrive(Class cls) {
        Stream& s = streams_[size_t(cls)];
        if (blocked_) {
            ++held_[size_t(cls)];
            return;
        }
        const std::vector<std::byte> block = std::move(s.blocks.front());
        s.blocks.pop_front();
        s.queued -= block.size();
        s.arrived += block.size();
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

    std::array<size_t, class_count> held_{};
    std::array<Time, class_count> last_{};
};

// Records of one stream. The kernel takes so many bytes as a window has; the receiver has a write when its
// last record has come.
class TcpPipe final : public Pipe {
  public:
    static constexpr size_t window = 128 * 1024, record_bytes = 16 * 1024;
    static constexpr unsigned starving_records = 64;

    TcpPipe(Clock& clock, const NetworkShape& shape, Deliver deliver, std::function<void()> room_again)
        : Pipe(clock, shape, std::move(deliver), std::move(room_again)) {}

  private:
    struct Record {
        Class cls;
        std::vector<std::byte> bytes;
        bool is_last;
    };
    void send(Class cls, std::vector<std::byte> block) override {
        streams_[size_t(cls)].blocks.push_back(std::move(block));
        take();
    }
    void let_go() override {
        while (!held_.empty() && !blocked_) {
            const Record record = std::move(held_.front());
            held_.pop_front();
            arrive(record);
        }
    }
    // The most urgent class; one that was passed over often enough comes first.
    std::optional<size_t> pick() {
        std::optional<size_t> best;
        for (size_t c = 0; c < class_count; ++c) {
            if (streams_[c].blocks.empty()) continue;
            if (passed_over_[c] >= starving_records) return c;
            if (!best) best = c;
        }
        return best;
    }
    void take() {
        while (in_flight_ < window) {
            const auto chosen = pick();
            if (!chosen) return;
            for (size_t c = 0; c < class_count; ++c)
                if (c != *chosen && !streams_[c].blocks.empty()) ++passed_over_[c];
            passed_over_[*chosen] = 0;
            leave(static_cast<Class>(*chosen));
        }
    }
    void leave(Class cls) {
        Stream& s = streams_[size_t(cls)];
        size_t& done = taken_[size_t(cls)];
        const std::vector<std::byte>& block = s.blocks.front();
        const size_t n = std::min(record_bytes, block.size() - done);
        const auto from = block.begin() + static_cast<ptrdiff_t>(done);
        auto record = std::make_shared<Record>(
            Record{cls, {from, from + static_cast<ptrdiff_t>(n)}, done + n == block.size()});
        done += n;
        if (record->is_last) {
            s.blocks.pop_front();
            done = 0;
        }
        s.queued -= n;
        in_flight_ += n;
        last_ = std::max(last_, clock_.now() + latency());
        at(last_, [this, record] {
            if (blocked_)
                held_.push_back(std::move(*record));
            else
                arrive(*record);
        });
    }
    void arrive(const Record& record) {
        auto& stage = stages_[size_t(record.cls)];
        stage.insert(stage.end(), record.bytes.begin(), record.bytes.end());
        in_flight_ -= record.bytes.size();
        streams_[size_t(record.cls)].arrived += record.bytes.size();
        const auto alive = alive_;
        if (record.is_last) {
            const std::vector<std::byte> whole = std::exchange(stage, {});
            deliver_(record.cls, whole);
        }
        if (*alive) take();
        if (*alive) room_again_();
    }

    std::array<size_t, class_count> taken_{};  // of each class's first block
    std::array<unsigned, class_count> passed_over_{};
    std::array<std::vector<std::byte>, class_count> stages_;
    std::deque<Record> held_;
    size_t in_flight_ = 0;
    Time last_{};
};

inline std::unique_ptr<Pipe> make_pipe(bool as_tcp, Clock& clock, const NetworkShape& shape,
                                       Pipe::Deliver deliver, std::function<void()> room_again) {
    if (as_tcp) return std::make_unique<TcpPipe>(clock, shape, std::move(deliver), std::move(room_again));
    return std::make_unique<QuicPipe>(clock, shape, std::move(deliver), std::move(room_again));
}

}  // namespace nexar::sim
