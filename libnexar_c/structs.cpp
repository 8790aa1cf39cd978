// See structs.hpp.
#include "structs.hpp"

#include "nexar.h"

namespace nexar::c {

Result<void> check_struct_size(uint32_t size, const char* type) {
    if (size >= struct_bytes_min && size <= struct_bytes_max && size % struct_bytes_step == 0) return {};
    return fail(Errc::invalid_argument, std::string(type) + ".struct_size is " + std::to_string(size) +
                                            ": initialise the struct with its NEXAR_..._INIT, or its init "
                                            "function");
}

Result<void> check_unknown_fields(const void* given, uint32_t size, uint32_t known, const char* type) {
    const auto* bytes = static_cast<const std::byte*>(given);
    for (uint32_t at = known; at < size; ++at)
        if (bytes[at] != std::byte{0})
            return fail(
                Errc::invalid_argument,
                std::string(type) + " has a value at byte " + std::to_string(at) +
                    ", in a field that this library does not know: it is older than the program's nexar.h");
    return {};
}

}  // namespace nexar::c
