// See gone.hpp.
#include "local/gone.hpp"

#include <sys/inotify.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <optional>
#include <set>
#include <string>
#include <utility>

namespace nexar::local {

namespace {

std::string proc(const char* folder, int fd) {
    return std::string("/proc/self/") + folder + "/" + std::to_string(fd);
}

// Source: proc(5), /proc/pid/fdinfo: a line "inotify wd:1 ino:..." for each, in hexadecimal. None: it cannot
// be read now (no descriptor is left).
std::optional<std::set<int>> watched_by(int events) {
    std::set<int> out;
    std::ifstream lines(proc("fdinfo", events));
    if (!lines) return {};
    for (std::string line; std::getline(lines, line);) {
        unsigned number = 0;
        if (std::sscanf(line.c_str(), "inotify wd:%x", &number) == 1) out.insert(static_cast<int>(number));
    }
    return out;
}

}  // namespace

Gone::Gone() : events_(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK)) {}

Result<int> Gone::watch(int file) {
    const int number =
        events_ ? ::inotify_add_watch(events_.get(), proc("fd", file).c_str(), IN_DELETE_SELF) : -1;
    if (number >= 0) return number;
    return fail(Errc::unsupported, std::string("a file cannot be watched: ") + std::strerror(errno));
}

void Gone::keep(int number, Held held) {
    const std::lock_guard lock(mutex_);
    held_[number] = std::move(held);
}

bool Gone::empty() const {
    const std::lock_guard lock(mutex_);
    return held_.empty();
}

void Gone::look() {
    take_gone();  // what it returns ends without the lock
}

std::vector<Gone::Held> Gone::take_gone() {
    std::vector<Held> out;
    const std::lock_guard lock(mutex_);
    const auto release = [&](std::map<int, Held>::iterator at) {
        out.push_back(std::move(at->second));
        return held_.erase(at);
    };
    alignas(inotify_event) char events[16384];
    ssize_t bytes = 0;
    while ((bytes = ::read(events_.get(), events, sizeof events)) > 0)
        for (const char* at = events; at < events + bytes; at += sizeof(inotify_event)) {
            inotify_event event;
            std::memcpy(&event, at, sizeof event);
            overflown_ |= (event.mask & IN_Q_OVERFLOW) != 0;
            if (const auto gone = held_.find(event.wd); gone != held_.end()) release(gone);
        }
    if (!overflown_) return out;
    const auto watched = watched_by(events_.get());
    if (!watched) return out;  // the next look tries again
    overflown_ = false;
    for (auto at = held_.begin(); at != held_.end();)
        at = watched->contains(at->first) ? std::next(at) : release(at);
    return out;
}

}  // namespace nexar::local
