// The calls of include/nexar.h that the benchmarks make, in one form for every version of that header: 0.1
// ends an operation's arguments with timeout_ms, later ones with options. So one program measures builds of
// different versions, each compiled against its own header.
#pragma once

#include <cstdint>

#include "nexar.h"

namespace calls {

#if NEXAR_VERSION_MAJOR == 0 && NEXAR_VERSION_MINOR < 2

inline constexpr int64_t defaults = -1;
#define NEXAR_BENCH_START(request) request

inline nexar_status alloc(nexar_session* session, uint64_t bytes, void** out) {
    return nexar_alloc(session, bytes, out);
}
inline nexar_status recv(nexar_group* group, void* data, uint64_t bytes, uint32_t from, uint64_t tag) {
    return nexar_recv(group, data, bytes, NEXAR_U8, from, tag, defaults, nullptr);
}
inline nexar_status wait(nexar_request request) {
    return nexar_wait(request, -1, nullptr);
}

#else

inline constexpr const nexar_op_options* defaults = nullptr;
#define NEXAR_BENCH_START(request) defaults, request

inline nexar_status alloc(nexar_session* session, uint64_t bytes, void** out) {
    return nexar_alloc(session, bytes, nullptr, out);
}
inline nexar_status recv(nexar_group* group, void* data, uint64_t bytes, uint32_t from, uint64_t tag) {
    return nexar_recv(group, data, bytes, NEXAR_U8, from, tag, nullptr, defaults);
}
inline nexar_status wait(nexar_request request) {
    return nexar_request_wait(request, NEXAR_TIMEOUT_NONE, nullptr);
}

#endif

// Sums of f32.
inline nexar_status all_reduce(nexar_group* group, const void* in, void* out, uint64_t count) {
    return nexar_all_reduce(group, in, out, count, NEXAR_F32, NEXAR_SUM, defaults);
}
inline nexar_status barrier(nexar_group* group) {
    return nexar_barrier(group, defaults);
}
inline nexar_status broadcast(nexar_group* group, void* data, uint64_t bytes, uint32_t root) {
    return nexar_broadcast(group, data, bytes, NEXAR_U8, root, defaults);
}
inline nexar_status send(nexar_group* group, const void* data, uint64_t bytes, uint32_t to, uint64_t tag) {
    return nexar_send(group, data, bytes, NEXAR_U8, to, tag, defaults);
}
inline nexar_status send_start(nexar_group* group, const void* data, uint64_t bytes, uint32_t to,
                               uint64_t tag, nexar_request* request) {
    return nexar_send_start(group, data, bytes, NEXAR_U8, to, tag, NEXAR_BENCH_START(request));
}
inline nexar_status recv_start(nexar_group* group, void* data, uint64_t bytes, uint32_t from, uint64_t tag,
                               nexar_request* request) {
    return nexar_recv_start(group, data, bytes, NEXAR_U8, from, tag, NEXAR_BENCH_START(request));
}
// Waits for its end, and gives its slot back.
inline nexar_status finish(nexar_request request) {
    const nexar_status status = wait(request);
    const nexar_status freed = nexar_request_free(request);
    return status != NEXAR_OK ? status : freed;
}

}  // namespace calls
