// Turn: one thread at a time is inside collectives of a group (a rule of nexar.h), because the order of two
// threads could differ between ranks.
#pragma once

#include <utility>

#include "core/operations.hpp"
#include "group.hpp"

namespace nexar::c {

class Turn {
  public:
    Turn() = default;  // none is needed
    // Takes the turn, if the kind is a collective; check() says whether it was free.
    Turn(Group& group, uint8_t kind) {
        if (!is_collective(kind)) return;
        taken_ = !group.in_collective.exchange(true, std::memory_order_acquire);
        if (taken_) group_ = &group;
    }
    ~Turn() {
        if (group_) group_->in_collective.store(false, std::memory_order_release);
    }
    Turn(Turn&& other) noexcept : group_(std::exchange(other.group_, nullptr)), taken_(other.taken_) {}
    Turn& operator=(Turn&&) = delete;
    // False: there is none. The caller gives it back.
    bool give_away() { return std::exchange(group_, nullptr) != nullptr; }
    Result<void> check() const {
        if (taken_) return {};
        return fail(Errc::bad_state,
                    "another thread is inside a collective of this group: their order would differ between "
                    "ranks; use "
                    "a lock, or a group per thread (nexar_group_dup)");
    }

  private:
    Group* group_ = nullptr;
    bool taken_ = true;
};

}  // namespace nexar::c
