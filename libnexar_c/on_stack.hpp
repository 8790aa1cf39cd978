// OnStack: a list that allocates memory only when it is longer than `room`.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

namespace nexar::c {

template <class T, size_t room>
class OnStack {
  public:
    // Requires: at most `capacity` elements are pushed.
    explicit OnStack(size_t capacity) {
        if (capacity > room) long_.resize(capacity);
    }
    void push_back(const T& value) { data()[size_++] = value; }
    size_t size() const { return size_; }
    bool empty() const { return size_ == 0; }
    T* data() { return long_.empty() ? short_.data() : long_.data(); }
    T& operator[](size_t i) { return data()[i]; }
    T* begin() { return data(); }
    T* end() { return data() + size_; }

  private:
    std::array<T, room> short_;
    std::vector<T> long_;
    size_t size_ = 0;
};

}  // namespace nexar::c
