// A view of a control segment (proto/shm_layout.h) over plain bytes: a memfd in the daemon and the library,
// an array in tests and in the simulator. It computes addresses and owns nothing.
#pragma once

#include <span>

#include "core/bytes.hpp"
#include "core/result.hpp"
#include "shm_layout.h"

namespace nexar::shm {

class ControlView {
  public:
    // `memory` is at least nexar_shm_control_bytes(slots), 64-byte aligned, and outlives the view.
    static Result<ControlView> over(MutableBytes memory, uint32_t slots);

    // Requires: memory that is all zeros. The client calls it once.
    void initialise();

    uint32_t slots() const { return slots_; }
    nexar_shm_header& header() const { return *at<nexar_shm_header>(0); }
    // `slot` is below slots(): the caller has checked.
    nexar_shm_slot& slot(uint32_t slot) const { return at<nexar_shm_slot>(nexar_shm_slots_offset())[slot]; }
    nexar_shm_payload& payload(uint32_t slot) const {
        return at<nexar_shm_payload>(nexar_shm_payloads_offset(slots_))[slot];
    }
    nexar_shm_detail& detail(uint32_t slot) const {
        return at<nexar_shm_detail>(nexar_shm_details_offset(slots_))[slot];
    }
    std::span<uint64_t> submission() const {
        return {at<uint64_t>(nexar_shm_submission_offset(slots_)), nexar_shm_submission_entries(slots_)};
    }
    std::span<uint64_t> completion() const {
        return {at<uint64_t>(nexar_shm_completion_offset(slots_)), slots_};
    }

  private:
    ControlView(std::byte* base, uint32_t slots) : base_(base), slots_(slots) {}
    template <class T>
    T* at(uint64_t offset) const {
        return reinterpret_cast<T*>(base_ + offset);
    }

    std::byte* base_;  // of the segment, 64-byte aligned
    uint32_t slots_;   // a power of two
};

}  // namespace nexar::shm
