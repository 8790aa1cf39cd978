// Unreturned: what clients still have of the daemon's when it has no use for it any more: memory that it
// lent, and connections whose descriptors they did not read. What these hold, and the charges for it, end
// when the clients have given it back [S19]. No event says when, so the daemon asks again and again.
//
// Thread: any.
#pragma once

#include <atomic>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>

#include "local/gone.hpp"

namespace nexar::local {

class Unreturned {
  public:
    // Whether it was given back, and what is held until it was. It does not wait, and adds nothing here.
    using Question = std::move_only_function<bool()>;

    // Asks it, and two of those that wait: so clients that come and go quickly leave few.
    void add(Question question);
    // Asks the next ones. What they hold ends in this thread.
    void look();
    bool empty() const { return count_.load() == 0 && gone_.empty(); }
    // Files of the daemon's own that clients get.
    Gone& gone() { return gone_; }

  private:
    static constexpr size_t asked_at_once = 4096;
    void ask(size_t count);

    std::atomic<size_t> count_{0};  // of those that wait, and those that are asked now
    std::mutex mutex_;
    std::deque<Question> waiting_;
    Gone gone_;
};

}  // namespace nexar::local
