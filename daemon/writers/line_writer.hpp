// Writes lines to a descriptor from its own thread, so that a reader that has stopped (a log collector, a
// terminal) never delays the threads that log. Bounded: a line that does not fit is dropped and counted.
//
// Thread: any.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "loop/wakeup.hpp"

namespace nexar::writers {

class LineWriter {
  public:
    static constexpr size_t bytes_max = 1u << 20;

    explicit LineWriter(int fd);  // not closed here
    ~LineWriter();                // waits as flush() does, then drops the rest
    LineWriter(const LineWriter&) = delete;
    LineWriter& operator=(const LineWriter&) = delete;

    void push(std::string_view line);
    // How many lines were dropped since the last call; 0 while a line that reports them would not fit either.
    uint64_t take_dropped();
    void flush();  // until all is written, at most flush_patience

  private:
    static constexpr std::chrono::milliseconds flush_patience{1000};
    void run();
    void wait_for_news();
    void write_out(std::string_view bytes);

    int fd_;                             // the reader's end is elsewhere; the caller closes it
    std::mutex mutex_;                   // guards waiting_, writing_ and dropped_
    std::condition_variable written_;    // for flush()
    loop::Wakeup news_;                  // the thread's: waiting_ or stopping_ has changed
    std::string waiting_;                // pushed and not taken by the thread yet
    bool writing_ = false;               // the thread writes bytes that it took from waiting_
    uint64_t dropped_ = 0;               // lines, since take_dropped() returned them
    std::atomic<bool> stopping_{false};  // the destructor runs: the thread returns when waiting_ is empty
    std::thread thread_;
};

}  // namespace nexar::writers
