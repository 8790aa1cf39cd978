#include "nexarctl/line_writer.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace nexarctl {

LineWriter LineWriter::prefixed(std::string prefix) {
    return LineWriter([prefix = std::move(prefix)](const std::string& line) { return prefix + line + "\n"; });
}

LineWriter LineWriter::json(uint32_t rank, std::string stream) {
    return LineWriter([rank, stream = std::move(stream)](const std::string& line) {
        using Json = nlohmann::ordered_json;
        const Json object = {{"rank", rank}, {"stream", stream}, {"line", line}};
        return object.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
    });
}

std::string LineWriter::add(std::string_view bytes) {
    std::string out;
    while (!bytes.empty()) {
        const size_t end = bytes.find('\n');
        const size_t room = line_bytes_max - line_.size();
        const size_t take = std::min(std::min(end, bytes.size()), room);
        line_ += bytes.substr(0, take);
        bytes.remove_prefix(take);
        if (!bytes.empty() && bytes[0] == '\n') {
            bytes.remove_prefix(1);
            out += shape_(line_);
            line_.clear();
        } else if (line_.size() == line_bytes_max) {
            out += shape_(line_);
            line_.clear();
        }
    }
    return out;
}

std::string LineWriter::end() {
    if (line_.empty()) return {};
    std::string out = shape_(line_);
    line_.clear();
    return out;
}

}  // namespace nexarctl
