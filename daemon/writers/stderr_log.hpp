// The daemon's log on stderr, by spdlog; with <N> priority prefixes when stderr is the journal. Lines of one
// event are limited per second (core/event_limit.hpp), and a thread of its own writes them: a reader that has
// stopped never delays the daemon. What was left out or dropped is counted in a line of its own.
#pragma once

#include <memory>

#include "core/log.hpp"

namespace nexar::writers {

// Thread: any, as for every Log. At its end the lines are written that the reader takes within a second.
std::unique_ptr<Log> log_to_stderr(Level threshold);

}  // namespace nexar::writers
