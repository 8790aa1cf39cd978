// A control segment in plain memory.
#pragma once

#include <span>
#include <vector>

#include "shm/control.hpp"

namespace nexar::test {

class ControlMemory {
  public:
    explicit ControlMemory(uint32_t slots) : slots_(slots), lines_(nexar_shm_control_bytes(slots) / 64) {
        view().initialise();
    }
    shm::ControlView view() {
        return *shm::ControlView::over({reinterpret_cast<std::byte*>(lines_.data()), lines_.size() * 64},
                                       slots_);
    }
    std::span<uint64_t> words() { return {lines_[0].words, lines_.size() * 8}; }

  private:
    struct alignas(64) Line {
        uint64_t words[8] = {};
    };
    uint32_t slots_;
    std::vector<Line> lines_;
};

}  // namespace nexar::test
