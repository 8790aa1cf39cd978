#include "core/secret.hpp"

#include <string.h>

namespace nexar {

void wipe(MutableBytes bytes) {
    if (!bytes.empty()) explicit_bzero(bytes.data(), bytes.size());
}

void wipe(std::string& text) {
    text.resize(text.capacity());
    wipe(std::as_writable_bytes(std::span(text)));
    text.clear();
}

Secret::Secret(std::string_view text) : bytes_(new char[text.size()]), size_(text.size()) {
    text.copy(bytes_.get(), size_);
}

Secret Secret::take(std::string text) {
    Secret out(text);
    nexar::wipe(text);
    return out;
}

void Secret::wipe() {
    nexar::wipe(std::as_writable_bytes(std::span(bytes_.get(), size_)));
}

}  // namespace nexar
