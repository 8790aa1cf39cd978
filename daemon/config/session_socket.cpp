#include "config/session_socket.hpp"

#include <algorithm>
#include <charconv>
#include <set>

namespace nexar::config {
namespace {

constexpr size_t path_bytes_max = 107, name_bytes_max = 64;  // sun_path's capacity; of a label, user or group

std::vector<std::string_view> split(std::string_view text, char separator) {
    std::vector<std::string_view> out;
    while (!text.empty()) {
        const size_t end = std::min(text.find(separator), text.size());
        if (end > 0) out.push_back(text.substr(0, end));
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return out;
}

bool is_name(std::string_view text) {
    return !text.empty() && text.size() <= name_bytes_max && std::ranges::all_of(text, [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
               c == '_' || c == '-';
    });
}

bool is_path(std::string_view text) {
    return text.starts_with('/') && text.size() <= path_bytes_max;
}

bool read_mode(std::string_view text, unsigned& mode) {
    const auto r = std::from_chars(text.data(), text.data() + text.size(), mode, 8);
    return r.ec == std::errc{} && r.ptr == text.data() + text.size() && mode >= 0600 && mode <= 0777;
}

bool set_word(SessionSocket& socket, std::string_view word) {
    const size_t at = word.find('=');
    if (at == std::string_view::npos) return false;
    const std::string_view name = word.substr(0, at), value = word.substr(at + 1);
    if (name == "mode") return read_mode(value, socket.mode);
    if (name == "status") {
        socket.status = value;
        return is_path(value);
    }
    if (!is_name(value)) return false;
    if (name == "label") socket.label = value;
    if (name == "owner") socket.owner = value;
    if (name == "group") socket.group = value;
    return name == "label" || name == "owner" || name == "group";
}

std::optional<SessionSocket> socket_from(std::string_view text) {
    const auto words = split(text, ' ');
    if (words.empty() || !is_path(words[0])) return {};
    SessionSocket out;
    out.path = words[0];
    for (size_t i = 1; i < words.size(); ++i)
        if (!set_word(out, words[i])) return {};
    if (out.label.empty()) return {};
    return out;
}

}  // namespace

std::optional<std::vector<SessionSocket>> session_sockets_from(std::string_view text) {
    std::vector<SessionSocket> out;
    std::set<std::string> paths;
    for (const std::string_view part : split(text, ',')) {
        auto socket = socket_from(part);
        if (!socket || !paths.insert(socket->path).second) return {};
        if (!socket->status.empty() && !paths.insert(socket->status).second) return {};
        out.push_back(std::move(*socket));
    }
    return out;
}

std::string text_of(const std::vector<SessionSocket>& sockets) {
    std::string out;
    for (const SessionSocket& s : sockets) {
        char mode[8];
        const auto end = std::to_chars(mode, mode + sizeof mode, s.mode, 8).ptr;
        out += (out.empty() ? "" : ",") + s.path + " label=" + s.label;
        if (!s.owner.empty()) out += " owner=" + s.owner;
        if (!s.group.empty()) out += " group=" + s.group;
        out += " mode=0" + std::string(mode, end);
        if (!s.status.empty()) out += " status=" + s.status;
    }
    return out;
}

}  // namespace nexar::config
