// A join token's text, from a command line or a file.
#include <cstdlib>

#include "admission/token.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using nexar::admission::Token;
    const auto token = Token::parse({reinterpret_cast<const char*>(data), size});
    if (!token) return 0;
    const auto again = Token::parse(token->text().text());
    if (!again || again->id != token->id || again->issuer_addresses != token->issuer_addresses) std::abort();
    return 0;
}
