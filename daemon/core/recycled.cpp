#include "core/recycled.hpp"

#include <utility>

namespace nexar::recycled {

thread_local constinit Kept kept{};

namespace {

// Returns what the thread has kept when it ends. Apart from `kept`, which so needs no look at whether it
// exists.
struct Sweeper {
    ~Sweeper() {
        kept.is_over = true;
        kept.bytes = 0;
        for (Block*& first : kept.first)
            while (first != nullptr) ::operator delete(std::exchange(first, first->next));
    }
    bool is_here = true;
};
thread_local Sweeper sweeper;

}  // namespace

void* take_new(size_t shelf) {
    return ::operator new(bytes_min << shelf);
}

void give_away(void* memory, size_t shelf) noexcept {
    const size_t size = bytes_min << shelf;
    if (kept.is_over || kept.bytes + size > kept_bytes_max || !sweeper.is_here)
        return ::operator delete(memory);
    kept.first[shelf] = ::new (memory) Block{kept.first[shelf]};
    kept.bytes += size;
}

}  // namespace nexar::recycled
