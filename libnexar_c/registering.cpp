// Session's memory. The order is: reserve addresses, touch the few pages that the daemon pins, register with
// the daemon, touch the others. So a refused call costs little and has no effect.
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "session.hpp"
#include "shm/words.hpp"
#include "sleep.hpp"

namespace nexar::c {

Result<void*> Session::alloc(uint64_t bytes, const AllocOptions& options) {
    if (bytes == 0 || bytes > uint64_t{1} << 46)
        return fail(Errc::invalid_argument, "bytes is " + std::to_string(bytes) + "; allowed: 1 to 2^46");
    if (auto error = unusable()) return fail(*error);
    scratch_.tidy_up();
    NEXAR_TRY(Region * region, make_region(bytes, false, options));
    return region->base;
}

Result<Region*> Session::make_region(uint64_t bytes, bool scratch, const AllocOptions& options) {
    const uint64_t bytes_max =
        std::min(connection_->welcome().region_bytes_max, connection_->welcome().session_bytes_max);
    if (bytes > bytes_max)
        return fail(Errc::no_memory, "the daemon allows a session " + std::to_string(bytes_max) +
                                         " bytes (session_memory_max_bytes in its configuration), not " +
                                         std::to_string(bytes));
    if (!options.lazy) NEXAR_TRY_VOID(check_available(bytes));
    auto region = borrow_region(whole_pages(bytes), scratch, options.huge_pages);
    if (!region) return region;
    if (options.lazy) (*region)->populated = std::make_unique<Populated>((*region)->bytes);
    if (auto populated = options.lazy ? Result<void>() : populate({(*region)->base, (*region)->bytes});
        !populated) {
        static_cast<void>(drop_region(*region));
        return std::unexpected(populated.error());
    }
    (*region)->ready.store(true, std::memory_order_release);
    return region;
}

// One at a time: the daemon lends a session one memfd.
Result<Region*> Session::borrow_region(uint64_t bytes, bool scratch, bool huge_pages) {
    std::lock_guard lock(borrowing_);
    const auto wait = [this](int fd) { return await_loan(fd); };
    NEXAR_TRY(const int memfd, connection_->borrow(bytes, wait));
    if (memfd < 0) return fail(reason_of_no_loan(bytes));
    auto memory = map_segment(memfd, bytes);
    ::close(memfd);
    if (!memory) return fail(memory.error());
    // Advice: without huge pages for shared memory the kernel refuses, and the pages are ordinary ones.
    if (huge_pages) ::madvise(memory->data(), bytes, MADV_HUGEPAGE);
    // The application has no address in it, so a child has no use for it; and it counts while somebody has
    // it.
    if (scratch) ::madvise(memory->data(), bytes, MADV_DONTFORK);
    const auto pinned = populate_pinned(*memory, 0);
    auto region = pinned ? add_region(*memory, -1, 0, scratch) : Result<Region*>(fail(pinned.error()));
    if (!region) ::munmap(memory->data(), bytes);
    return region;
}

// The daemon gives it in its answer to the registration.
Error Session::reason_of_no_loan(uint64_t bytes) {
    Region none;
    none.id = regions_.take_id();
    none.bytes = bytes;
    if (none.id == 0)
        return {Errc::table_full, "this session has as many regions as it may have: free one first"};
    const auto refused = request_region(none, -1, 0);
    regions_.give_back_id();
    return refused ? Error{Errc::no_memory, "the daemon lent no memory"} : refused.error();
}

// As a wait for a request: it ends when the daemon does, and when its tick stands still for too long.
Result<void> Session::await_loan(int fd) {
    for (pollfd answer{fd, POLLIN, 0};;) {
        if (::poll(&answer, 1, 100) > 0) return {};
        check_tick_when_due();
        if (auto error = unusable()) return fail(*error);
    }
}

// Without a memfd: of the memory that was borrowed.
Result<Region*> Session::add_region(MutableBytes memory, int memfd, uint64_t offset, bool scratch) {
    auto made = std::make_unique<Region>();
    made->base = memory.data();
    made->bytes = memory.size();
    made->mapped_here = memfd < 0;
    made->scratch = scratch;
    const uint32_t id = regions_.take_id();
    made->id = id;
    if (id == 0)
        return fail(Errc::table_full, "this session has " + std::to_string(NEXAR_SHM_REGIONS_MAX) +
                                          " regions, the most that it may have: free one first");
    auto region = regions_.insert(std::move(made));
    if (!region) {
        regions_.give_back_id();
        return region;
    }
    if (auto accepted = request_region(**region, memfd, offset); !accepted) {
        regions_.erase(*region);
        regions_.give_back_id();
        return std::unexpected(accepted.error());
    }
    return region;
}

Result<void> Session::request_region(const Region& region, int memfd, uint64_t offset) {
    NEXAR_TRY(const Slot slot, take_slot(NEXAR_CMD_REGION_ADD, {}, {}));
    if (!send_region(slot, region, memfd, offset))
        fail_all(Errc::daemon_lost, "memory could not be sent to the daemon over the socket");
    wait(slot, never, false);
    const Outcome outcome = take_outcome(slot);
    if (outcome.error) return fail(*outcome.error);
    return {};
}

// False: the socket has failed. A full socket holds doorbells: the daemon reads them soon, or its tick stops.
bool Session::send_region(const Slot& slot, const Region& region, int memfd, uint64_t offset) {
    nexar_msg_region_add add{};
    add.head = {NEXAR_LOCAL_MAGIC, NEXAR_MSG_REGION_ADD};
    add.slot = slot.index;
    add.generation = static_cast<uint32_t>(slot.generation);
    add.region = region.id;
    add.kind = memfd < 0 ? NEXAR_MEMORY_LENT : NEXAR_MEMORY_MEMFD;
    add.offset = offset;
    add.bytes = region.bytes;
    while (!connection_->send(std::as_bytes(std::span(&add, 1)), memfd)) {
        if (errno != EAGAIN && errno != ENOBUFS) return false;
        check_tick_when_due();
        if (unusable()) return true;  // the caller's wait() returns at once
        ::usleep(200);
    }
    return true;
}

Result<void> Session::release(void* memory, bool mapped_here) {
    NEXAR_TRY(Region * region, regions_.begin_removal(memory, mapped_here));
    return drop_region(region);
}

// When the daemon refuses, the region stays registered here too. A lost session has no regions at the daemon.
Result<void> Session::drop_region(Region* region) {
    if (!region->in_place) {
        regions_.erase(region);
        return {};
    }
    nexar_shm_descriptor descriptor{};
    descriptor.kind = NEXAR_CMD_REGION_FREE;
    descriptor.in.region = region->id;
    auto freed = command(descriptor);
    if (!freed && !unusable()) {
        region->ready.store(true, std::memory_order_release);
        return std::unexpected(freed.error());
    }
    const MutableBytes mapped{region->base, region->mapped_here ? region->bytes : 0};
    regions_.erase(region);  // before munmap(), after which another thread may get these addresses
    if (!mapped.empty()) ::munmap(mapped.data(), mapped.size());
    if (freed) regions_.give_back_id();
    return {};
}

Result<void> Session::register_memfd(void* address, uint64_t bytes, int fd, uint64_t offset) {
    const auto begin = reinterpret_cast<uintptr_t>(address);
    if (bytes == 0 || bytes > UINTPTR_MAX - begin || begin % page_bytes != 0 || offset % page_bytes != 0)
        return fail(
            Errc::invalid_argument,
            "address and offset must be multiples of the page size, and bytes from 1 to the end of memory");
    if (regions_.overlaps(static_cast<std::byte*>(address), bytes))
        return fail(Errc::invalid_argument, "part of this memory is registered already");
    constexpr int fixed = F_SEAL_SHRINK | F_SEAL_GROW, needed = fixed | F_SEAL_FUTURE_WRITE;
    const int seals = ::fcntl(fd, F_GET_SEALS);
    if (seals < 0 && errno == EBADF)
        return fail(Errc::invalid_argument, "fd is " + std::to_string(fd) + ", which is not open");
    if (seals < 0) return fail(Errc::unsupported, "the descriptor is not a memfd");
    if ((seals & needed) != needed && (seals & F_SEAL_SEAL) != 0)
        return fail(Errc::unsupported,
                    "the memfd does not allow seals: create it with MFD_ALLOW_SEALING, and "
                    "leave F_SEAL_SEAL to the daemon");
    // All checks come before the seals, which cannot be removed.
    struct stat file{};
    if (::fstat(fd, &file) != 0) return fail(io_error("cannot read the descriptor's properties"));
    const auto length = static_cast<uint64_t>(file.st_size);
    if (offset > length || bytes > length - offset)
        return fail(Errc::invalid_argument, "the memfd has " + std::to_string(length) + " bytes; offset " +
                                                std::to_string(offset) + " and " + std::to_string(bytes) +
                                                " bytes go beyond its end");
    // Other memory than the memfd's would neither be read nor written by the daemon.
    NEXAR_TRY(const bool same, is_mapping_of({static_cast<std::byte*>(address), bytes}, fd, offset));
    if (!same)
        return fail(Errc::invalid_argument,
                    "address is not where this process mapped these bytes of the memfd, shared, readable and "
                    "writable (mmap with MAP_SHARED, and offset " +
                        std::to_string(offset) + ")");
    if ((seals & fixed) != fixed && ::fcntl(fd, F_ADD_SEALS, fixed) != 0)
        return fail(io_error("cannot seal the memfd"));
    struct statfs system{};
    if (::fstatfs(fd, &system) == 0 && system.f_bsize == page_bytes)  // huge pages are not pinned
        NEXAR_TRY_VOID(populate_pinned({static_cast<std::byte*>(address), bytes}, offset));
    scratch_.tidy_up();
    NEXAR_TRY(Region * region, add_memfd({static_cast<std::byte*>(address), bytes}, fd, offset));
    region->populated = std::make_unique<Populated>(region->bytes);
    region->ready.store(true, std::memory_order_release);
    return {};
}

// Where the daemon uses no memory of its clients' making, the region is only a note of it.
Result<Region*> Session::add_memfd(MutableBytes memory, int fd, uint64_t offset) {
    auto region = add_region(memory, fd, offset, false);
    if (region || region.error().code != Errc::permission) return region;
    auto copied = std::make_unique<Region>();
    copied->base = memory.data();
    copied->bytes = memory.size();
    copied->in_place = false;
    return regions_.insert(std::move(copied));
}

}  // namespace nexar::c
