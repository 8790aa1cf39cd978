// See newcomers.hpp.
#include "local/newcomers.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace nexar::local {

namespace {
constexpr Duration place_pause{10'000'000};
}

bool Newcomers::add(Time now, Newcomer& one, size_t of_user_max) {
    if (waiting(*one.tenant) >= of_user_max) {
        if (!is_at_pace(*one.tenant, now)) pace_.take(one.tenant->number, now);
        return false;
    }
    rows_[one.tenant->number].waiting.push_back(std::move(one));
    ++count_;
    return true;
}

void Newcomers::ask(Time now, size_t of_user_max, const Question& has_begun) {
    for (auto at = rows_.begin(); at != rows_.end();) {
        auto& [tenant, row] = *at;
        for (size_t i = 0; i < of_user_max && !row.waiting.empty() && now >= row.again; ++i) {
            if (pace_.next(tenant, now) > now) break;
            if (!has_begun(row.waiting.front())) {
                row.again = now + place_pause;
                break;
            }
            pace_.take(tenant, now);
            row.waiting.pop_front();
            --count_;
        }
        at = row.waiting.empty() ? rows_.erase(at) : std::next(at);
    }
}

std::vector<Newcomer> Newcomers::take_all() {
    std::vector<Newcomer> out;
    for (auto& [tenant, row] : std::exchange(rows_, {}))
        std::ranges::move(row.waiting, std::back_inserter(out));
    count_ = 0;
    return out;
}

Time Newcomers::next() const {
    Time out = never;
    for (const auto& [tenant, row] : rows_)
        out = std::min(out, std::max(row.again, pace_.next(tenant, Time{})));
    return out;
}

size_t Newcomers::waiting(const Tenant& user) const {
    const auto row = rows_.find(user.number);
    return row == rows_.end() ? 0 : row->second.waiting.size();
}

}  // namespace nexar::local
