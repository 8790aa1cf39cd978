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
        for (size_t& bytes : kept.bytes) bytes = 0;
        for (Block*& first : kept.first)
            while (first != nullptr) ::operator delete(std::exchange(first, first->next));
    }
    bool is_here = true;
};
thread_local Sweeper sweeper;

}  // namespace

void* take_new(size_t shelf) {
    void* const memory = ::operator new(bytes_min << shelf);
    kept.out[shelf] += bytes_min << shelf;
    return memory;
}

void give_away(void* memory, size_t shelf) noexcept {
    const size_t size = bytes_min << shelf;
    const bool keeps = !kept.is_over && has_room(shelf) && sweeper.is_here;
    if (kept.out[shelf] >= size) kept.out[shelf] -= size;
    if (!keeps) return ::operator delete(memory);
    kept.first[shelf] = ::new (memory) Block{kept.first[shelf]};
    kept.bytes[shelf] += size;
}

}  // namespace nexar::recycled
