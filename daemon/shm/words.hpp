// Atomic access to the plain words of proto/shm_layout.h. The other process may be hostile: each word that it
// may write is read through these functions, once, into a local variable.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>

namespace nexar::shm {

template <class T>
T load_relaxed(T& word) {
    return std::atomic_ref<T>(word).load(std::memory_order_relaxed);
}
template <class T>
T load_acquire(T& word) {
    return std::atomic_ref<T>(word).load(std::memory_order_acquire);
}
template <class T>
void store_relaxed(T& word, T value) {
    std::atomic_ref<T>(word).store(value, std::memory_order_relaxed);
}
template <class T>
void store_release(T& word, T value) {
    std::atomic_ref<T>(word).store(value, std::memory_order_release);
}
template <class T>
T add(T& word, T value) {
    return std::atomic_ref<T>(word).fetch_add(value, std::memory_order_relaxed);
}

// The store-load barrier of [S5] and [S7].
inline void fence() {
    std::atomic_thread_fence(std::memory_order_seq_cst);
}

// Copies a structure that the other process may be writing, reading each word exactly once [S3].
template <class T>
T copy_once(T& shared) {
    static_assert(sizeof(T) % 8 == 0 && alignof(T) <= 8);
    T out;
    auto* from = reinterpret_cast<uint64_t*>(&shared);
    auto* to = reinterpret_cast<unsigned char*>(&out);
    for (size_t i = 0; i < sizeof(T) / 8; ++i) {
        const uint64_t word = load_relaxed(from[i]);
        std::memcpy(to + 8 * i, &word, 8);
    }
    return out;
}

// Stores a structure that the other process may be reading; the reader uses it only after DONE.
template <class T>
void store_words(T& shared, const T& value) {
    static_assert(sizeof(T) % 8 == 0 && alignof(T) <= 8);
    auto* to = reinterpret_cast<uint64_t*>(&shared);
    auto* from = reinterpret_cast<const unsigned char*>(&value);
    for (size_t i = 0; i < sizeof(T) / 8; ++i) {
        uint64_t word;
        std::memcpy(&word, from + 8 * i, 8);
        store_relaxed(to[i], word);
    }
}

}  // namespace nexar::shm
