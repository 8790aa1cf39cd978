#include "transport/opening.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace nexar::transport {

std::array<std::byte, sizeof(Preamble)> to_bytes(const Preamble& preamble) {
    std::array<std::byte, sizeof(Preamble)> out;
    std::memcpy(out.data(), &preamble, sizeof preamble);
    return out;
}

Result<void> Opening::on_bytes(link::Class cls, Bytes bytes) {
    if (cls == link::Class::control && !preamble_) {
        const size_t n = std::min(bytes.size(), sizeof(Preamble) - head_.size());
        head_.insert(head_.end(), bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(n));
        bytes = bytes.subspan(n);
        if (head_.size() < sizeof(Preamble)) return {};
        Preamble p;
        std::memcpy(static_cast<void*>(&p), head_.data(), sizeof p);
        if (p.magic != Preamble::magic_value || p.version != 1 || p.purpose > Purpose::bulk)
            return fail(Errc::protocol_error, "the connection does not begin with a nexar preamble of version 1");
        preamble_ = p;
    }
    early_bytes_ += bytes.size();
    if (early_bytes_ > early_bytes_max)
        return fail(Errc::protocol_error, "the peer sends data but no preamble; allowed are 32 MiB before it");
    auto& early = early_[static_cast<size_t>(cls)];
    early.insert(early.end(), bytes.begin(), bytes.end());
    return {};
}

std::vector<std::byte> Opening::take(link::Class cls) {
    auto out = std::exchange(early_[static_cast<size_t>(cls)], {});
    early_bytes_ -= out.size();
    return out;
}

}  // namespace nexar::transport
