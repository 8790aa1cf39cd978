#include "core/log.hpp"

#include "core/controls.hpp"
#include "core/tenant.hpp"

namespace nexar {
namespace {

// Values with spaces or quotes are quoted, so that a line splits into words unambiguously. Control characters
// (names come from clients) are escaped: one event is always one line.
void append_value(std::string& line, std::string_view value) {
    const bool plain = value.find_first_of(" \"=\\\t\r\n") == std::string_view::npos && !value.empty();
    if (!plain) line += '"';
    size_t control = 0;  // bytes of a control character that are left
    for (size_t i = 0; i < value.size(); ++i) {
        const auto u = static_cast<unsigned char>(value[i]);
        if (control == 0) control = control_at(value.substr(i));
        if (control > 0) {
            static constexpr char digits[] = "0123456789abcdef";
            line += "\\x";
            line += digits[u >> 4];
            line += digits[u & 15];
            --control;
            continue;
        }
        if (value[i] == '"' || value[i] == '\\') line += '\\';
        line += value[i];
    }
    if (!plain) line += '"';
}

}  // namespace

Log::Log(Sink sink, Level threshold) : sink_(std::move(sink)), threshold_(threshold) {}

void Log::note(Level level, std::string_view event,
               const std::vector<std::pair<std::string, std::string>>& fields) {
    std::vector<Field> out;
    for (const auto& [key, value] : fields) out.push_back({key, value});
    write(level, event, out);
}

void Log::write_of(Tenant* tenant, Time now, Level level, std::string_view event,
                   std::span<const Field> fields) {
    if (!enabled(level)) return;
    if (tenant != nullptr) {
        if (const uint64_t count = tenant->lines.take_left_out(now))
            warn("log_lines_left_out", {field("tenant", tenant->name.text()), field("count", count)});
        if (!tenant->lines.allows(now)) return;
    }
    write(level, event, fields);
}

void Log::write(Level level, std::string_view event, std::span<const Field> fields) {
    if (!enabled(level)) return;
    std::string line(event);
    for (const Field& f : fields) {
        line += ' ';
        line += f.key;
        line += '=';
        append_value(line, f.value);
    }
    sink_(level, line);
}

}  // namespace nexar
