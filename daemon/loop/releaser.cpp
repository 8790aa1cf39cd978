// See releaser.hpp.
#include "loop/releaser.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "loop/impatience.hpp"

namespace nexar::loop {

namespace {

// munmap() holds the address space's lock, which every mmap() of the daemon waits for, also the loop's: about
// 4 ms a piece.
constexpr size_t piece_bytes = size_t{8} << 20;

void give_back(Released what, bool closings_wait) {
    for (MutableBytes rest = what.mapping; !rest.empty();) {
        const MutableBytes piece = rest.first(std::min(rest.size(), piece_bytes));
        // A part of a huge page of 1 GiB is refused.
        if (::munmap(piece.data(), piece.size()) != 0) {
            ::munmap(rest.data(), rest.size());
            break;
        }
        rest = rest.subspan(piece.size());
    }
    std::optional<Impatience> impatience;
    if (!closings_wait && (!what.descriptors.empty() || what.connection)) impatience.emplace();
    what.descriptors.clear();
    if (what.connection) what.connection();
    what.connection = nullptr;
}

}  // namespace

Result<std::shared_ptr<Releaser>> Releaser::open(size_t threads_max, bool closings_wait) {
    NEXAR_TRY(Lanes lanes, Lanes::open(threads_max));
    return std::make_shared<Releaser>(std::move(lanes), closings_wait);
}

void Releaser::release(uint64_t lane, Released what) {
    const size_t descriptors = what.descriptors.size() + (what.connection ? 1 : 0);
    lanes_.add(lane, descriptors, [what = std::move(what), wait = closings_wait_]() mutable {
        give_back(std::move(what), wait);
    });
}

void Releaser::release(uint64_t lane, Fd descriptor) {
    Released what;
    what.descriptors.push_back(std::move(descriptor));
    release(lane, std::move(what));
}

}  // namespace nexar::loop
