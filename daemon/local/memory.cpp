// See memory.hpp.
#include "local/memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <cerrno>
#include <cstring>

namespace nexar::local {

namespace {

std::unexpected<Error> system_failure(Errc code, const char* what) {
    const int number = errno;
    return fail(
        Error{.code = code, .text = std::string(what) + std::strerror(number), .system_errno = number});
}

Result<void> check_seals(int fd) {
    const int seals = ::fcntl(fd, F_GET_SEALS);
    constexpr int needed = F_SEAL_SHRINK | F_SEAL_GROW;
    if (seals < 0) return fail(Errc::unsupported, "the descriptor is not a memfd");
    if ((seals & needed) != needed)
        return fail(Errc::unsupported, "the memfd is not sealed against shrinking and growing");
    return {};
}

Result<void> check_extent(int fd, uint64_t offset, uint64_t bytes, uint64_t bytes_max) {
    if (bytes == 0 || bytes > bytes_max)
        return fail(Errc::no_memory, "a region may have 1 to " + std::to_string(bytes_max) + " bytes, not " +
                                         std::to_string(bytes));
    struct stat status{};
    if (::fstat(fd, &status) != 0) return system_failure(Errc::io, "cannot read the memfd's size: ");
    const auto size = static_cast<uint64_t>(status.st_size);
    if (offset > size || bytes > size - offset)
        return fail(Errc::invalid_argument, "the memfd has " + std::to_string(size) + " bytes, too few for " +
                                                std::to_string(bytes) + " at " + std::to_string(offset));
    return {};
}

// One page more is mapped, which nobody touches and BusGuard does not replace: so the memfd, however large
// it is, is not freed by the thread in which BusGuard replaces the rest, but by the unmapper. Not of huge
// pages: a mapping would lengthen the memfd, and there are few to free.
constexpr uint64_t kept_bytes(uint64_t page) {
    return page == page_bytes ? page_bytes : 0;
}

Result<MutableBytes> map_guarded(int fd, uint64_t offset, uint64_t bytes, const Holes* holes) {
    void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, static_cast<off_t>(offset));
    if (at == MAP_FAILED)
        return system_failure(errno == ENOMEM ? Errc::no_memory : Errc::unsupported,
                              "the memfd cannot be mapped for writing: ");
    const MutableBytes mapped(static_cast<std::byte*>(at), bytes);
    if (holes == nullptr) return mapped;
    if (auto refused = holes->refuse(mapped); !refused) {
        ::munmap(at, bytes);
        return fail(refused.error());
    }
    return mapped;
}

}  // namespace

Result<uint64_t> page_bytes_of(int fd) {
    struct statfs status{};
    if (::fstatfs(fd, &status) != 0 || status.f_bsize <= 0)
        return system_failure(Errc::io, "cannot read the memfd's page size: ");
    return static_cast<uint64_t>(status.f_bsize);
}

Result<uint64_t> bytes_to_map(uint64_t offset, uint64_t bytes, uint64_t page) {
    if (offset % page != 0)
        return fail(Errc::invalid_argument, "a region begins at a multiple of its memfd's page size, " +
                                                std::to_string(page) + " bytes, not at " +
                                                std::to_string(offset));
    if (bytes > UINT64_MAX - page) return fail(Errc::no_memory, "a region of too many bytes");
    return (bytes + page - 1) / page * page;
}

Result<std::shared_ptr<Mapping>> Mapping::of_client(int fd, uint64_t offset, uint64_t bytes,
                                                    uint64_t bytes_max, const MappingHost& host) {
    NEXAR_TRY_VOID(check_seals(fd));
    NEXAR_TRY_VOID(check_extent(fd, offset, bytes, bytes_max));
    return unchecked(fd, offset, bytes, host);
}

Result<std::shared_ptr<Mapping>> Mapping::unchecked(int fd, uint64_t offset, uint64_t bytes,
                                                    const MappingHost& host) {
    NEXAR_TRY(const uint64_t page, page_bytes_of(fd));
    NEXAR_TRY(const uint64_t whole, bytes_to_map(offset, bytes, page));
    struct stat status{};
    if (::fstat(fd, &status) != 0) return system_failure(Errc::io, "cannot read the memfd's number: ");
    NEXAR_TRY(const MutableBytes mapped, map_guarded(fd, offset, whole + kept_bytes(page), host.holes));
    const int guard =
        BusGuard::watch(mapped.first(whole), kept_bytes(page), page, host.faults.get(), host.owner);
    if (guard < 0) {
        ::munmap(mapped.data(), mapped.size());
        return fail(Errc::table_full, "the daemon has too many mappings");
    }
    return std::make_shared<Mapping>(mapped, bytes, Backing{status.st_dev, status.st_ino, offset}, guard,
                                     host);
}

Mapping::~Mapping() {
    BusGuard::unwatch(guard_);
    host_.unmapper->release(host_.lane, {.mapping = mapped_, .until = std::move(charges_)});
}

bool Mapping::faulted() const {
    return BusGuard::faulted(guard_);
}

Result<PublishedPage> publish_page(const char* name, std::byte* where) {
    PublishedPage out;
    out.fd.reset(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!out.fd || ::ftruncate(out.fd.get(), page_bytes) != 0)
        return system_failure(Errc::io, "cannot create a shared page: ");
    void* at = ::mmap(where, page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | (where ? MAP_FIXED : 0),
                      out.fd.get(), 0);
    if (at == MAP_FAILED) return system_failure(Errc::no_memory, "cannot map a shared page: ");
    out.page = static_cast<std::byte*>(at);
    // FUTURE_WRITE: this mapping stays writable, every later one is read-only.
    constexpr int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;
    if (::fcntl(out.fd.get(), F_ADD_SEALS, seals) != 0) {
        if (!where) ::munmap(at, page_bytes);
        return system_failure(Errc::io, "cannot seal a shared page: ");
    }
    return out;
}

}  // namespace nexar::local
