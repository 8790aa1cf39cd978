// See gone.hpp.
#include "local/gone.hpp"

#include <sys/inotify.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>

namespace nexar::local {

namespace {

std::string proc(const char* folder, int fd) {
    return std::string("/proc/self/") + folder + "/" + std::to_string(fd);
}

}  // namespace

// Source: proc(5), /proc/pid/fdinfo: first a line "pos:\t0", then "inotify wd:1 ino:..." for each, in
// hexadecimal. The kernel makes it at once, so it may have no memory for it.
std::optional<std::set<int>> watched_in(std::istream& fdinfo) {
    std::set<int> out;
    bool begun = false;
    for (std::string line; std::getline(fdinfo, line);) {
        unsigned number = 0;
        begun = begun || line.starts_with("pos:");
        if (std::sscanf(line.c_str(), "inotify wd:%x", &number) == 1) out.insert(static_cast<int>(number));
    }
    if (!begun || fdinfo.bad()) return {};
    return out;
}

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

// The control loop takes the lock, so nothing is read with it.
std::vector<Gone::Held> Gone::take_gone() {
    std::vector<int> gone;
    alignas(inotify_event) char events[16384];
    ssize_t bytes = 0;
    while ((bytes = ::read(events_.get(), events, sizeof events)) > 0)
        for (const char* at = events; at < events + bytes; at += sizeof(inotify_event)) {
            inotify_event event;
            std::memcpy(&event, at, sizeof event);
            if ((event.mask & IN_Q_OVERFLOW) != 0) overflown_ = true;
            gone.push_back(event.wd);
        }
    if (overflown_.exchange(false)) add_unwatched(gone);
    std::vector<Held> out;
    const std::lock_guard lock(mutex_);
    for (const int number : gone) {
        const auto at = held_.find(number);
        if (at == held_.end()) continue;
        out.push_back(std::move(at->second));
        held_.erase(at);
    }
    return out;
}

// Of those that are kept before the kernel is asked: who keeps one has had it watched before.
void Gone::add_unwatched(std::vector<int>& gone) {
    std::vector<int> kept;
    {
        const std::lock_guard lock(mutex_);
        for (const auto& [number, held] : held_) kept.push_back(number);
    }
    std::ifstream fdinfo(proc("fdinfo", events_.get()));
    const auto watched = watched_in(fdinfo);
    if (!watched) overflown_ = true;  // the next look tries again
    if (!watched) return;
    for (const int number : kept)
        if (!watched->contains(number)) gone.push_back(number);
}

}  // namespace nexar::local
