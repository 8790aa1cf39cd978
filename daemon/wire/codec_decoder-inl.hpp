// What keeps the first complaint about a message. Reads after it go on harmlessly, and the message is thrown
// away at the end. A part of codec.cpp, which includes it inside its namespace.
#pragma once

class Decoder {
  public:
    bool ok() const { return !complaint_; }
    const std::string& complaint() const { return *complaint_; }
    void complain(std::string text) {
        if (!complaint_) complaint_ = std::move(text);
    }

    void limit(const char* field, uint64_t value, uint64_t max) {
        if (value > max)
            complain(std::string(field) + " is " + std::to_string(value) + ", allowed is at most " +
                     std::to_string(max));
    }
    void range(const char* field, int64_t value, int64_t least, int64_t max) {
        if (value < least || value > max)
            complain(std::string(field) + " is " + std::to_string(value) + ", allowed is " +
                     std::to_string(least) + " to " + std::to_string(max));
    }
    template <size_t N>
    void fixed(const char* field, capnp::Data::Reader data, std::array<uint8_t, N>& out) {
        if (data.size() == N)
            std::copy(data.begin(), data.end(), out.begin());
        else
            complain(std::string(field) + " has " + std::to_string(data.size()) + " bytes, not " +
                     std::to_string(N));
    }
    std::string text(const char* field, capnp::Text::Reader text, size_t bytes_max) {
        limit(field, text.size(), bytes_max);
        if (!ok()) return {};
        std::string out(text.begin(), text.size());
        if (!is_clean_text(out)) complain(std::string(field) + " is not UTF-8 without control characters");
        return out;
    }
    // The code of what ends an operation, a message or a group: a failure that a client may be given.
    void failure(const char* what, Errc code) {
        if (code >= Errc::ok || code <= Errc::io)
            complain(std::string(what) + " with code " + std::string(name_of(code)) +
                     ", allowed are failures that a client may be given");
    }
    void milliseconds(int64_t value, int64_t least) {
        if (value < least || value > timeout_ms_max)
            complain("a time-out is " + std::to_string(value) + " ms, allowed is " + std::to_string(least) +
                     " to " + std::to_string(timeout_ms_max));
    }

  private:
    std::optional<std::string> complaint_;
};
