// The command line of nexar_digits.
#pragma once

#include <cstdint>
#include <string>

#include "data.hpp"

namespace digits {

struct Options {
    uint32_t epochs = 25;
    bool reference = false;        // one process, no nexar
    bool check_reference = false;  // afterwards rank 0 also trains alone and compares
    bool json = false;
    bool help = false;
    std::string data;  // path of digits.bin; empty: look for it
};

extern const char usage[];

Outcome<Options> parse_options(int argc, char** argv);

// Where digits.bin is: the option, NEXAR_DIGITS_DATA, beside the program, where `make install` puts it, or in
// the source tree that the program was built from.
Outcome<std::string> find_data(const Options& options);

}  // namespace digits
