// Questions: what nexarctl asks, until it is answered: users in turns, so that who asks much waits for
// himself [N17].
//
// Thread: the control loop's.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "control/facade.hpp"
#include "core/tenant.hpp"
#include "core/time.hpp"

namespace nexar::node {

struct Question {
    std::string command, arguments;
    std::optional<TenantName> own;         // of a status socket: whose it is
    uint32_t uid = 0;                      // of the caller
    std::weak_ptr<const void> connection;  // expired: nobody waits for the answer
    control::Answer answer;
    Time until{};  // other nodes' answers are waited for so long
};

class Questions {
  public:
    void add(Question question);
    bool has(const std::string& command) const;
    // Of the user whose turn it is the first that `is_due` accepts; none: no user has one.
    template <class F>
    std::optional<Question> take(F is_due);
    // The earliest `until`; never: nothing waits.
    Time next() const;
    bool empty() const { return by_user_.empty(); }

  private:
    void forget_unwanted();
    // A status socket's users come before the admin socket's.
    using User = std::pair<std::optional<TenantName>, uint32_t>;
    std::map<User, std::deque<Question>> by_user_;  // at most one of each connection
    std::optional<User> last_;                      // whose turn it was
};

template <class F>
std::optional<Question> Questions::take(F is_due) {
    forget_unwanted();
    auto user = last_ ? by_user_.upper_bound(*last_) : by_user_.begin();
    for (size_t n = by_user_.size(); n > 0; --n, ++user) {
        if (user == by_user_.end()) user = by_user_.begin();
        std::deque<Question>& waiting = user->second;
        for (auto at = waiting.begin(); at != waiting.end(); ++at) {
            if (!is_due(*at)) continue;
            Question out = std::move(*at);
            waiting.erase(at);
            last_ = user->first;
            if (waiting.empty()) by_user_.erase(user);
            return out;
        }
    }
    return std::nullopt;
}

}  // namespace nexar::node
