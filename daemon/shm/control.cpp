#include "shm/control.hpp"

#include "local_protocol.h"

namespace nexar::shm {

Result<ControlView> ControlView::over(MutableBytes memory, uint32_t slots) {
    if (!nexar_shm_slots_valid(slots))
        return fail(Errc::invalid_argument,
                    "slots is " + std::to_string(slots) + "; allowed: a power of two from " +
                        std::to_string(NEXAR_SHM_SLOTS_MIN) + " to " + std::to_string(NEXAR_SHM_SLOTS_MAX));
    if (memory.size() < nexar_shm_control_bytes(slots))
        return fail(Errc::invalid_argument, "a control segment of " + std::to_string(slots) +
                                                " slots needs " +
                                                std::to_string(nexar_shm_control_bytes(slots)) +
                                                " bytes, not " + std::to_string(memory.size()));
    if (reinterpret_cast<uintptr_t>(memory.data()) % 64 != 0)
        return fail(Errc::invalid_argument, "a control segment begins at a multiple of 64 bytes");
    return ControlView(memory.data(), slots);
}

void ControlView::initialise() {
    header().magic = NEXAR_SHM_MAGIC;
    header().version = NEXAR_LOCAL_VERSION;
    header().slots = slots_;
    header().bytes = nexar_shm_control_bytes(slots_);
    header().messages_begun = header().messages_sent = 1;
}

}  // namespace nexar::shm
