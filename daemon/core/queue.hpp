// Queue: first in, first out, in one array that is kept while it is small. std::deque takes and returns
// memory with every large element; events go through several of these for each message.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace nexar {

template <class T>
class Queue {
  public:
    bool empty() const { return first_ == items_.size(); }
    size_t size() const { return items_.size() - first_; }

    void push_back(T item) {
        make_room();
        items_.push_back(std::move(item));
    }
    T& emplace_back() {
        make_room();
        return items_.emplace_back();
    }
    // Requires: it is not empty.
    T& front() { return items_[first_]; }
    T& back() { return items_.back(); }
    // The first one is moved from. Requires: it is not empty.
    T pop_front() {
        T out = std::move(items_[first_++]);
        if (empty()) clear();
        return out;
    }

    template <class Predicate>
    void erase_if(const Predicate& gone) {
        const auto begin = items_.begin() + static_cast<std::ptrdiff_t>(first_);
        items_.erase(std::remove_if(begin, items_.end(), gone), items_.end());
        if (empty()) clear();
    }

    size_t kept_bytes() const { return items_.capacity() * sizeof(T); }
    static constexpr size_t kept_bytes_max = 64 << 10;  // of an empty one

  private:
    // What was popped is in front. It is overwritten when it is most of the array, so each element is moved
    // once in the mean.
    void make_room() {
        if (first_ < 32 || first_ < items_.size() / 2) return;
        items_.erase(items_.begin(), items_.begin() + static_cast<std::ptrdiff_t>(first_));
        first_ = 0;
    }
    void clear() {
        items_.clear();
        first_ = 0;
        if (items_.capacity() > kept_bytes_max / sizeof(T)) items_.shrink_to_fit();
    }

    std::vector<T> items_;
    size_t first_ = 0;  // in items_
};

}  // namespace nexar
