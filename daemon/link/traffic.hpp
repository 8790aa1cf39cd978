// Traffic: what was exchanged with one peer, or with all, by class. The thread that drives a mesh counts each
// frame when it is written to the channel, and when it has arrived whole. A reader waits for no other thread:
// the numbers are true also while that thread is at work on something long.
//
// Thread: one counts; any may read.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "link/transfer.hpp"

namespace nexar::link {

struct Amount {
    uint64_t frames = 0;
    uint64_t bytes = 0;    // of these, with their headers; without what the carrier adds (QUIC, TLS, UDP)
    uint64_t payload = 0;  // of data frames; a chunk that is sent again counts again
    Amount& operator+=(const Amount& other) {
        frames += other.frames;
        bytes += other.bytes;
        payload += other.payload;
        return *this;
    }
    bool operator==(const Amount&) const = default;
};

struct TrafficCounts {
    std::array<Amount, class_count> sent, received;  // by Class
    TrafficCounts& operator+=(const TrafficCounts& other) {
        for (size_t c = 0; c < class_count; ++c) {
            sent[c] += other.sent[c];
            received[c] += other.received[c];
        }
        return *this;
    }
};

class Traffic {
  public:
    void sent(Class cls, uint64_t bytes, uint64_t payload) { sent_[index_of(cls)].add(bytes, payload); }
    void received(Class cls, uint64_t bytes, uint64_t payload) {
        received_[index_of(cls)].add(bytes, payload);
    }
    TrafficCounts read() const {
        TrafficCounts out;
        for (size_t c = 0; c < class_count; ++c) {
            out.sent[c] = sent_[c].read();
            out.received[c] = received_[c].read();
        }
        return out;
    }

  private:
    class Counter {
      public:
        void add(uint64_t bytes, uint64_t payload) {
            raise(frames_, 1);
            raise(bytes_, bytes);
            raise(payload_, payload);
        }
        Amount read() const {
            return {frames_.load(std::memory_order_relaxed), bytes_.load(std::memory_order_relaxed),
                    payload_.load(std::memory_order_relaxed)};
        }

      private:
        // Only one thread writes, so reading and writing need not be one step.
        static void raise(std::atomic<uint64_t>& number, uint64_t by) {
            number.store(number.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
        }
        std::atomic<uint64_t> frames_{0}, bytes_{0}, payload_{0};
    };
    std::array<Counter, class_count> sent_, received_;
};

}  // namespace nexar::link
