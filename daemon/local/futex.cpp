// See futex.hpp.
#include "local/futex.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace nexar::local {

int futex_wake(uint32_t* word, int most) {
    return static_cast<int>(::syscall(SYS_futex, word, FUTEX_WAKE, most, nullptr, nullptr, 0));
}

}  // namespace nexar::local
