// See unreturned.hpp.
#include "local/unreturned.hpp"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

namespace nexar::local {

void Unreturned::add(Question question) {
    if (!question()) {
        ++count_;
        const std::lock_guard lock(mutex_);
        waiting_.push_back(std::move(question));
    }
    ask(2);
}

void Unreturned::look() {
    gone_.look();
    ask(asked_at_once);
}

// Without the lock: the end of what is held may add something here.
void Unreturned::ask(size_t count) {
    std::vector<Question> some;
    {
        const std::lock_guard lock(mutex_);
        for (count = std::min(count, waiting_.size()); count > 0; --count) {
            some.push_back(std::move(waiting_.front()));
            waiting_.pop_front();
        }
    }
    count_ -= std::erase_if(some, [](Question& question) { return question(); });
    const std::lock_guard lock(mutex_);
    std::ranges::move(some, std::back_inserter(waiting_));
}

}  // namespace nexar::local
