// See questions.hpp.
#include "node/questions.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace nexar::node {

void Questions::add(Question question) {
    User user(question.own, question.uid);
    by_user_[std::move(user)].push_back(std::move(question));
}

bool Questions::has(const std::string& command) const {
    return std::ranges::any_of(by_user_, [&](const auto& user) {
        return std::ranges::any_of(user.second, [&](const Question& q) { return q.command == command; });
    });
}

void Questions::forget_unwanted() {
    for (auto user = by_user_.begin(); user != by_user_.end();) {
        std::erase_if(user->second, [](const Question& q) { return q.connection.expired(); });
        user = user->second.empty() ? by_user_.erase(user) : std::next(user);
    }
}

Time Questions::next() const {
    Time out = never;
    for (const auto& [user, waiting] : by_user_)
        for (const Question& question : waiting) out = std::min(out, question.until);
    return out;
}

}  // namespace nexar::node
