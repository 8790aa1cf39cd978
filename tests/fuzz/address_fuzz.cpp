// Addresses as text: in tokens, rosters, configuration, and in what other nodes say of themselves.
#include <cstdlib>

#include "quic/address.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using nexar::quic::Address;
    const auto address = Address::parse({reinterpret_cast<const char*>(data), size});
    if (!address) return address.error().text.empty() ? (std::abort(), 1) : 0;
    const auto again = Address::parse(address->text());
    if (!again || *again != *address) std::abort();
    return 0;
}
