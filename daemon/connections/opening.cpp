#include "connections/opening.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <utility>

namespace nexar::connections {

std::array<std::byte, sizeof(Preamble)> to_bytes(const Preamble& preamble) {
    std::array<std::byte, sizeof(Preamble)> out;
    std::memcpy(out.data(), &preamble, sizeof preamble);
    return out;
}

namespace {

Result<void> check(const Preamble& p) {
    if (p.magic != Preamble::magic_value)
        return fail(Errc::protocol_error, "the connection does not begin with a nexar/2 preamble");
    if (p.bytes < sizeof p || p.bytes > preamble_bytes_max)
        return fail(Errc::protocol_error, "a preamble of " + std::to_string(p.bytes) +
                                              " bytes; allowed are " + std::to_string(sizeof p) + " to " +
                                              std::to_string(preamble_bytes_max));
    if (p.purpose > Purpose::bulk)
        return fail(Errc::protocol_error, "a preamble of purpose " +
                                              std::to_string(static_cast<unsigned>(p.purpose)) +
                                              "; allowed are 0 (control) and 1 (bulk)");
    return {};
}

}  // namespace

Result<void> Opening::on_bytes(Class cls, Bytes bytes) {
    if (cls == Class::control && !switched_) return on_control(bytes);
    early_bytes_ += bytes.size();
    if (early_bytes_ > early_bytes_max)
        return fail(Errc::protocol_error,
                    "the peer sends data before it is accepted; allowed are 32 MiB of it");
    auto& early = early_[index_of(cls)];
    early.insert(early.end(), bytes.begin(), bytes.end());
    return {};
}

Result<void> Opening::on_control(Bytes bytes) {
    head_.insert(head_.end(), bytes.begin(), bytes.end());
    while (!switched_) {
        const size_t before = head_.size();
        NEXAR_TRY_VOID(read_head());
        if (head_.size() == before) return {};
    }
    const auto rest = std::exchange(head_, {});
    return rest.empty() ? Result<void>{} : on_bytes(Class::control, rest);
}

// Takes one preamble, greeting or switch off the front, if it is there as a whole.
Result<void> Opening::read_head() {
    const auto drop = [this](size_t n) {
        head_.erase(head_.begin(), head_.begin() + static_cast<ptrdiff_t>(n));
    };
    if (!preamble_) {
        constexpr size_t fixed_bytes = offsetof(Preamble, generation);
        if (head_.size() < fixed_bytes) return {};
        Preamble p;
        std::memcpy(static_cast<void*>(&p), head_.data(), std::min(head_.size(), sizeof p));
        NEXAR_TRY_VOID(check(p));
        if (head_.size() < p.bytes) return {};
        if (p.capabilities.version_min > p.capabilities.version_max)
            return fail(Errc::protocol_error,
                        "a preamble with the versions " + p.capabilities.versions() + ", the lowest first");
        preamble_ = p;
        drop(p.bytes);
        return {};
    }
    if (head_.size() < sizeof(uint32_t)) return {};
    uint32_t bytes = 0;
    std::memcpy(&bytes, head_.data(), sizeof bytes);
    if (bytes > greeting_bytes_max)
        return fail(Errc::protocol_error, "a greeting of " + std::to_string(bytes) + " bytes; allowed are " +
                                              std::to_string(greeting_bytes_max));
    if (greetings_.size() >= greetings_max)
        return fail(Errc::protocol_error, "more than " + std::to_string(greetings_max) +
                                              " greetings that this node has had no time to read");
    if (bytes != 0 && head_.size() < sizeof bytes + bytes) return {};
    if (bytes == 0)
        switched_ = true;
    else
        greetings_.emplace_back(head_.begin() + sizeof bytes,
                                head_.begin() + static_cast<ptrdiff_t>(sizeof bytes + bytes));
    drop(sizeof bytes + bytes);
    return {};
}

std::optional<std::vector<std::byte>> Opening::poll_greeting() {
    if (greetings_.empty()) return std::nullopt;
    auto front = std::move(greetings_.front());
    greetings_.pop_front();
    return front;
}

std::vector<std::byte> Opening::take(Class cls) {
    auto out = std::exchange(early_[index_of(cls)], {});
    early_bytes_ -= out.size();
    return out;
}

}  // namespace nexar::connections
