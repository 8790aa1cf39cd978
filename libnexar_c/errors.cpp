#include "errors.hpp"

#include <algorithm>
#include <cstring>

namespace nexar::c {

namespace {

thread_local nexar_error last{};

void put(char* to, size_t size, std::string_view text) {
    const size_t n = std::min(size - 1, text.size());
    std::memcpy(to, text.data(), n);
    std::memset(to + n, 0, size - n);
}

}  // namespace

nexar_status failed(const char* op, const Error& error) {
    last.code = static_cast<nexar_status>(error.code);
    last.error_class = status_class(last.code);
    last.rank = error.rank;
    last.other_rank = error.other_rank;
    put(last.node, sizeof last.node, error.node);
    put(last.op, sizeof last.op, op);
    put(last.text, sizeof last.text, error.text);
    return last.code;
}

nexar_status failed(const char* op, Errc code, std::string text) {
    return failed(op, Error{code, std::move(text), -1, -1, {}});
}

Error error_from(nexar_status code, const nexar_shm_detail& detail) {
    Error out;
    out.code = static_cast<Errc>(code);
    out.rank = detail.rank;
    out.other_rank = detail.other_rank;
    out.text.assign(detail.text, std::min<size_t>(detail.text_bytes, sizeof detail.text));
    if (detail.has_node) {
        char text[NEXAR_NODE_TEXT];
        node_text(detail.node, text);
        out.node = text;
    }
    return out;
}

nexar_status copy_last_error(nexar_error* out) {
    constexpr uint32_t smallest = offsetof(nexar_error, rank);
    if (!out || out->struct_size < smallest) return NEXAR_ERR_INVALID_ARGUMENT;
    const uint32_t size = std::min<uint32_t>(out->struct_size, sizeof last);
    std::memcpy(reinterpret_cast<char*>(out) + sizeof size,
                reinterpret_cast<const char*>(&last) + sizeof size, size - sizeof size);
    return NEXAR_OK;
}

const char* status_name(nexar_status status) {
    return name_of(static_cast<Errc>(status)).data();  // literals: zero-ended
}

int32_t status_class(nexar_status s) {
    if (s >= 0) return NEXAR_CLASS_NONE;
    if (s == NEXAR_ERR_ABORTED) return NEXAR_CLASS_OPERATION;
    if (s > -20) return NEXAR_CLASS_CALL;
    if (s > -30) return NEXAR_CLASS_RETRIABLE;
    if (s > -40) return NEXAR_CLASS_OPERATION;
    if (s > -60) return NEXAR_CLASS_GROUP;
    return NEXAR_CLASS_SESSION;
}

void node_text(const uint8_t node[32], char* out) {
    for (int i = 0; i < 32; ++i) {
        out[2 * i] = "0123456789abcdef"[node[i] >> 4];
        out[2 * i + 1] = "0123456789abcdef"[node[i] & 15];
    }
    out[64] = 0;
}

}  // namespace nexar::c
