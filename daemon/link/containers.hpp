// The link's containers: a flat hash map, an intrusive list, a slab with weak references, a set of chunks.
// None allocates in the steady state, and the order of none depends on addresses.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <utility>
#include <vector>

#include "core/check.hpp"

namespace nexar::link {

// Open addressing, linear probing, deletion by shifting back (no tombstones). Never iterated for output.
template <class K, class V, class Hash>
class FlatMap {
  public:
    V* find(const K& key) {
        if (count_ == 0) return nullptr;
        for (size_t i = home(key);; i = next(i)) {
            if (!cells_[i].used) return nullptr;
            if (cells_[i].key == key) return &cells_[i].value;
        }
    }
    // Requires: the key is not in the map.
    V& insert(const K& key, V value) {
        if (cells_.empty() || (count_ + 1) * 4 > cells_.size() * 3) grow();
        size_t i = home(key);
        while (cells_[i].used) i = next(i);
        cells_[i] = {key, std::move(value), true};
        ++count_;
        return cells_[i].value;
    }
    bool erase(const K& key) {
        if (count_ == 0) return false;
        size_t i = home(key);
        while (cells_[i].used && !(cells_[i].key == key)) i = next(i);
        if (!cells_[i].used) return false;
        close_gap(i);
        --count_;
        return true;
    }
    size_t size() const { return count_; }
    void clear() {
        cells_.clear();
        count_ = 0;
    }

  private:
    struct Cell {
        K key{};
        V value{};
        bool used = false;
    };
    size_t home(const K& key) const { return Hash{}(key) & (cells_.size() - 1); }
    size_t next(size_t i) const { return (i + 1) & (cells_.size() - 1); }
    void grow() {
        std::vector<Cell> old(cells_.empty() ? 16 : cells_.size() * 2);
        old.swap(cells_);
        count_ = 0;
        for (Cell& cell : old)
            if (cell.used) insert(cell.key, std::move(cell.value));
    }
    void close_gap(size_t gap) {
        for (size_t i = next(gap); cells_[i].used; i = next(i)) {
            // The cell may fill the gap unless its home lies cyclically behind the gap.
            const size_t mask = cells_.size() - 1;
            if (((i - home(cells_[i].key)) & mask) < ((i - gap) & mask)) continue;
            cells_[gap] = std::move(cells_[i]);
            gap = i;
        }
        cells_[gap] = {};
    }

    std::vector<Cell> cells_;
    size_t count_ = 0;
};

template <class T>
struct Hook {
    T* prev = nullptr;
    T* next = nullptr;
    bool linked = false;
};

// A first-in first-out list through a Hook member of T. Owner: the caller owns the items.
template <class T, Hook<T> T::* hook>
class List {
  public:
    T* front() const { return head_; }
    static T* after(const T& item) { return (item.*hook).next; }
    bool empty() const { return head_ == nullptr; }

    void push_back(T& item) {
        Hook<T>& h = item.*hook;
        NEXAR_CHECK(!h.linked);
        h = {tail_, nullptr, true};
        if (tail_ != nullptr)
            (tail_->*hook).next = &item;
        else
            head_ = &item;
        tail_ = &item;
    }
    void erase(T& item) {
        Hook<T>& h = item.*hook;
        if (!h.linked) return;
        (h.prev != nullptr ? (h.prev->*hook).next : head_) = h.next;
        (h.next != nullptr ? (h.next->*hook).prev : tail_) = h.prev;
        h = {};
    }

  private:
    T* head_ = nullptr;
    T* tail_ = nullptr;
};

// Requires: T has a member `uint64_t serial`. Addresses are stable; a released object is reused with a new
// serial.
template <class T>
class Slab {
  public:
    T& take() {
        if (free_.empty()) {
            store_.emplace_back();
            free_.push_back(&store_.back());
        }
        T* item = free_.back();
        free_.pop_back();
        item->serial = ++serial_;
        return *item;
    }
    void release(T& item) {
        item.serial = 0;
        free_.push_back(&item);
    }

  private:
    std::deque<T> store_;
    std::vector<T*> free_;
    uint64_t serial_ = 0;
};

// A reference to a slab's object; null once the object was released.
template <class T>
class Weak {
  public:
    Weak() = default;
    explicit Weak(T& item) : item_(&item), serial_(item.serial) {}
    T* get() const { return item_ != nullptr && item_->serial == serial_ ? item_ : nullptr; }

  private:
    T* item_ = nullptr;
    uint64_t serial_ = 0;
};

// Bits 0 .. n-1; up to 64 bits need no allocation.
class ChunkSet {
  public:
    void reset(uint32_t bits, bool value = false) {
        bits_ = bits;
        low_ = 0;
        small_ = 0;
        if (bits > 64) large_.assign((bits + 63) / 64, 0);
        if (!value) return;
        for (uint32_t w = 0; w < words(); ++w) data()[w] = ~uint64_t{0};
        if (bits % 64 != 0) data()[words() - 1] = (uint64_t{1} << (bits % 64)) - 1;
    }
    bool test(uint32_t i) const { return (data()[i / 64] >> (i % 64) & 1) != 0; }
    void set(uint32_t i) {
        data()[i / 64] |= uint64_t{1} << (i % 64);
        if (i / 64 < low_) low_ = i / 64;
    }
    void clear(uint32_t i) { data()[i / 64] &= ~(uint64_t{1} << (i % 64)); }
    // The lowest bit that is set, or `none`. Amortised O(1): low_ skips words without bits.
    static constexpr uint32_t none = ~uint32_t{0};
    uint32_t first() const {
        for (; low_ < words(); ++low_)
            if (data()[low_] != 0) return low_ * 64 + static_cast<uint32_t>(std::countr_zero(data()[low_]));
        return none;
    }
    bool any() const { return first() != none; }
    uint32_t words() const { return (bits_ + 63) / 64; }
    uint64_t word(uint32_t w) const { return data()[w]; }
    std::span<const uint64_t> all_words() const { return {data(), words()}; }
    void set_word(uint32_t w, uint64_t value) {
        data()[w] = value;
        if (w < low_) low_ = w;
    }

  private:
    uint64_t* data() { return bits_ > 64 ? large_.data() : &small_; }
    const uint64_t* data() const { return bits_ > 64 ? large_.data() : &small_; }

    uint32_t bits_ = 0;
    mutable uint32_t low_ = 0;  // no word below it has a bit
    uint64_t small_ = 0;
    std::vector<uint64_t> large_;
};

}  // namespace nexar::link
