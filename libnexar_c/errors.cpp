// See errors.hpp.
#include "errors.hpp"

#include <algorithm>
#include <cstring>

namespace nexar::c {

namespace {

constexpr nexar_error no_error = NEXAR_ERROR_INIT;
thread_local nexar_error last = no_error;

template <size_t size>
void put(char (&to)[size], std::string_view text) {
    const size_t n = std::min(size - 1, text.size());
    std::memcpy(to, text.data(), n);
    std::memset(to + n, 0, size - n);
}

template <size_t size>
std::string_view text_of(const char (&from)[size]) {
    return {from, strnlen(from, size)};
}

void append_origin(std::string& line, const nexar_error& e) {
    const std::string_view host = text_of(e.host), node = text_of(e.node);
    if (e.rank >= 0) line += " rank " + std::to_string(e.rank);
    if (!host.empty())
        line.append(" on ").append(host);
    else if (!node.empty())
        line.append(" on node ").append(node.substr(0, 8));
    if (e.pid != 0) line += " (pid " + std::to_string(e.pid) + ")";
    // After them: the host and the process are the first one's only.
    if (e.other_rank >= 0)
        line.append(e.rank >= 0 ? ", and" : "").append(" rank ").append(std::to_string(e.other_rank));
    if (e.rank >= 0 || e.other_rank >= 0 || !host.empty() || !node.empty()) line += ":";
}

}  // namespace

nexar_status failed(const ErrorContext& context, const Error& error) {
    last = no_error;
    last.code = static_cast<nexar_status>(error.code);
    last.error_class = status_class(last.code);
    last.system_errno = error.system_errno;
    last.rank = error.rank;
    last.other_rank = error.other_rank;
    last.sequence = context.sequence;
    last.epoch = context.epoch;
    last.pid = error.pid;
    last.lost_count = static_cast<uint32_t>(error.lost_ranks.size());
    std::copy_n(error.lost_ranks.begin(), std::min<size_t>(last.lost_count, NEXAR_ERROR_RANKS),
                last.lost_ranks);
    put(last.op, context.op);
    if (context.group) put(last.group, *context.group);
    put(last.node, error.node);
    put(last.host, error.host);
    put(last.text, error.text);
    return last.code;
}

nexar_status failed(const ErrorContext& context, Errc code, std::string text) {
    return failed(context, Error{code, std::move(text), -1, -1, {}});
}

Error error_from(nexar_status code, const nexar_shm_detail& detail) {
    Error out;
    out.code = static_cast<Errc>(code);
    out.rank = detail.rank;
    out.other_rank = detail.other_rank;
    out.pid = detail.pid;
    out.system_errno = detail.system_errno;
    out.text.assign(detail.text, std::min<size_t>(detail.text_bytes, sizeof detail.text));
    out.host = text_of(detail.host);
    if (detail.has_node) {
        char text[NEXAR_NODE_TEXT];
        node_text(detail.node, text);
        out.node = text;
    }
    // The detail lists some of the ranks; the length keeps their number.
    const uint32_t lost = std::min<uint32_t>(detail.lost_count, NEXAR_SHM_GROUP_RANKS_MAX);
    out.lost_ranks.assign(detail.lost_ranks,
                          detail.lost_ranks + std::min<uint32_t>(lost, NEXAR_SHM_LOST_RANKS));
    out.lost_ranks.resize(lost);
    return out;
}

const nexar_error& last_error() {
    return last;
}

std::string error_line(const nexar_error& e) {
    if (e.code == NEXAR_OK) return "no error";
    std::string line(text_of(e.op));
    if (e.sequence != NEXAR_NO_SEQUENCE) line += " " + std::to_string(e.sequence);
    if (const auto group = text_of(e.group); !group.empty()) {
        line.append(" of group \"").append(group).append("\"");
        if (e.epoch != 0) line += " (epoch " + std::to_string(e.epoch) + ")";
    }
    line.append(line.empty() ? "" : ": ").append(status_name(e.code)).append(":");
    append_origin(line, e);
    line.append(" ").append(text_of(e.text));
    if (e.system_errno != 0) line += " (errno " + std::to_string(e.system_errno) + ")";
    // Names come from other processes and may have newlines.
    std::ranges::replace_if(line, [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
    return line;
}

const char* status_name(nexar_status status) {
    const auto code = static_cast<Errc>(status);
    // The daemon's internal codes have no name in the ABI.
    return status <= NEXAR_ERR_SYSTEM - 100 ? "UNKNOWN" : name_of(code).data();  // literals: zero-ended
}

int32_t status_class(nexar_status status) {
    return status < 0 ? -(status / 100) : NEXAR_CLASS_NONE;
}

void node_text(const uint8_t node[32], char* out) {
    for (int i = 0; i < 32; ++i) {
        out[2 * i] = "0123456789abcdef"[node[i] >> 4];
        out[2 * i + 1] = "0123456789abcdef"[node[i] & 15];
    }
    out[64] = 0;
}

}  // namespace nexar::c
