// A directory of a test's own, and a state directory in it.
#pragma once

#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "writers/state_dir.hpp"

namespace nexar::test {

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

inline writers::StateDir open_state(const std::string& path) {
    auto made = writers::StateDir::open(path);
    if (!made) FAIL(made.error().text);
    return std::move(*made);
}
inline Result<void> write(const writers::StateDir& state, const std::string& file, std::string_view text) {
    return state.apply({{file, Secret(text)}}).result;
}
inline Result<void> remove(const writers::StateDir& state, const std::string& file) {
    return state.apply({{file, std::nullopt}}).result;
}
// The file's text; empty: there is no such file.
inline std::string text_of(const writers::StateDir& state, const std::string& file) {
    const auto content = state.read(file).value();
    return content ? std::string(content->text()) : std::string();
}

// A disk without a thread: an outcome is there when save() returns.
class DirectDisk final : public storage::Port {
  public:
    explicit DirectDisk(const writers::StateDir& state) : state_(&state) {}
    storage::Saving save(storage::Batch batch) override {
        storage::Saving out;
        out.settle(state_->apply(batch));
        return out;
    }

  private:
    const writers::StateDir* state_;
};

inline bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

}  // namespace nexar::test
