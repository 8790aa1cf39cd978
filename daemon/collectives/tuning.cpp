#include "collectives/tuning.hpp"

#include <algorithm>
#include <charconv>

namespace nexar::collectives {
namespace {

Result<uint32_t> doubling_from(std::string_view digits) {
    uint32_t value = 0;
    const char* const end = digits.data() + digits.size();
    const auto read = std::from_chars(digits.data(), end, value);
    if (read.ec == std::errc{} && read.ptr == end && value > 0 && value <= doubling_bytes_most) return value;
    return fail(Errc::invalid_argument, std::string(doubling_name) + " is '" +
                                            std::string(digits.substr(0, 80)) + "'; allowed: 1 to " +
                                            std::to_string(doubling_bytes_most));
}

}  // namespace

std::string text_of(const Tuning& tuning) {
    std::string out = text_of(tuning.model);
    if (tuning.doubling_bytes_max > 0)
        out += std::string(doubling_name) + " = " + std::to_string(tuning.doubling_bytes_max) + "\n";
    return out;
}

Result<Tuning> tuning_from(std::string_view text) {
    const std::string key = std::string(doubling_name) + " = ";
    Tuning out;
    std::string of_model;
    while (!text.empty()) {
        const std::string_view line = text.substr(0, std::min(text.find('\n'), text.size() - 1) + 1);
        text.remove_prefix(line.size());
        if (!line.starts_with(key)) {
            of_model += line;
            continue;
        }
        if (out.doubling_bytes_max != 0)
            return fail(Errc::invalid_argument,
                        std::string(doubling_name) + " is there twice; allowed: once");
        NEXAR_TRY(out.doubling_bytes_max,
                  doubling_from(line.substr(key.size(), line.find('\n') - key.size())));
    }
    NEXAR_TRY(out.model, model_from(of_model));
    return out;
}

}  // namespace nexar::collectives
