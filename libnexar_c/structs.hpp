// The structs of include/nexar.h between programs and libraries of different versions: options are read up to
// the fields that both have, results are written up to the caller's size.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

#include "core/result.hpp"

namespace nexar::c {

// Fields have at most 8 bytes, at multiples of their size, so that no accepted size ends inside a field.
constexpr uint32_t struct_bytes_min = 8, struct_bytes_max = 4096, struct_bytes_step = 8;

Result<void> check_struct_size(uint32_t size, const char* type);
// Fields that this library does not know must be zero, which means the behaviour without them.
Result<void> check_unknown_fields(const void* given, uint32_t size, uint32_t known, const char* type);

// NULL: the defaults.
template <class T>
Result<T> read_options(const T* given, T defaults, const char* type) {
    static_assert(sizeof(T) % struct_bytes_step == 0 && alignof(T) == struct_bytes_step);
    if (!given) return defaults;
    const uint32_t size = given->struct_size;
    NEXAR_TRY_VOID(check_struct_size(size, type));
    NEXAR_TRY_VOID(check_unknown_fields(given, size, sizeof(T), type));
    std::memcpy(static_cast<void*>(&defaults), given, std::min<size_t>(size, sizeof defaults));
    return defaults;
}

template <class T>
void init_options(T* options, uint64_t size, T defaults) {
    if (!options || size < struct_bytes_min) return;
    std::memset(static_cast<void*>(options), 0, size);
    std::memcpy(static_cast<void*>(options), &defaults, std::min<size_t>(size, sizeof defaults));
    options->struct_size = static_cast<uint32_t>(size);
}

// Checks an out struct before the call has any effect. NULL is allowed.
template <class T>
Result<void> check_result(const T* out, const char* type) {
    return out ? check_struct_size(out->struct_size, type) : Result<void>{};
}

// Writes at most `size` bytes; fields that this library does not know become zero.
template <class T>
void write_result(T* out, T value, uint32_t size) {
    if (!out) return;
    value.struct_size = size;
    if (size > sizeof value)
        std::memset(reinterpret_cast<std::byte*>(out) + sizeof value, 0, size - sizeof value);
    std::memcpy(static_cast<void*>(out), &value, std::min<size_t>(size, sizeof value));
}

}  // namespace nexar::c
