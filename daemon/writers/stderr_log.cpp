#include "writers/stderr_log.hpp"

#include <spdlog/details/null_mutex.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <mutex>

#include "core/event_limit.hpp"
#include "writers/line_writer.hpp"

namespace nexar::writers {
namespace {

spdlog::level::level_enum spd_level(Level level) {
    switch (level) {
        case Level::debug:
            return spdlog::level::debug;
        case Level::info:
            return spdlog::level::info;
        case Level::warn:
            return spdlog::level::warn;
        case Level::error:
            return spdlog::level::err;
    }
    return spdlog::level::err;
}

class WriterSink final : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
  public:
    LineWriter& writer() { return writer_; }

  private:
    void sink_it_(const spdlog::details::log_msg& message) override {
        spdlog::memory_buf_t line;
        formatter_->format(message, line);
        writer_.push({line.data(), line.size()});
    }
    void flush_() override {}

    LineWriter writer_{STDERR_FILENO};
};

// From an event to stderr: the limit per event, the pattern, and the writer. Logging never waits for the
// reader: the writer drops lines that find no room, EventLimit leaves out lines over its limit, and both are
// counted in a line of their own.
class StderrLog {
  public:
    StderrLog()
        : journal_(std::getenv("JOURNAL_STREAM") != nullptr),
          sink_(std::make_shared<WriterSink>()),
          logger_("nexard", sink_) {
        logger_.set_level(spdlog::level::debug);
        // The journal adds time and unit by itself; it reads the priority from a <N> prefix.
        logger_.set_pattern(journal_ ? "%v" : "%Y-%m-%dT%H:%M:%S.%e %L %v");
    }
    ~StderrLog() { report(Time(std::chrono::steady_clock::now().time_since_epoch())); }
    StderrLog(const StderrLog&) = delete;
    StderrLog& operator=(const StderrLog&) = delete;

    void write(Level level, const std::string& line) {
        const std::lock_guard lock(mutex_);
        const Time now(std::chrono::steady_clock::now().time_since_epoch());
        report(now);
        // Debug lines are unlimited: they exist only when the operator asked for all of them.
        if (level == Level::debug || limit_.allows(line.substr(0, line.find(' ')), now)) put(level, line);
    }

  private:
    void put(Level level, const std::string& line) {
        static constexpr const char* priority[] = {"<7>", "<6>", "<4>", "<3>"};
        if (journal_)
            logger_.log(spd_level(level), "{}{}", priority[static_cast<int>(level)], line);
        else
            logger_.log(spd_level(level), "{}", line);
    }
    void report(Time now) {
        while (const auto left_out = limit_.poll(now))
            put(Level::warn,
                "log_lines_left_out event=" + left_out->event + " count=" + std::to_string(left_out->lines));
        if (const uint64_t dropped = sink_->writer().take_dropped())
            put(Level::warn, "log_lines_dropped count=" + std::to_string(dropped));
    }

    std::mutex mutex_;
    bool journal_;
    EventLimit limit_;
    std::shared_ptr<WriterSink> sink_;
    spdlog::logger logger_;
};

}  // namespace

std::unique_ptr<Log> log_to_stderr(Level threshold) {
    const auto to = std::make_shared<StderrLog>();
    return std::make_unique<Log>([to](Level level, const std::string& line) { to->write(level, line); },
                                 threshold);
}

}  // namespace nexar::writers
