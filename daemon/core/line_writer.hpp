// Writes lines to a descriptor from a thread of its own, so that a reader that has stopped (a log collector,
// a terminal) delays nobody who logs. Bounded: what does not fit is dropped and counted.
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

namespace nexar {

class LineWriter {
  public:
    static constexpr size_t bytes_max = 1u << 20;

    explicit LineWriter(int fd);  // not closed here
    ~LineWriter();                // waits for the reader as flush() does, then drops the rest
    LineWriter(const LineWriter&) = delete;
    LineWriter& operator=(const LineWriter&) = delete;

    void push(std::string_view line);
    // How many lines were dropped since the last call; 0 while there is still no room to say so.
    uint64_t take_dropped();
    void flush();  // until all is written, at most flush_patience

  private:
    static constexpr std::chrono::milliseconds flush_patience{1000};
    void run();
    void write_out(std::string_view bytes);

    int fd_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::string waiting_;
    bool writing_ = false;  // the thread has taken some of it
    uint64_t dropped_ = 0;
    std::atomic<bool> stopping_{false};
    std::thread thread_;
};

}  // namespace nexar
