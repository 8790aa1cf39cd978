// HandleTable: handles are numbers (index, generation, kind), carried in a pointer. So a closed or invalid
// handle is an error, not a crash, and an object exists until the last call that uses it has returned.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace nexar::c {

template <class T, uint32_t capacity, uint64_t kind>
class HandleTable {
    // word: generation (32) | open (1) | users (31)
    static constexpr uint64_t open_bit = uint64_t{1} << 31;
    static constexpr uint64_t users_mask = open_bit - 1;
    struct Entry {
        std::atomic<uint64_t> word{0};
        T* object = nullptr;
    };

  public:
    static constexpr uint32_t capacity_max = capacity;

    // Keeps the object alive.
    class Pin {
      public:
        Pin() = default;
        Pin(HandleTable* table, uint32_t index) : table_(table), index_(index) {}
        Pin(Pin&& other) noexcept : table_(std::exchange(other.table_, nullptr)), index_(other.index_) {}
        Pin& operator=(Pin&& other) noexcept {
            std::swap(table_, other.table_);
            std::swap(index_, other.index_);
            return *this;
        }
        ~Pin() {
            if (table_) table_->unpin(index_);
        }
        explicit operator bool() const { return table_ != nullptr; }
        T* operator->() const { return table_->entries_[index_].object; }
        T& operator*() const { return *table_->entries_[index_].object; }

      private:
        HandleTable* table_ = nullptr;
        uint32_t index_ = 0;
    };

    enum class Found { open, closed, never };

    // Returns the handle. 0: the table is full, and the object is destroyed. `named` is called with the index
    // before another thread can pin the object.
    template <class Named>
    uint64_t insert(std::unique_ptr<T> object, Named named) {
        std::lock_guard lock(mutex_);
        uint32_t index = 0;
        if (!free_.empty()) {
            index = free_.back();
            free_.pop_back();
        } else if (used_ < capacity) {
            index = used_++;
        } else {
            return 0;
        }
        Entry& entry = entries_[index];
        const uint64_t generation = (entry.word.load(std::memory_order_relaxed) >> 32) + 1;
        entry.object = object.release();
        named(index);
        entry.word.store(generation << 32 | open_bit, std::memory_order_release);
        return encode(index, generation);
    }

    Found pin(uint64_t handle, Pin& out) {
        uint32_t index;
        uint64_t generation;
        if (!decode(handle, index, generation)) return Found::never;
        uint64_t word = entries_[index].word.load(std::memory_order_relaxed);
        do {
            if (word >> 32 != (generation & 0xffffffffu))
                return word >> 32 > generation ? Found::closed : Found::never;
            if (!(word & open_bit)) return Found::closed;
        } while (!entries_[index].word.compare_exchange_weak(word, word + 1, std::memory_order_acquire,
                                                             std::memory_order_relaxed));
        out = Pin(this, index);
        return Found::open;
    }
    // By index, for any generation.
    Found pin_index(uint32_t index, Pin& out) {
        if (index >= capacity) return Found::never;
        uint64_t word = entries_[index].word.load(std::memory_order_relaxed);
        do {
            if (word >> 32 == 0) return Found::never;
            if (!(word & open_bit)) return Found::closed;
        } while (!entries_[index].word.compare_exchange_weak(word, word + 1, std::memory_order_acquire,
                                                             std::memory_order_relaxed));
        out = Pin(this, index);
        return Found::open;
    }

    // Closes the handle: no thread can pin it any more, and the object is destroyed with its last pin. One
    // caller gets the pin, concurrent callers get Found::closed.
    Found close(uint64_t handle, Pin& out) {
        Pin mine;
        const Found found = pin(handle, mine);
        if (found != Found::open) return found;
        uint32_t index;
        uint64_t generation;
        decode(handle, index, generation);
        if (!(entries_[index].word.fetch_and(~open_bit, std::memory_order_acq_rel) & open_bit))
            return Found::closed;
        out = std::move(mine);
        return Found::open;
    }

    // Requires: the caller has pinned the entry.
    void close_index(uint32_t index) { entries_[index].word.fetch_and(~open_bit, std::memory_order_acq_rel); }
    void close_all() {
        for (uint32_t i = 0; i < used_; ++i) {
            Pin pin;
            if (pin_index(i, pin) == Found::open) close_index(i);
        }
    }

    void lock() { mutex_.lock(); }
    void unlock() { mutex_.unlock(); }

  private:
    // The kind has the low 4 bits: a handle of another kind is refused, and no handle equals an aligned
    // address.
    static uint64_t encode(uint32_t index, uint64_t generation) {
        return (generation & 0xffffffffu) << 24 | uint64_t{index} << 4 | kind;
    }
    static bool decode(uint64_t handle, uint32_t& index, uint64_t& generation) {
        index = static_cast<uint32_t>(handle >> 4) & 0xfffff;
        generation = handle >> 24;
        return (handle & 0xf) == kind && index < capacity && generation != 0;
    }

    void unpin(uint32_t index) {
        Entry& entry = entries_[index];
        const uint64_t left = entry.word.fetch_sub(1, std::memory_order_acq_rel) - 1;
        if ((left & users_mask) != 0 || (left & open_bit)) return;
        delete std::exchange(entry.object, nullptr);
        std::lock_guard lock(mutex_);
        free_.push_back(index);
    }

    Entry entries_[capacity];
    std::mutex mutex_;
    std::vector<uint32_t> free_;  // indices below used_ without an object
    uint32_t used_ = 0;           // indices that ever had an object
};

}  // namespace nexar::c
