// The configuration file. What loads is printed and loads again as the same.
#include <cstdlib>

#include "config/config.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace nexar::config;
    const auto config = load({"fuzz.toml", std::string(reinterpret_cast<const char*>(data), size), {}, {}});
    if (!config) return config.error().text.empty() ? (std::abort(), 1) : 0;
    const std::string text = to_toml(*config);
    const auto again = load({"again.toml", text, {}, {}});
    if (!again || to_toml(*again) != text) std::abort();
    return 0;
}
