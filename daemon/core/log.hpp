// Named events with typed fields (docs/glossary.md: noun_verb in the past): log.info("peer_suspected",
// field("peer", id), field("silent_ms", 612)) prints `peer_suspected peer=3f… silent_ms=612`. Names are
// stable, so that scripts can search for them; a field's name ends in its unit. The sink is the caller's: the
// daemon's is writers/stderr_log.hpp. Passed by reference, never global. Thread: the sink's.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/ids.hpp"
#include "core/result.hpp"
#include "core/time.hpp"

namespace nexar {

enum class Level : uint8_t { debug, info, warn, error };

struct Field {
    std::string_view key;
    std::string value;
};

inline Field field(std::string_view key, std::string_view value) {
    return {key, std::string(value)};
}
inline Field field(std::string_view key, const std::string& value) {
    return {key, value};
}
inline Field field(std::string_view key, const char* value) {
    return {key, value};
}
inline Field field(std::string_view key, bool value) {
    return {key, value ? "true" : "false"};
}
inline Field field(std::string_view key, const NodeId& value) {
    return {key, value.short_hex()};
}
inline Field field(std::string_view key, const GroupId& value) {
    return {key, value.text()};
}
inline Field field(std::string_view key, Errc value) {
    return {key, std::string(name_of(value))};
}
template <class T>
    requires(std::is_arithmetic_v<T> && !std::is_same_v<T, bool>)
Field field(std::string_view key, T value) {
    return {key, std::to_string(value)};
}
template <class Tag, class Int>
Field field(std::string_view key, Id<Tag, Int> id) {
    return {key, std::to_string(id.value)};
}

class Tenant;

class Log {
  public:
    // Receives every line. Tests capture lines; the simulator fails a run on `error`.
    using Sink = std::function<void(Level, const std::string& line)>;

    explicit Log(Sink sink, Level threshold = Level::info);
    Log(const Log&) = delete;
    Log& operator=(const Log&) = delete;

    void debug(std::string_view event, std::initializer_list<Field> fields = {}) {
        write(Level::debug, event, std::span(fields.begin(), fields.size()));
    }
    void info(std::string_view event, std::initializer_list<Field> fields = {}) {
        write(Level::info, event, std::span(fields.begin(), fields.size()));
    }
    void warn(std::string_view event, std::initializer_list<Field> fields = {}) {
        write(Level::warn, event, std::span(fields.begin(), fields.size()));
    }
    void error(std::string_view event, std::initializer_list<Field> fields = {}) {
        write(Level::error, event, std::span(fields.begin(), fields.size()));
    }

    // A line that a tenant's actions cause: beyond its lines of this second it is left out, and counted for
    // that tenant only [N11]. No tenant: as any other line. Thread: the control loop's.
    void info(Tenant* tenant, Time now, std::string_view event, std::initializer_list<Field> fields) {
        write_of(tenant, now, Level::info, event, std::span(fields.begin(), fields.size()));
    }
    void warn(Tenant* tenant, Time now, std::string_view event, std::initializer_list<Field> fields) {
        write_of(tenant, now, Level::warn, event, std::span(fields.begin(), fields.size()));
    }

    // Logs an event that a dry machine has collected.
    void note(Level level, std::string_view event,
              const std::vector<std::pair<std::string, std::string>>& fields);

    bool enabled(Level level) const { return level >= threshold_; }

  private:
    void write(Level level, std::string_view event, std::span<const Field> fields);
    void write_of(Tenant* tenant, Time now, Level level, std::string_view event,
                  std::span<const Field> fields);

    Sink sink_;        // receives each line
    Level threshold_;  // less severe events are not written
};

}  // namespace nexar
