// See state_dir.hpp.
#include "writers/state_dir.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

namespace nexar::writers {
namespace {

constexpr size_t file_bytes_max = 1 << 20;

std::unexpected<Error> failed(const std::string& what, int error = errno) {
    return fail(Errc::io, what + ": " + std::strerror(error));
}

struct Descriptor {
    int fd = -1;
    ~Descriptor() {
        if (fd >= 0) close(fd);
    }
};

bool write_all(int fd, std::string_view text) {
    while (!text.empty()) {
        const ssize_t n = ::write(fd, text.data(), text.size());
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        text.remove_prefix(static_cast<size_t>(n));
    }
    return true;
}

}  // namespace

Result<StateDir> StateDir::open(const std::string& path) {
    std::error_code ec;
    std::filesystem::create_directories(path, ec);
    if (ec)
        return fail(Errc::io, "cannot make the state directory " + path + ": " + ec.message() +
                                  "; make it, and give it to the user that nexard runs as (uid " +
                                  std::to_string(::geteuid()) + "), or set state_dir");
    Descriptor directory{::open(path.c_str(), O_DIRECTORY | O_RDONLY | O_CLOEXEC)};
    if (directory.fd < 0) return failed("cannot open the state directory " + path);
    if (fchmod(directory.fd, 0700) != 0)
        return failed("cannot make the state directory " + path + " private (0700)");
    Descriptor lock{openat(directory.fd, "lock", O_CREAT | O_RDWR | O_CLOEXEC, 0600)};
    if (lock.fd < 0) return failed("cannot write in the state directory " + path);
    if (flock(lock.fd, LOCK_EX | LOCK_NB) != 0)
        return fail(Errc::bad_state, "another nexard uses the state directory " + path +
                                         ": stop that one, or set another state_dir");
    return StateDir(path, std::exchange(directory.fd, -1), std::exchange(lock.fd, -1));
}

StateDir::StateDir(StateDir&& other) noexcept
    : path_(std::move(other.path_)),
      directory_(std::exchange(other.directory_, -1)),
      lock_(std::exchange(other.lock_, -1)) {}

StateDir::~StateDir() {
    if (lock_ >= 0) close(lock_);
    if (directory_ >= 0) close(directory_);
}

Result<std::optional<Secret>> StateDir::read(std::string_view name) const {
    const std::string file(name);
    Descriptor fd{openat(directory_, file.c_str(), O_RDONLY | O_CLOEXEC)};
    if (fd.fd < 0 && errno == ENOENT) return std::nullopt;
    if (fd.fd < 0) return failed("cannot read " + path_ + "/" + file);
    std::string text(file_bytes_max + 1, '\0');
    size_t size = 0;
    while (size < text.size()) {
        const ssize_t n = ::read(fd.fd, text.data() + size, text.size() - size);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return failed("cannot read " + path_ + "/" + file);
        if (n == 0) break;
        size += static_cast<size_t>(n);
    }
    Secret out(std::string_view(text).substr(0, size));
    wipe(std::as_writable_bytes(std::span(text)));
    if (size > file_bytes_max) return fail(Errc::io, path_ + "/" + file + " is larger than 1 MiB");
    return out;
}

storage::Outcome StateDir::apply(const storage::Batch& batch) const {
    storage::Outcome out;
    for (const storage::Change& change : batch) {
        out.result = change.content ? replace(change.file, change.content->text(), out.applied)
                                    : remove(change.file, out.applied);
        if (!out.result) break;
    }
    return out;
}

Result<void> StateDir::replace(const std::string& file, std::string_view text, size_t& applied) const {
    const std::string temporary = file + ".new";
    const auto give_up = [&](const char* step) {
        const int error = errno;
        unlinkat(directory_, temporary.c_str(), 0);
        return failed(std::string("cannot ") + step + " " + path_ + "/" + file, error);
    };
    Descriptor fd{openat(directory_, temporary.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600)};
    if (fd.fd < 0) return failed("cannot write " + path_ + "/" + file);
    if (!write_all(fd.fd, text)) return give_up("write");
    if (fsync(fd.fd) != 0) return give_up("sync");
    if (renameat(directory_, temporary.c_str(), directory_, file.c_str()) != 0) return give_up("replace");
    ++applied;
    if (fsync(directory_) != 0) return failed("cannot sync " + path_);
    return {};
}

Result<void> StateDir::remove(const std::string& file, size_t& applied) const {
    const bool was_there = unlinkat(directory_, file.c_str(), 0) == 0;
    if (!was_there && errno != ENOENT) return failed("cannot remove " + path_ + "/" + file);
    ++applied;
    if (was_there && fsync(directory_) != 0) return failed("cannot sync " + path_);
    return {};
}

}  // namespace nexar::writers
