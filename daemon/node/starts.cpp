// See starts.hpp.
#include "node/starts.hpp"

#include <algorithm>
#include <charconv>

#include "admission/certificates.hpp"

namespace nexar::node {
namespace {

constexpr const char* incarnation_file = "incarnation";
constexpr const char* reset_secret_file = "reset-secret";
constexpr size_t reset_secret_bytes = 32;

Result<uint64_t> read_counter(const writers::StateDir& state) {
    NEXAR_TRY(const auto content, state.read(incarnation_file));
    if (!content) return 0;
    const std::string_view text = content->text();
    uint64_t counter = 0;
    const auto r = std::from_chars(text.data(), text.data() + text.size(), counter);
    const std::string_view rest(r.ptr, static_cast<size_t>(text.data() + text.size() - r.ptr));
    if (r.ec != std::errc{} || (!rest.empty() && rest != "\n") || counter == UINT64_MAX)
        return fail(Errc::io, state.path() + "/" + incarnation_file +
                                  " is damaged: it must hold one number below 2^64 - 1");
    return counter;
}

Result<Secret> read_reset_secret(const writers::StateDir& state) {
    NEXAR_TRY(auto content, state.read(reset_secret_file));
    if (!content) {
        std::array<uint8_t, reset_secret_bytes> made;
        admission::random_bytes(made);
        Secret out({reinterpret_cast<const char*>(made.data()), made.size()});
        wipe(std::as_writable_bytes(std::span(made)));
        return out;
    }
    if (content->size() != reset_secret_bytes)
        return fail(Errc::io, state.path() + "/" + reset_secret_file +
                                  ": it must hold 32 bytes; without it the next start makes another one");
    return std::move(*content);
}

}  // namespace

Result<Starts> Starts::read(const writers::StateDir& state) {
    Starts out;
    NEXAR_TRY(out.counter_, read_counter(state));
    NEXAR_TRY(out.reset_secret_, read_reset_secret(state));
    return out;
}

Incarnation Starts::next() {
    Incarnation next;
    next.counter = ++counter_;
    admission::random_bytes(std::span(reinterpret_cast<uint8_t*>(&next.nonce), sizeof next.nonce));
    return next;
}

storage::Batch Starts::files() const {
    return {{reset_secret_file, reset_secret_}, {incarnation_file, Secret(std::to_string(counter_) + "\n")}};
}

ResetSecret Starts::reset_secret(uint16_t port) const {
    const std::string label = "nexar-reset " + std::to_string(port);
    const admission::Digest derived =
        admission::hmac_sha256(reset_secret_.bytes(), std::as_bytes(std::span(label)));
    ResetSecret out;
    std::ranges::copy(std::as_bytes(std::span(derived)), out.begin());
    return out;
}

}  // namespace nexar::node
