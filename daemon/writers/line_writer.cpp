#include "writers/line_writer.hpp"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <utility>

#include "loop/quiet_thread.hpp"

namespace nexar::writers {
namespace {

constexpr int poll_ms = 50;  // how soon the thread notices `stopping_` while its reader takes nothing

}  // namespace

LineWriter::LineWriter(int fd) : fd_(fd), thread_(loop::quiet_thread([this] { run(); })) {}

LineWriter::~LineWriter() {
    flush();
    stopping_ = true;
    {
        const std::lock_guard lock(mutex_);
        waiting_.clear();
    }
    news_.notify();
    thread_.join();
}

void LineWriter::push(std::string_view line) {
    {
        const std::lock_guard lock(mutex_);
        if (waiting_.size() + line.size() > bytes_max) {
            ++dropped_;
            return;
        }
        waiting_ += line;
    }
    news_.notify();
}

uint64_t LineWriter::take_dropped() {
    const std::lock_guard lock(mutex_);
    return waiting_.size() > bytes_max / 2 ? 0 : std::exchange(dropped_, 0);
}

void LineWriter::flush() {
    std::unique_lock lock(mutex_);
    written_.wait_for(lock, flush_patience, [this] { return waiting_.empty() && !writing_; });
}

void LineWriter::run() {
    while (true) {
        wait_for_news();
        std::unique_lock lock(mutex_);
        if (waiting_.empty() && stopping_) return;
        if (waiting_.empty()) continue;
        const std::string bytes = std::exchange(waiting_, {});
        writing_ = true;
        lock.unlock();
        write_out(bytes);
        lock.lock();
        writing_ = false;
        written_.notify_all();
    }
}

void LineWriter::wait_for_news() {
    const auto has_news = [this] {
        const std::lock_guard lock(mutex_);
        return stopping_ || !waiting_.empty();
    };
    if (has_news()) return;
    news_.announce_sleep();
    if (!has_news()) news_.sleep();
    news_.awake();
}

// A pipe that poll() calls writable takes PIPE_BUF bytes without waiting.
void LineWriter::write_out(std::string_view bytes) {
    while (!bytes.empty() && !stopping_) {
        pollfd one{fd_, POLLOUT, 0};
        if (::poll(&one, 1, poll_ms) <= 0) continue;
        const ssize_t n = ::write(fd_, bytes.data(), std::min<size_t>(bytes.size(), PIPE_BUF));
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
        if (n < 0) return;  // the descriptor has no reader any more
        bytes.remove_prefix(static_cast<size_t>(n));
    }
}

}  // namespace nexar::writers
