// AtWork: whether a thread of the daemon has bulk work, counted in a word by which threads that wait decide
// whether to yield (Yields::may_pay). Dry.
//
// Thread: one; the word belongs to all that count in it.
#pragma once

#include <atomic>
#include <cstdint>

namespace nexar {

class AtWork {
  public:
    AtWork() = default;
    ~AtWork() { end(); }
    AtWork(const AtWork&) = delete;
    AtWork& operator=(const AtWork&) = delete;

    // Again: nothing. `count` null: it is counted nowhere; else it exists until the end.
    void begin(uint32_t* count) {
        if (count_ != nullptr || count == nullptr) return;
        count_ = count;
        std::atomic_ref(*count_).fetch_add(1, std::memory_order_relaxed);
    }
    // Of all that count there. Thread: any.
    static bool any(uint32_t* count) {
        return count != nullptr && std::atomic_ref(*count).load(std::memory_order_relaxed) != 0;
    }
    bool counts() const { return count_ != nullptr; }
    void end() {
        if (count_ == nullptr) return;
        std::atomic_ref(*count_).fetch_sub(1, std::memory_order_relaxed);
        count_ = nullptr;
    }

  private:
    uint32_t* count_ = nullptr;  // null: it has no work
};

}  // namespace nexar
