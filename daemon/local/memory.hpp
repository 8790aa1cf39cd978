// Memory that is shared with clients: their memfds, which are checked and mapped, and pages of the daemon
// that clients can only read.
#pragma once

#include <cstdint>
#include <memory>

#include "core/bytes.hpp"
#include "core/region.hpp"
#include "core/result.hpp"
#include "local/bus_guard.hpp"
#include "local/holes.hpp"
#include "loop/fd.hpp"
#include "loop/releaser.hpp"

namespace nexar::local {

using loop::Fd;
using loop::Releaser;
using loop::ReleaserRef;

// What mappings need of their server.
struct MappingHost {
    ReleaserRef unmapper;          // [S16]
    const Holes* holes = nullptr;  // outlives the mappings; null: the daemon provides pages that are missing
    std::shared_ptr<Faults> faults{};  // in the owner's memory; null: nobody asks
    uint64_t owner = 0;
    uint64_t lane = 0;  // of the unmapper; the tenant's number
};

// A mapping of a client's memfd. The last holder unmaps it: the session, or an operation that uses it [S10].
// BusGuard handles faults in it.
class Mapping {
  public:
    // Refuses a descriptor that is not a memfd sealed with SHRINK and GROW, or that is too short.
    static Result<std::shared_ptr<Mapping>> of_client(int fd, uint64_t offset, uint64_t bytes,
                                                      uint64_t bytes_max, const MappingHost& host);
    // Maps without a check of the seals, for of_client() and for tests of BusGuard.
    static Result<std::shared_ptr<Mapping>> unchecked(int fd, uint64_t offset, uint64_t bytes,
                                                      const MappingHost& host);

    Mapping(MutableBytes mapped, size_t bytes, const Backing& backing, int guard, const MappingHost& host)
        : mapped_(mapped), bytes_(bytes), backing_(backing), guard_(guard), host_(host) {}
    ~Mapping();
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;

    MutableBytes bytes() const { return mapped_.first(bytes_); }
    const Backing& backing() const { return backing_; }
    // Ends when the memory is unmapped, which may be long after the end of this object.
    const std::shared_ptr<std::vector<ChargeRef>>& charges() const { return charges_; }
    // A page of the memory was missing (SIGBUS), and zeros were mapped there instead.
    bool faulted() const;

  private:
    MutableBytes
        mapped_;       // whole pages of the memfd: munmap refuses a part of a huge page; with the kept page
    size_t bytes_;     // the region's share of mapped_, from its start
    Backing backing_;  // the memfd and the offset in it; the mapping keeps its number from reuse
    int guard_;        // BusGuard's number
    MappingHost host_;
    std::shared_ptr<std::vector<ChargeRef>> charges_ = std::make_shared<std::vector<ChargeRef>>();
};

// One page that only this process can write and that other processes may map for reading.
struct PublishedPage {
    Fd fd;
    std::byte* page = nullptr;
};
// Maps the page at `where` unless that is null. Requires: `where` is a page that the caller has mapped
// (MAP_FIXED replaces it). The caller unmaps the page.
Result<PublishedPage> publish_page(const char* name, std::byte* where = nullptr);

constexpr size_t page_bytes = 4096;

// Bytes of one page of a memfd: 4 KiB, or the huge page size of an MFD_HUGETLB memfd (2 MiB, 1 GiB).
Result<uint64_t> page_bytes_of(int fd);
// Bytes to map for a region, in whole pages. Refuses a region whose offset is not a multiple of the page
// size.
Result<uint64_t> bytes_to_map(uint64_t offset, uint64_t bytes, uint64_t page);

}  // namespace nexar::local
