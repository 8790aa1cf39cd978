// Limits the log lines of one event per second: clients that connect and leave by the thousand must not fill
// the disk or keep the daemon busy with logging. Lines that are left out are counted. Dry: the caller passes
// the time. Thread: one at a time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "core/line_limit.hpp"
#include "core/time.hpp"

namespace nexar {

class EventLimit {
  public:
    static constexpr uint64_t lines_per_second = 200;

    // False: the caller leaves this line out.
    bool allows(std::string_view event, Time now);
    struct LeftOut {
        std::string event;
        uint64_t lines = 0;
    };
    // The count of one event's left-out lines, once their second has ended; nothing: no such count.
    std::optional<LeftOut> poll(Time now);

  private:
    // Bounded: the source has finitely many events.
    std::map<std::string, LineLimit, std::less<>> limits_by_event_;
    size_t unreported_ = 0;  // events with left-out lines that poll() has not returned
};

}  // namespace nexar
