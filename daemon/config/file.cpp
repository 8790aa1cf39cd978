#include "config/file.hpp"

#include <cerrno>
#include <cstring>
#include <fstream>

namespace nexar::config {

namespace {
constexpr size_t file_bytes_max = 1 << 20;
}  // namespace

Result<std::optional<std::string>> read_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file && errno == ENOENT) return std::nullopt;
    if (!file) return fail(Errc::io, "cannot read " + path + ": " + std::strerror(errno));
    std::string text(file_bytes_max + 1, '\0');
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    if (file.bad()) return fail(Errc::io, "cannot read " + path + "; it must be a regular file");
    text.resize(static_cast<size_t>(file.gcount()));
    if (text.size() > file_bytes_max)
        return fail(Errc::bad_config, path + " is longer than 1 MiB; a configuration file is shorter");
    return text;
}

}  // namespace nexar::config
