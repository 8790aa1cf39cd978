// So many log lines of one event a second and no more: clients that come and go by the thousand shall not
// fill the disk, nor keep the daemon busy with writing about them. What is left out is counted. Dry: time is
// handed in. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "core/time.hpp"

namespace nexar {

class EventLimit {
  public:
    static constexpr uint64_t lines_per_second = 200;

    // False: leave this line out.
    bool allows(std::string_view event, Time now);
    struct LeftOut {
        std::string event;
        uint64_t lines = 0;
    };
    // Of a second that is over; nothing else is known about these lines.
    std::optional<LeftOut> poll(Time now);

  private:
    struct Second {
        Time begin{};
        uint64_t lines = 0;
        uint64_t left_out = 0;
    };
    std::map<std::string, Second, std::less<>> seconds_;  // by event: the names in the source are finite
    size_t unreported_ = 0;                               // events with lines that were left out
};

}  // namespace nexar
