// A directory of a test's own, and a state directory in it.
#pragma once

#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "node/state_dir.hpp"

namespace nexar::node::test {

class Folder {
  public:
    Folder() {
        char path[] = "/tmp/nexar-test-XXXXXX";
        REQUIRE(mkdtemp(path) != nullptr);
        path_ = path;
    }
    ~Folder() {
        std::error_code ec;
        std::filesystem::remove_all(path_, ec);
    }
    Folder(const Folder&) = delete;
    std::string file(const std::string& name) const { return path_ + "/" + name; }
    void put(const std::string& name, const std::string& text) const {
        std::ofstream(file(name), std::ios::binary) << text;
    }
    std::string get(const std::string& name) const {
        std::ifstream in(file(name), std::ios::binary);
        return {std::istreambuf_iterator<char>(in), {}};
    }

  private:
    std::string path_;
};

inline StateDir open_state(const std::string& path) {
    auto made = StateDir::open(path);
    if (!made) FAIL(made.error().text);
    return std::move(*made);
}
inline bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

}  // namespace nexar::node::test
