// See secret_file.hpp.
#include "nexarctl/secret_file.hpp"

#include <sys/stat.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <string_view>

namespace nexarctl {
namespace {

constexpr size_t secret_bytes_min = 16, secret_bytes_max = 128;  // NEXAR_NAME_MAX

}  // namespace

nexar::Result<std::string> read_secret(const std::string& path) {
    const auto bad = [&](const std::string& why) {
        return nexar::fail(nexar::Errc::invalid_argument, path + ": " + why);
    };
    std::ifstream file(path, std::ios::binary);
    if (!file) return bad("the secret cannot be read; check the path and its permissions");
    struct stat status{};
    if (::stat(path.c_str(), &status) == 0 && (status.st_mode & 077) != 0)
        std::fprintf(stderr, "nexarctl: others can read %s; chmod 600 it\n", path.c_str());
    std::string secret(secret_bytes_max + 2, '\0');
    file.read(secret.data(), static_cast<std::streamsize>(secret.size()));
    secret.resize(static_cast<size_t>(file.gcount()));
    while (!secret.empty() && (secret.back() == '\n' || secret.back() == '\r')) secret.pop_back();
    if (secret.size() < secret_bytes_min || secret.size() > secret_bytes_max ||
        secret.find_first_of(std::string_view("\0\n", 2)) != std::string::npos)
        return bad("a secret is one line of " + std::to_string(secret_bytes_min) + " to " +
                   std::to_string(secret_bytes_max) + " bytes (openssl rand -hex 32 > FILE)");
    return secret;
}

}  // namespace nexarctl
