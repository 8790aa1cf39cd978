// See user_sockets.hpp.
#include "local/user_sockets.hpp"

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace nexar::local {

namespace {

Error cannot_watch() {
    return {Errc::no_memory,
            std::string("the session's descriptors cannot be watched: ") + std::strerror(errno),
            -1,
            -1,
            {}};
}

}  // namespace

Result<UserSockets::Added> UserSockets::add(uint64_t user, int fd, uint64_t key) {
    const auto known = rows_.find(user);
    Row fresh;
    if (known == rows_.end()) fresh.epoll.reset(::epoll_create1(EPOLL_CLOEXEC));
    Row& row = known == rows_.end() ? fresh : known->second;
    epoll_event event{};
    event.events = EPOLLIN | EPOLLRDHUP | EPOLLET;
    event.data.u64 = key;
    if (!row.epoll || ::epoll_ctl(row.epoll.get(), EPOLL_CTL_ADD, fd, &event) != 0)
        return fail(cannot_watch());
    ++row.descriptors;
    const Added out{row.epoll.get(), known == rows_.end()};
    if (out.first) rows_.emplace(user, std::move(fresh));
    return out;
}

loop::Fd UserSockets::remove(uint64_t user, int fd) {
    const auto row = rows_.find(user);
    if (row == rows_.end()) return {};
    ::epoll_ctl(row->second.epoll.get(), EPOLL_CTL_DEL, fd, nullptr);
    if (--row->second.descriptors > 0) return {};
    loop::Fd out = std::move(row->second.epoll);
    rows_.erase(row);
    return out;
}

std::span<UserSockets::Ready> UserSockets::ready(uint64_t user, std::span<Ready> out) {
    const auto row = rows_.find(user);
    if (row == rows_.end()) return {};
    std::array<epoll_event, 64> events;
    const auto most = static_cast<int>(std::min(out.size(), events.size()));
    const int n = ::epoll_wait(row->second.epoll.get(), events.data(), most, 0);
    const size_t count = static_cast<size_t>(std::max(n, 0));
    for (size_t i = 0; i < count; ++i) out[i] = {events[i].data.u64, (events[i].events & ~EPOLLIN) != 0};
    return out.first(count);
}

}  // namespace nexar::local
