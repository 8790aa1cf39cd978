#include "nexarctl/line_writer.hpp"

#include <algorithm>

namespace nexarctl {

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
            out += prefix_ + line_ + "\n";
            line_.clear();
        } else if (line_.size() == line_bytes_max) {
            out += prefix_ + line_ + "\n";
            line_.clear();
        }
    }
    return out;
}

std::string LineWriter::end() {
    if (line_.empty()) return {};
    std::string out = prefix_ + line_ + "\n";
    line_.clear();
    return out;
}

}  // namespace nexarctl
