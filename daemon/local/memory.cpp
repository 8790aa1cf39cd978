// See memory.hpp.
#include "local/memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

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

// A memfd of up to so many bytes is mapped as a whole: so other parts of it can be registered later, which
// can only be doubled then [S19]. The daemon has addresses for this many times as many as it may have
// regions.
constexpr uint64_t whole_bytes_max = uint64_t{1} << 30;

// One page more is mapped, which nobody touches and BusGuard does not replace: so the memfd, however large
// it is, is not freed by the thread in which BusGuard replaces the rest, but by the unmapper. Not of huge
// pages: a mapping would lengthen the memfd, and there are few to free.
constexpr uint64_t kept_bytes(uint64_t page) {
    return page == page_bytes ? page_bytes : 0;
}

Result<void*> map_memfd(int fd, uint64_t offset, uint64_t bytes) {
    void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, static_cast<off_t>(offset));
    if (at != MAP_FAILED) return at;
    return system_failure(errno == ENOMEM ? Errc::no_memory : Errc::unsupported,
                          "the memfd cannot be mapped for writing: ");
}

// A length of 0 leaves the old mapping as it is (mremap(2)).
Result<void*> map_again(std::byte* first, uint64_t bytes) {
    void* at = ::mremap(first, 0, bytes, MREMAP_MAYMOVE);
    if (at != MAP_FAILED) return at;
    return system_failure(errno == ENOMEM ? Errc::no_memory : Errc::unsupported,
                          "the memory cannot be mapped once more: ");
}

Result<Fd> opened_again(int fd, int how) {
    Fd out(::open(("/proc/self/fd/" + std::to_string(fd)).c_str(), how | O_CLOEXEC));
    if (!out) return system_failure(Errc::no_memory, "a memfd cannot be opened again: ");
    return out;
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

Result<std::shared_ptr<Mapping>> Mapping::guarded(void* at, const Window& window, uint64_t bytes,
                                                  const Backing& backing, const MappingHost& host) {
    auto* const first = static_cast<std::byte*>(at);
    const MutableBytes mapped(first, window.bytes + kept_bytes(window.page));
    const auto refused = host.holes ? host.holes->refuse(mapped) : Result<void>();
    const int guard = refused ? BusGuard::watch(mapped.first(window.bytes), kept_bytes(window.page),
                                                window.page, host.faults.get(), host.owner)
                              : -1;
    if (guard >= 0) return std::make_shared<Mapping>(first, window, bytes, backing, guard, host);
    ::munmap(mapped.data(), mapped.size());
    if (!refused) return fail(refused.error());
    return fail(Errc::table_full, "the daemon has too many mappings");
}

Result<std::shared_ptr<Mapping>> Mapping::unchecked(int fd, uint64_t offset, uint64_t bytes,
                                                    const MappingHost& host) {
    NEXAR_TRY(const uint64_t page, page_bytes_of(fd));
    NEXAR_TRY(const uint64_t whole, bytes_to_map(offset, bytes, page));
    struct stat status{};
    if (::fstat(fd, &status) != 0) return system_failure(Errc::io, "cannot read the memfd's number: ");
    Window window{offset, whole, page};
    const auto length = static_cast<uint64_t>(status.st_size);
    if (page == page_bytes && length <= whole_bytes_max && length > whole)
        window = {0, (length + page - 1) / page * page, page};
    NEXAR_TRY(void* const at, map_memfd(fd, window.offset, window.bytes + kept_bytes(page)));
    return guarded(at, window, bytes, {status.st_dev, status.st_ino, offset}, host);
}

Result<std::shared_ptr<Mapping>> Mapping::doubled(const Mapping& first, uint64_t offset, uint64_t bytes,
                                                  const MappingHost& host) {
    const Window& window = first.window_;
    NEXAR_TRY_VOID(bytes_to_map(offset, bytes, window.page));
    NEXAR_TRY(void* const at, map_again(first.at_, window.bytes + kept_bytes(window.page)));
    Backing backing = first.backing_;
    backing.offset = offset;
    return guarded(at, window, bytes, backing, host);
}

Result<Fd> witness_of(int memfd) {
    return opened_again(memfd, O_RDONLY);
}

Result<Fd> copy_of(int memfd) {
    return opened_again(memfd, O_RDWR);
}

// A lease for reading is granted while nobody has the file open for writing (fcntl(2), F_SETLEASE); a
// mapping, and a message that was not read, keep an open file. What memfd_create() returns does not count
// there.
bool nobody_has_copies(int witness) {
    if (::fcntl(witness, F_SETLEASE, F_RDLCK) != 0) return false;
    ::fcntl(witness, F_SETLEASE, F_UNLCK);
    return true;
}

Result<void> check_witnesses() {
    const Fd memfd(::memfd_create("nexar-check", MFD_CLOEXEC));
    if (!memfd) return system_failure(Errc::no_memory, "the daemon cannot make memory: ");
    NEXAR_TRY(const Fd witness, witness_of(memfd.get()));
    if (!nobody_has_copies(witness.get())) return system_failure(Errc::unsupported, "no lease: ");
    NEXAR_TRY(const Fd copy, copy_of(memfd.get()));
    if (nobody_has_copies(witness.get()))
        return fail(Errc::unsupported, "a lease is granted though the file is open");
    return {};
}

Result<Mapping::Lent> Mapping::to_lend(const char* name, uint64_t bytes, const MappingHost& host) {
    Fd memfd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!memfd) return system_failure(Errc::no_memory, "the daemon cannot make memory: ");
    constexpr int seals = F_SEAL_SHRINK | F_SEAL_GROW;
    if (::ftruncate(memfd.get(), static_cast<off_t>(bytes)) != 0 ||
        ::fcntl(memfd.get(), F_ADD_SEALS, seals) != 0)
        return system_failure(Errc::no_memory, "the daemon cannot make so much memory: ");
    Fd witness, copy;
    int number = -1;
    if (const auto list = host.unreturned.lock()) {
        if (const auto watched = list->gone().watch(memfd.get())) number = *watched;
        NEXAR_TRY(witness, witness_of(memfd.get()));
        NEXAR_TRY(copy, copy_of(memfd.get()));
    } else {
        copy.reset(::fcntl(memfd.get(), F_DUPFD_CLOEXEC, 0));
        if (!copy) return system_failure(Errc::no_memory, "the daemon is out of descriptors: ");
    }
    // Who neither owns a file nor may write to it cannot have the kernel look through all mappings of its
    // pages, as it does to take one out of memory (MADV_PAGEOUT). The descriptor and its mappings are not
    // concerned.
    if (::fchmod(memfd.get(), 0) != 0)
        return system_failure(Errc::io, "the daemon cannot keep memory its own: ");
    NEXAR_TRY(auto mapping, unchecked(memfd.get(), 0, bytes, host));
    mapping->rest_->witness = std::move(witness);
    mapping->rest_->number = number;
    mapping->rest_->unreturned = host.unreturned;
    return Lent{std::move(memfd), std::move(copy), std::move(mapping)};
}

bool Mapping::is_returned() const {
    return rest_->witness && nobody_has_copies(rest_->witness.get());
}

Mapping::Rest::~Rest() {
    const auto list = unreturned.lock();
    if (!witness || !list) return;
    if (number < 0) {
        list->add(
            [held = std::move(charges), file = std::move(witness)] { return nobody_has_copies(file.get()); });
        return;
    }
    list->gone().keep(number, std::make_shared<std::vector<ChargeRef>>(std::move(charges)));
    witness.reset();
    list->gone().look();
}

Mapping::~Mapping() {
    BusGuard::unwatch(guard_);
    host_.unmapper->release(host_.lane, {.mapping = {at_, window_.bytes + kept_bytes(window_.page)},
                                         .descriptors = std::move(holders_),
                                         .until = std::move(rest_)});
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
