// Join requests and replies, and the issuer's file of tokens. The first byte chooses.
#include <cstdlib>

#include "admission/token.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace nexar;
    if (size == 0) return 0;
    const Bytes rest = std::as_bytes(std::span(data, size)).subspan(1);
    switch (data[0] % 3) {
        case 0:
            if (const auto request = admission::decode_join_request(rest)) {
                const auto again = admission::decode_join_request(admission::encode(*request));
                if (!again || again->csr != request->csr || again->mac != request->mac) std::abort();
            }
            break;
        case 1:
            if (const auto reply = admission::decode_join_reply(rest)) {
                const auto again = admission::decode_join_reply(admission::encode(*reply));
                if (!again || again->certificate != reply->certificate) std::abort();
            }
            break;
        case 2: {
            const std::string text(reinterpret_cast<const char*>(rest.data()), rest.size());
            if (const auto book = admission::TokenBook::parse(text))
                if (admission::TokenBook::parse(book->text().text()).value().text() != book->text())
                    std::abort();
            break;
        }
    }
    return 0;
}
