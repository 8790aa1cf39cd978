// See arrivals.hpp.
#include "local/arrivals.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace nexar::local {

void Arrivals::add(Arrival arrival) {
    rows_[arrival.tenant->number].push_back(std::move(arrival));
    ++count_;
}

std::vector<Arrival> Arrivals::take(Time now, size_t of_user_max) {
    std::vector<Arrival> out;
    for (auto row = rows_.begin(); row != rows_.end();) {
        auto& [tenant, waiting] = *row;
        for (size_t i = 0; i < of_user_max && !waiting.empty() && pace_.next(tenant, now) <= now; ++i) {
            pace_.take(tenant, now);
            out.push_back(std::move(waiting.front()));
            waiting.pop_front();
        }
        row = waiting.empty() ? rows_.erase(row) : std::next(row);
    }
    count_ -= out.size();
    return out;
}

std::vector<Arrival> Arrivals::take_all() {
    std::vector<Arrival> out;
    for (auto& [tenant, waiting] : std::exchange(rows_, {}))
        std::ranges::move(waiting, std::back_inserter(out));
    count_ = 0;
    return out;
}

Time Arrivals::next() const {
    Time out = never;
    for (const auto& [tenant, waiting] : rows_) out = std::min(out, pace_.next(tenant, Time{}));
    return out;
}

size_t Arrivals::waiting(uint64_t tenant) const {
    const auto row = rows_.find(tenant);
    return row == rows_.end() ? 0 : row->second.size();
}

}  // namespace nexar::local
