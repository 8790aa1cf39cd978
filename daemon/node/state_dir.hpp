// StateDir: the state directory with identity, certificates, tokens, roster and incarnation. Its mode is
// 0700; a lock (flock(2)) keeps other daemons out. Every write is atomic and on disk before it returns: write
// a temporary file, fsync, rename, fsync the directory.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/ids.hpp"
#include "core/result.hpp"

namespace nexar::node {

class StateDir {
  public:
    // Creates the directory if it is missing, and takes its lock. bad_state: another daemon holds it.
    static Result<StateDir> open(const std::string& path);
    ~StateDir();
    StateDir(StateDir&& other) noexcept;
    StateDir& operator=(StateDir&&) = delete;

    // none: no such file. Files are small; above 1 MiB is an error.
    Result<std::optional<std::string>> read(std::string_view name) const;
    Result<void> write(std::string_view name, std::string_view text) const;  // mode 0600
    Result<void> remove(std::string_view name) const;
    const std::string& path() const { return path_; }

    // The counter is persisted, one higher at every start; the nonce is random.
    Result<Incarnation> next_incarnation() const;

  private:
    StateDir(std::string path, int directory, int lock)
        : path_(std::move(path)), directory_(directory), lock_(lock) {}
    std::string path_;
    int directory_ = -1;  // -1 after a move
    int lock_ = -1;       // the lock's file, locked while it is open
};

}  // namespace nexar::node
