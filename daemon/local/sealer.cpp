// See sealer.hpp.
#include "local/sealer.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <utility>

#include "local/memory.hpp"

namespace nexar::local {

namespace {

bool is_quickly_punched(int memfd) {
    struct stat status{};
    if (::fstat(memfd, &status) == 0 && static_cast<uint64_t>(status.st_size) <= Sealer::quick_bytes_max)
        return true;
    const auto page = page_bytes_of(memfd);
    return page && *page != page_bytes;
}

// The memfd refuses them when the client was faster with seals of its own.
bool add_seals(int memfd) {
    ::fcntl(memfd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL);
    const int seals = ::fcntl(memfd, F_GET_SEALS);
    return seals >= 0 && (seals & F_SEAL_FUTURE_WRITE) != 0;
}

}  // namespace

MayWait Sealer::seal(uint64_t lane, loop::Fd memfd) {
    if (is_quickly_punched(memfd.get())) return nullptr;
    auto may_wait = std::make_shared<std::atomic<bool>>(true);
    const int seals = ::fcntl(memfd.get(), F_GET_SEALS);
    if ((seals & F_SEAL_SEAL) != 0 || threads_.descriptors(lane) >= waiting_max) return may_wait;
    loop::Released what;
    what.descriptors.push_back(std::move(memfd));
    what.before_release = [may_wait, fd = what.descriptors[0].get()] {
        if (add_seals(fd)) may_wait->store(false, std::memory_order_relaxed);
    };
    threads_.release(lane, std::move(what));
    return may_wait;
}

}  // namespace nexar::local
