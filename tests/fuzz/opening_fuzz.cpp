// A connection's first bytes: preamble, greetings, switch. The input is a sequence of pieces: a byte for the
// class, two for the length, the bytes.
#include <cstdlib>

#include "connections/opening.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace nexar;
    connections::Opening opening;
    Reader in(std::as_bytes(std::span(data, size)));
    size_t greeted = 0, taken = 0;
    while (in.left() > 3) {
        const auto cls = static_cast<Class>(in.get<uint8_t>() % class_count);
        const size_t length = in.get<uint16_t>();
        if (!opening.on_bytes(cls, in.take(std::min(length, in.left())))) break;
        if (length % 2 == 0)
            while (auto greeting = opening.poll_greeting()) greeted += greeting->size();
    }
    while (auto greeting = opening.poll_greeting()) greeted += greeting->size();
    for (size_t cls = 0; cls < class_count; ++cls) taken += opening.take(static_cast<Class>(cls)).size();
    if (greeted + taken > size || (greeted > 0 && !opening.preamble())) std::abort();
    return 0;
}
