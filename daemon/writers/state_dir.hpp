// StateDir: the state directory with identity, certificates, tokens, roster and incarnation. Its mode is
// 0700; a lock (flock(2)) keeps other daemons out. Every replacement is atomic and on disk before it returns
// [K2]: write a temporary file, fsync, rename, fsync the directory.
//
// Thread: reading is for a daemon's start; then everything but path() is the StateWriter's.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/result.hpp"
#include "storage/port.hpp"

namespace nexar::writers {

class StateDir {
  public:
    // Creates the directory if it is missing, and takes its lock. bad_state: another daemon holds it.
    static Result<StateDir> open(const std::string& path);
    ~StateDir();
    StateDir(StateDir&& other) noexcept;
    StateDir& operator=(StateDir&&) = delete;

    // none: no such file. Files are small; above 1 MiB is an error.
    Result<std::optional<Secret>> read(std::string_view name) const;
    storage::Outcome apply(const storage::Batch& batch) const;  // new files have the mode 0600
    const std::string& path() const { return path_; }

  private:
    Result<void> replace(const std::string& file, std::string_view text, size_t& applied) const;
    Result<void> remove(const std::string& file, size_t& applied) const;
    StateDir(std::string path, int directory, int lock)
        : path_(std::move(path)), directory_(directory), lock_(lock) {}
    std::string path_;
    int directory_ = -1;  // -1 after a move
    int lock_ = -1;       // the lock's file, locked while it is open
};

}  // namespace nexar::writers
