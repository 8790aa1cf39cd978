// Reading the configuration file: absent is one thing, unreadable another.
#include "config/file.hpp"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>

using namespace nexar;
using namespace nexar::config;

namespace {
struct Folder {
    std::string path = "/tmp/nexar-config-XXXXXX";
    Folder() { REQUIRE(mkdtemp(path.data()) != nullptr); }
    ~Folder() { std::filesystem::remove_all(path); }
};
}  // namespace

TEST_CASE("a file is read whole, and none is not an error") {
    const Folder folder;
    const std::string path = folder.path + "/nexar.toml";
    REQUIRE(read_file(path));
    REQUIRE_FALSE(read_file(path)->has_value());
    std::ofstream(path) << "workers = 3\n";
    REQUIRE(*read_file(path) == "workers = 3\n");
    std::ofstream(path, std::ios::trunc).close();
    REQUIRE(*read_file(path) == "");
}

TEST_CASE("a file that is there and cannot be read is an error that names it") {
    const Folder folder;
    REQUIRE(read_file(folder.path).error().text.find(folder.path) != std::string::npos);  // a folder
    const std::string path = folder.path + "/nexar.toml";
    std::ofstream(path) << std::string((1 << 20) + 1, '#');
    REQUIRE(read_file(path).error().text.find("longer than 1 MiB") != std::string::npos);
    REQUIRE_FALSE(read_file(path + "/below"));  // not a folder: ENOTDIR

    if (geteuid() == 0) return;  // reads everything; tests/integration/nexard_test.py asks as another user
    REQUIRE(chmod(path.c_str(), 0) == 0);
    REQUIRE(read_file(path).error().text.find("Permission denied") != std::string::npos);
}
