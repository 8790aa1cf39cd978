// check(): our own bugs only, on in release. Bad input from the world is a Result, never a check.
#pragma once

namespace nexar {

// Prints the place and the last log events, then aborts.
[[noreturn]] void check_failed(const char* expression, const char* file, int line);

}  // namespace nexar

#define NEXAR_CHECK(...) \
    (static_cast<bool>(__VA_ARGS__) ? void(0) : ::nexar::check_failed(#__VA_ARGS__, __FILE__, __LINE__))
