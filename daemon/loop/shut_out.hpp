// ShutOut: users who may not connect for now. What a server does not want it can only accept and close, and
// the connections of a user may be such that they cannot be closed [S16]. So the kernel refuses to connect
// them: the socket's file has an entry for each such user in its access control list (acl(5)).
//
// Thread: the control loop's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>

#include "core/result.hpp"

namespace nexar::loop {

class ShutOut {
  public:
    // The socket's file, which the caller made with this mode.
    ShutOut(std::string path, unsigned mode) : path_(std::move(path)), mode_(mode) {}

    // The owner of the file, and root, connect all the same. An error: the file system has no such lists, or
    // too many users are shut out.
    Result<void> add(uint32_t uid);
    Result<void> remove(uint32_t uid);
    const std::set<uint32_t>& users() const { return users_; }

    static constexpr size_t users_max = 4096;

  private:
    Result<void> apply(const std::set<uint32_t>& users) const;

    std::string path_;
    unsigned mode_;
    std::set<uint32_t> users_;
};

}  // namespace nexar::loop
