// Flags and the search for the data file.
#include "options.hpp"

#include <getopt.h>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <vector>

namespace digits {

const char usage[] =
    "Usage: nexar_digits [options]\n"
    "Trains a classifier of handwritten digits on all ranks of a nexar group. Start it as\n"
    "    nexarctl run -n 4 -- nexar_digits --check-reference\n"
    "\n"
    "  --epochs N          passes over the training images, 1 to 100000 (25)\n"
    "  --check-reference   rank 0 then trains alone on the same batches and compares the parameters\n"
    "  --reference         train in this process alone, without nexar\n"
    "  --data PATH         digits.bin (NEXAR_DIGITS_DATA, beside the program, installed, source tree)\n"
    "  --json              print one JSON object instead of text\n"
    "  --help              this text\n"
    "\n"
    "Exit status: 0 all checks passed, 1 a check failed or an error, 2 wrong usage.\n";

namespace {

constexpr uint32_t epochs_max = 100'000;

Outcome<uint32_t> parse_epochs(const char* text) {
    uint32_t value = 0;
    const char* end = text + std::strlen(text);
    auto [rest, error] = std::from_chars(text, end, value);
    if (error != std::errc{} || rest != end || value < 1 || value > epochs_max)
        return std::unexpected("--epochs: '" + std::string(text) + "' is not a number from 1 to " +
                               std::to_string(epochs_max));
    return value;
}

}  // namespace

Outcome<Options> parse_options(int argc, char** argv) {
    static const option table[] = {
        {"epochs", required_argument, nullptr, 'e'},
        {"check-reference", no_argument, nullptr, 'c'},
        {"reference", no_argument, nullptr, 'r'},
        {"data", required_argument, nullptr, 'd'},
        {"json", no_argument, nullptr, 'j'},
        {"help", no_argument, nullptr, 'h'},
        {nullptr, 0, nullptr, 0},
    };
    Options options;
    for (int letter; (letter = getopt_long(argc, argv, "", table, nullptr)) != -1;) switch (letter) {
            case 'e': {
                auto epochs = parse_epochs(optarg);
                if (!epochs) return std::unexpected(epochs.error());
                options.epochs = *epochs;
                break;
            }
            case 'c':
                options.check_reference = true;
                break;
            case 'r':
                options.reference = true;
                break;
            case 'd':
                options.data = optarg;
                break;
            case 'j':
                options.json = true;
                break;
            case 'h':
                options.help = true;
                break;
            default:
                return std::unexpected("see nexar_digits --help");  // getopt has named the option
        }
    if (optind < argc) return std::unexpected("unexpected argument '" + std::string(argv[optind]) + "'");
    return options;
}

Outcome<std::string> find_data(const Options& options) {
    if (!options.data.empty()) return options.data;
    if (const char* path = std::getenv("NEXAR_DIGITS_DATA"); path && *path) return std::string(path);

    namespace fs = std::filesystem;
    std::error_code ignored;
    const fs::path here = fs::read_symlink("/proc/self/exe", ignored).parent_path();
    std::vector<fs::path> candidates = {
        here / "digits.bin", here / "../share/nexar/examples/digits/digits.bin",
        fs::path(NEXAR_DIGITS_INSTALL_DIR) / "digits.bin", fs::path(NEXAR_DIGITS_SOURCE_DIR) / "digits.bin"};
    for (const fs::path& path : candidates)
        if (fs::exists(path, ignored)) return path.string();
    return std::unexpected("digits.bin not found beside the program; name it with --data PATH");
}

}  // namespace digits
