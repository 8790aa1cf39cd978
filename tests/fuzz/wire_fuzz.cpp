// Control messages from other nodes: what decodes is encoded and decoded again, and is the same.
#include <cstdlib>

#include "wire/codec.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace nexar;
    const auto message = wire::decode(std::as_bytes(std::span(data, size)));
    if (!message) return 0;
    const auto bytes = wire::encode(*message);
    const auto again = wire::decode(bytes);
    if (!again || wire::encode(*again) != bytes) std::abort();
    return 0;
}
