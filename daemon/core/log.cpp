#include "core/log.hpp"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdlib>

namespace nexar {
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

// Values with spaces or quotes are quoted, so that a line splits into words unambiguously. Control characters
// (names come from clients) are escaped: one event is always one line.
void append_value(std::string& line, std::string_view value) {
    const bool plain = value.find_first_of(" \"=\\\t\r\n") == std::string_view::npos && !value.empty();
    if (!plain) line += '"';
    for (const char c : value) {
        const auto u = static_cast<unsigned char>(c);
        if (c == '"' || c == '\\') {
            line += '\\';
            line += c;
        } else if (u < 0x20 || u == 0x7f) {
            static constexpr char digits[] = "0123456789abcdef";
            line += "\\x";
            line += digits[u >> 4];
            line += digits[u & 15];
        } else {
            line += c;
        }
    }
    if (!plain) line += '"';
}

}  // namespace

struct Log::Impl {
    std::shared_ptr<spdlog::logger> logger;
};

Log::Log(Sink sink, Level threshold) : sink_(std::move(sink)), threshold_(threshold), impl_(new Impl) {}
Log::~Log() = default;

std::unique_ptr<Log> Log::to_stderr(Level threshold) {
    auto sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
    auto logger = std::make_shared<spdlog::logger>("nexard", sink);
    logger->set_level(spdlog::level::debug);
    logger->flush_on(spdlog::level::debug);
    // The journal adds time and unit by itself; it reads the priority from a <N> prefix.
    const bool journal = std::getenv("JOURNAL_STREAM") != nullptr;
    logger->set_pattern(journal ? "%v" : "%Y-%m-%dT%H:%M:%S.%e %L %v");
    auto log = std::make_unique<Log>(
        [logger, journal](Level level, const std::string& line) {
            static constexpr const char* priority[] = {"<7>", "<6>", "<4>", "<3>"};
            if (journal)
                logger->log(spd_level(level), "{}{}", priority[static_cast<int>(level)], line);
            else
                logger->log(spd_level(level), "{}", line);
        },
        threshold);
    log->impl_->logger = std::move(logger);
    return log;
}

void Log::flush() {
    if (impl_->logger) impl_->logger->flush();
}

void Log::note(Level level, std::string_view event,
               const std::vector<std::pair<std::string, std::string>>& fields) {
    std::vector<Field> out;
    for (const auto& [key, value] : fields) out.push_back({key, value});
    write(level, event, out);
}

void Log::write(Level level, std::string_view event, std::span<const Field> fields) {
    if (!enabled(level)) return;
    std::string line(event);
    for (const Field& f : fields) {
        line += ' ';
        line += f.key;
        line += '=';
        append_value(line, f.value);
    }
    sink_(level, line);
}

}  // namespace nexar
