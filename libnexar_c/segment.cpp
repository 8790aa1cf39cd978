// See segment.hpp.
#include "segment.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string_view>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace nexar::c {

namespace {

constexpr uint64_t populate_step_bytes = uint64_t{64} << 20, pinned_span = uint64_t{2} << 20;

// One of /proc/meminfo's lines, in bytes.
std::optional<uint64_t> meminfo(std::string_view text, std::string_view name) {
    const size_t at = text.find(name);
    if (at == std::string_view::npos) return {};
    const size_t digits = text.find_first_of("0123456789", at + name.size());
    if (digits == std::string_view::npos) return {};
    uint64_t kib = 0;
    if (std::from_chars(text.data() + digits, text.data() + text.size(), kib).ec != std::errc()) return {};
    return kib * 1024;
}

// The memory that the system can provide without its OOM killer; none: unknown.
std::optional<uint64_t> available_bytes() {
    const int fd = ::open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return {};
    char text[4096];
    const ssize_t got = ::read(fd, text, sizeof text);
    ::close(fd);
    if (got <= 0) return {};
    const std::string_view all(text, static_cast<size_t>(got));
    const auto available = meminfo(all, "MemAvailable:");
    if (!available) return {};
    return *available + meminfo(all, "SwapFree:").value_or(0);
}

Result<void> populate_step(MutableBytes memory) {
    int rc;
    do rc = ::madvise(memory.data(), memory.size(), MADV_POPULATE_WRITE);
    while (rc != 0 && errno == EINTR);
    if (rc == 0) return {};
    if (errno != EINVAL) return fail(Errc::no_memory, "the system has no memory left");
    for (size_t i = 0; i < memory.size(); i += page_bytes)  // kernels before 5.14
        __atomic_fetch_or(reinterpret_cast<uint8_t*>(&memory[i]), uint8_t{0}, __ATOMIC_RELAXED);
    return {};
}

}  // namespace

Error io_error(const std::string& what) {
    const int number = errno;
    const Errc code = number == ENOMEM ? Errc::no_memory : number == EACCES ? Errc::permission : Errc::io;
    const char* help = number == EMFILE ? "; raise ulimit -n" : "";
    Error error{code, what + ": " + std::strerror(number) + help};
    error.system_errno = number;
    return error;
}

Result<MutableBytes> map_segment(int memfd, uint64_t bytes) {
    void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
    if (at == MAP_FAILED)
        return fail(io_error("cannot map " + std::to_string(bytes) + " bytes of shared memory"));
    return MutableBytes{static_cast<std::byte*>(at), bytes};
}

Result<void> check_available(uint64_t bytes) {
    const auto available = available_bytes();
    if (!available || bytes <= *available) return {};
    return fail(Errc::no_memory, std::to_string(bytes) + " bytes are more than the " +
                                     std::to_string(*available) + " that this host has available");
}

// In steps, because the available memory changes meanwhile.
Result<void> populate(MutableBytes memory) {
    while (!memory.empty()) {
        NEXAR_TRY_VOID(check_available(memory.size()));
        const MutableBytes step = memory.first(std::min<size_t>(memory.size(), populate_step_bytes));
        NEXAR_TRY_VOID(populate_step(step));
        memory = memory.subspan(step.size());
    }
    return {};
}

Result<void> populate_pinned(MutableBytes memory, uint64_t offset) {
    const uint64_t end = offset + memory.size();
    for (uint64_t at = offset; at < end; at = (at / pinned_span + 1) * pinned_span)
        NEXAR_TRY_VOID(populate_step(memory.subspan(at - offset, page_bytes)));
    return {};
}

// By /proc/self/maps: lines of "begin-end rwxs offset major:minor inode", ascending.
Result<bool> is_mapping_of(MutableBytes memory, int fd, uint64_t offset) {
    struct stat file{};
    if (::fstat(fd, &file) != 0) return fail(io_error("cannot read the descriptor's properties"));
    std::FILE* maps = std::fopen("/proc/self/maps", "re");
    if (!maps) return fail(io_error("cannot read /proc/self/maps"));
    uint64_t at = reinterpret_cast<uintptr_t>(memory.data());
    const uint64_t first = at, end = at + memory.size();
    char line[4352];  // a path has up to 4096 bytes
    bool good = true;
    while (good && at < end && std::fgets(line, sizeof line, maps)) {
        unsigned long from = 0, to = 0, file_at = 0, inode = 0;
        unsigned major_id = 0, minor_id = 0;
        char allowed[5] = {};
        if (std::sscanf(line, "%lx-%lx %4s %lx %x:%x %lu", &from, &to, allowed, &file_at, &major_id,
                        &minor_id, &inode) != 7 ||
            to <= at)
            continue;
        good = from <= at && allowed[0] == 'r' && allowed[1] == 'w' && allowed[3] == 's' &&
               inode == file.st_ino && makedev(major_id, minor_id) == file.st_dev &&
               file_at + (at - from) == offset + (at - first);
        at = to;
    }
    std::fclose(maps);
    return good && at >= end;
}

}  // namespace nexar::c
