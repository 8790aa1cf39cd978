// What quic_bench and raw_ngtcp2 ask of each of their two threads.
#pragma once

#include <sched.h>
#include <time.h>

#include <cstdio>
#include <cstdlib>

namespace bench {

inline double cpu_seconds() {
    timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

// With PIN in the environment the thread stays on this processor; without, the kernel often runs both on one.
inline void pin(int processor) {
    if (std::getenv("PIN") == nullptr) return;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(static_cast<size_t>(processor), &set);
    if (sched_setaffinity(0, sizeof set, &set) == 0) return;
    std::perror("bench: PIN wants processors 0 and 1");
    std::exit(EXIT_FAILURE);
}

}  // namespace bench
