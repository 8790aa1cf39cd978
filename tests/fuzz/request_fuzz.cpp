// One line of the admin protocol.
#include <cstdlib>

#include "control/request.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace nexar;
    const auto request = control::parse_request({reinterpret_cast<const char*>(data), size});
    const auto line = control::answer_line(request ? Result<std::string>(request->arguments)
                                                   : Result<std::string>(std::unexpected(request.error())));
    if (line.empty() || line.find('\n') != line.size() - 1) std::abort();
    return 0;
}
