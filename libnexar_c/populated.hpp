// Populated: which parts of a region have their pages. The library populates what an operation uses before it
// submits it: the page then counts as this process's, in its own memory cgroup, and the daemon never waits
// for one (docs/protocol/shm.md [S10]).
//
// Thread: any. Two threads may populate the same part at the same time, which changes nothing.
#pragma once

#include <atomic>
#include <cstdlib>
#include <memory>

#include "core/bytes.hpp"
#include "core/result.hpp"

namespace nexar::c {

class Populated {
  public:
    // Of a region of so many bytes, which has no page yet.
    explicit Populated(uint64_t bytes);
    // The parts that overlap memory.subspan(offset, bytes) are populated when this returns without an error.
    // Their content does not change. no_memory: the system lacks it.
    Result<void> ensure(MutableBytes memory, uint64_t offset, uint64_t bytes);

    static constexpr uint64_t part_bytes = 64 * 1024;

  private:
    using Word = std::atomic<uint64_t>;
    struct Free {
        void operator()(Word* words) const { std::free(words); }
    };
    bool has(uint64_t part) const {
        return (words_[part / 64].load(std::memory_order_relaxed) >> part % 64 & 1) != 0;
    }
    void set(uint64_t part) {
        words_[part / 64].fetch_or(uint64_t{1} << part % 64, std::memory_order_relaxed);
    }

    std::unique_ptr<Word[], Free> words_;  // a bit for each part; pages of zeros until they are used
};

}  // namespace nexar::c
