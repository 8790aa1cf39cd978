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
#include "local/unreturned.hpp"
#include "loop/fd.hpp"
#include "loop/releaser.hpp"

namespace nexar::local {

using loop::Fd;
using loop::Releaser;
using loop::ReleaserRef;

// What mappings need of their server.
struct MappingHost {
    ReleaserRef unmapper;                  // [S16]
    std::shared_ptr<const Holes> holes{};  // null: the daemon provides pages that are missing
    std::shared_ptr<Faults> faults{};      // in the owner's memory; null: nobody asks
    uint64_t owner = 0;
    uint64_t lane = 0;                       // of the unmapper; the tenant's number
    std::weak_ptr<Unreturned> unreturned{};  // expired: what is lent has no witness
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
    // A second mapping of bytes that `first` covers, also where the memfd is sealed against new ones.
    static Result<std::shared_ptr<Mapping>> doubled(const Mapping& first, uint64_t offset, uint64_t bytes,
                                                    const MappingHost& host);

    // Of a memfd that nobody else has yet, so that mapping it waits for nobody.
    struct Lent {
        Fd memfd, copy;  // the daemon's, and the client's: an open file of its own if there is a witness
        std::shared_ptr<Mapping> mapping;
    };
    static Result<Lent> to_lend(const char* name, uint64_t bytes, const MappingHost& host);
    // Of lent memory: no client has its descriptor, or a mapping of it, any more. False without a witness.
    bool is_returned() const;

    // What is mapped of a memfd: more than the region, so that it can be doubled for other regions.
    struct Window {
        uint64_t offset = 0, bytes = 0;  // of the memfd; whole pages
        uint64_t page = 0;               // bytes of one
    };
    // `at`: of the window's first byte. `backing`: the region's.
    Mapping(std::byte* at, const Window& window, uint64_t bytes, const Backing& backing, int guard,
            const MappingHost& host)
        : at_(at), window_(window), bytes_(bytes), backing_(backing), guard_(guard), host_(host) {}
    ~Mapping();
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;

    MutableBytes bytes() const { return {at_ + (backing_.offset - window_.offset), bytes_}; }
    uint64_t page_size() const { return window_.page; }
    const Backing& backing() const { return backing_; }
    bool covers(uint64_t offset, uint64_t bytes) const {  // of the memfd
        return offset >= window_.offset && bytes <= window_.bytes &&
               offset - window_.offset <= window_.bytes - bytes;
    }
    // Kept until the memory is unmapped; before it is shared with other threads.
    void keep(std::vector<Fd> holders) { holders_ = std::move(holders); }
    // Ends with this object.
    void keep(std::shared_ptr<const void> row) { row_ = std::move(row); }
    // Ends when the memory is unmapped, and returned if it was lent with a witness, which may be long after
    // the end of this object.
    std::shared_ptr<std::vector<ChargeRef>> charges() const { return {rest_, &rest_->charges}; }
    // A page of the memory was missing (SIGBUS), and zeros were mapped there instead.
    bool faulted() const;

  private:
    // What is left when the memory is unmapped.
    struct Rest {
        std::vector<ChargeRef> charges;
        Fd witness;
        int number = -1;  // of the memfd in unreturned's gone(); -1: it is not watched
        std::weak_ptr<Unreturned> unreturned;
        Rest() = default;
        Rest(const Rest&) = delete;
        ~Rest();
    };

    // Of what is mapped at `at`.
    static Result<std::shared_ptr<Mapping>> guarded(void* at, const Window& window, uint64_t bytes,
                                                    const Backing& backing, const MappingHost& host);

    std::byte* at_;
    Window window_;
    uint64_t bytes_;   // of the region
    Backing backing_;  // the memfd and the region's offset in it; the mapping keeps its number from reuse
    int guard_;        // BusGuard's number
    MappingHost host_;
    std::vector<Fd> holders_;          // of pins
    std::shared_ptr<const void> row_;  // of a table of mappings
    std::shared_ptr<Rest> rest_ = std::make_shared<Rest>();
};

// A descriptor of the daemon's that shows whether others have a memfd of which each got an open file of its
// own, open for writing (copy_of()); which the daemon's first descriptor, from memfd_create(2), is not.
Result<Fd> witness_of(int memfd);
Result<Fd> copy_of(int memfd);
bool nobody_has_copies(int witness);
// The kernel has what that needs: /proc, and leases.
Result<void> check_witnesses();

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
