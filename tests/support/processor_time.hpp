// What the calling thread has taken of a processor: unlike the clock, it does not grow while others run.
#pragma once

#include <time.h>

#include "core/time.hpp"

namespace nexar::test {

inline Duration processor_time() {
    timespec t{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return std::chrono::seconds(t.tv_sec) + Duration(t.tv_nsec);
}

}  // namespace nexar::test
