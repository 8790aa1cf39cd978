// Recycled memory: what comes and goes with every operation takes the memory that an earlier one has
// returned, so that in steady state a start asks the heap for nothing (docs/protocol/shm.md [S25]). Each
// object is a new one: nothing of an earlier operation is in it.
//
// Thread: any. Each keeps what it returns, as far as it has taken as much itself: what it only passes on to
// another thread is the heap's.
#pragma once

#include <bit>
#include <cstddef>
#include <new>
#include <vector>

namespace nexar {

namespace recycled {

constexpr size_t bytes_min = 64, bytes_max = 64 * 1024;  // of a block; larger ones are the heap's
constexpr size_t shelves = std::countr_zero(bytes_max) - std::countr_zero(bytes_min) + 1;
constexpr size_t shelf_bytes_max = 512 * 1024;  // that one thread keeps of one size

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define NEXAR_RECYCLES false
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define NEXAR_RECYCLES false
#endif
#endif
#ifndef NEXAR_RECYCLES
#define NEXAR_RECYCLES true
#endif
// Sanitizers are to see every use of memory that was returned.
constexpr bool is_on = NEXAR_RECYCLES;
#undef NEXAR_RECYCLES

struct Block {
    Block* next;
};
struct Kept {
    Block* first[shelves];  // by size; null: none
    size_t bytes[shelves];  // kept
    size_t out[shelves];    // taken, and not returned, by this thread: it keeps no more than it has taken
    bool is_over;           // the thread ends
};
extern thread_local constinit Kept kept;

constexpr size_t shelf_of(size_t bytes) {
    return bytes <= bytes_min ? 0
                              : static_cast<size_t>(std::bit_width(bytes - 1)) - std::countr_zero(bytes_min);
}

inline bool has_room(size_t shelf) {
    const size_t size = bytes_min << shelf;
    return kept.out[shelf] >= size && kept.bytes[shelf] + size <= shelf_bytes_max;
}

void* take_new(size_t shelf);
void give_away(void* memory, size_t shelf) noexcept;  // its thread has none kept yet, or enough

inline void* take(size_t bytes) {
    if (!is_on || bytes > bytes_max) return ::operator new(bytes);
    const size_t shelf = shelf_of(bytes);
    Block* const block = kept.first[shelf];
    if (block == nullptr) return take_new(shelf);
    kept.first[shelf] = block->next;
    kept.bytes[shelf] -= bytes_min << shelf;
    kept.out[shelf] += bytes_min << shelf;
    return block;
}

// `bytes`: as it was taken.
inline void give(void* memory, size_t bytes) noexcept {
    if (!is_on || bytes > bytes_max) return ::operator delete(memory);
    const size_t shelf = shelf_of(bytes);
    const size_t size = bytes_min << shelf;
    if (kept.bytes[shelf] == 0 || !has_room(shelf)) return give_away(memory, shelf);
    kept.first[shelf] = ::new (memory) Block{kept.first[shelf]};
    kept.bytes[shelf] += size;
    kept.out[shelf] -= size;
}

}  // namespace recycled

// An allocator for the standard containers.
template <class T>
struct Recycled {
    using value_type = T;
    Recycled() = default;
    template <class U>
    Recycled(const Recycled<U>&) {}
    T* allocate(size_t n) {
        static_assert(alignof(T) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__);
        return static_cast<T*>(recycled::take(n * sizeof(T)));
    }
    void deallocate(T* memory, size_t n) noexcept { recycled::give(memory, n * sizeof(T)); }
    template <class U>
    bool operator==(const Recycled<U>&) const {
        return true;
    }
};

// A vector that exists for an operation.
template <class T>
using Vector = std::vector<T, Recycled<T>>;

// A base of classes whose objects come from new. Requires: they are deleted as what they are.
struct RecycledObject {
    static void* operator new(size_t bytes) { return recycled::take(bytes); }
    static void* operator new(size_t, std::align_val_t) = delete;  // the heap's alignment is all there is
    static void operator delete(void* memory, size_t bytes) noexcept { recycled::give(memory, bytes); }
};

}  // namespace nexar
