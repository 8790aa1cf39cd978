// SharedList: a list that does not change, and that its copies share: what each of a group's ranks here gets
// about all of them would otherwise take the square of their number. A value.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

namespace nexar {

template <class T>
class SharedList {
  public:
    SharedList() = default;
    SharedList(std::vector<T> list) : list_(std::make_shared<const std::vector<T>>(std::move(list))) {}
    SharedList(std::initializer_list<T> list) : SharedList(std::vector<T>(list)) {}

    size_t size() const { return list_ ? list_->size() : 0; }
    bool empty() const { return size() == 0; }
    const T& operator[](size_t i) const { return (*list_)[i]; }
    const T* begin() const { return list_ ? list_->data() : nullptr; }
    const T* end() const { return begin() + size(); }
    const T& front() const { return (*this)[0]; }
    const T& back() const { return (*this)[size() - 1]; }
    friend bool operator==(const SharedList& a, const std::vector<T>& b) {
        return a.list_ ? *a.list_ == b : b.empty();
    }

  private:
    std::shared_ptr<const std::vector<T>> list_;  // null: empty
};

}  // namespace nexar
