// See mapper.hpp.
#include "local/mapper.hpp"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>

#include "local/pins.hpp"
#include "loop/no_descriptor.hpp"

namespace nexar::local {

namespace {

using MappingRef = std::shared_ptr<Mapping>;

// Mappings by tenant and memfd. A memfd that was sealed cannot be mapped for writing again; but a mapping of
// it can be doubled.
class Table {
  public:
    using Key = std::tuple<uint64_t, uint64_t, uint64_t>;  // lane, device, inode

    // One that has all these bytes; null: there is none.
    MappingRef find(const Key& key, uint64_t offset, uint64_t bytes) {
        std::vector<MappingRef> looked_at;  // the end of one may come here, and it takes the lock
        const std::lock_guard lock(mutex_);
        const auto [first, last] = rows_.equal_range(key);
        for (auto row = first; row != last; ++row) {
            looked_at.push_back(row->second.lock());
            if (looked_at.back() && looked_at.back()->covers(offset, bytes)) return looked_at.back();
        }
        return nullptr;
    }

    // The row ends with what is returned.
    static std::shared_ptr<const void> add(const std::shared_ptr<Table>& table, const Key& key,
                                           const MappingRef& mapping) {
        const std::lock_guard lock(table->mutex_);
        const auto row = table->rows_.emplace(key, mapping);
        return {nullptr, [table, row](const void*) {
                    const std::lock_guard held(table->mutex_);
                    table->rows_.erase(row);
                }};
    }

  private:
    std::mutex mutex_;
    std::multimap<Key, std::weak_ptr<Mapping>> rows_;
};

constexpr uint64_t own_lane = 0;  // no tenant's number

bool is_sealed(int seals) {
    return (seals & F_SEAL_FUTURE_WRITE) != 0;
}

std::unexpected<Error> allows_no_seal() {
    return fail(Errc::unsupported,
                "the memfd does not allow the daemon's seal (F_SEAL_FUTURE_WRITE): it is "
                "sealed against seals (F_SEAL_SEAL)");
}

// Waits for a punch in progress, and for whatever else holds the file's lock.
Result<void> seal(int memfd) {
    ::fcntl(memfd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL);
    if (is_sealed(::fcntl(memfd, F_GET_SEALS))) return {};
    return allows_no_seal();
}

Result<MappingRef> map_again(const Mapper::Wanted& wanted, Table& table) {
    struct stat status{};
    if (::fstat(wanted.memfd.get(), &status) != 0) return fail(Errc::io, "cannot read the memfd's number");
    const Table::Key key{wanted.host.lane, status.st_dev, status.st_ino};
    if (const MappingRef first = table.find(key, wanted.offset, wanted.bytes))
        return Mapping::doubled(*first, wanted.offset, wanted.bytes, wanted.host);
    return fail(Errc::unsupported,
                "the memfd is sealed against new writable mappings, as each is when it is registered first; "
                "only what this user has registered of it at this time can be registered once more");
}

// Of a client's making, so mmap() may wait for it, with the address space's lock held: only users who trust
// each other have that (memfds_in_place).
Result<MappingRef> map(const Mapper::Wanted& wanted, Table& table) {
    const int memfd = wanted.memfd.get();
    const int seals = std::max(::fcntl(memfd, F_GET_SEALS), 0);
    if ((::fcntl(memfd, F_GETFL) & O_ACCMODE) != O_RDWR)
        return fail(Errc::unsupported, "the memfd's descriptor is not open for reading and writing");
    if (is_sealed(seals)) return map_again(wanted, table);
    if ((seals & F_SEAL_SEAL) != 0) return allows_no_seal();
    return Mapping::of_client(memfd, wanted.offset, wanted.bytes, wanted.bytes_max, wanted.host);
}

// Memory of which no touch waits for its client.
Result<MappingRef> fit(const Mapper::Wanted& wanted, const std::shared_ptr<Table>& table,
                       std::string& unpinned) {
    const int memfd = wanted.memfd.get();
    NEXAR_TRY(MappingRef mapping, wanted.lent ? wanted.lent : map(wanted, *table));
    *mapping->charges() = wanted.charges;
    NEXAR_TRY_VOID(seal(memfd));
    if (mapping->page_size() == page_bytes) {
        NEXAR_TRY(Pins pins, pin(memfd, wanted.offset, mapping->bytes()));
        unpinned = std::move(pins.missing);
        mapping->keep(std::move(pins.holders));
    }
    const Backing& backing = mapping->backing();
    mapping->keep(Table::add(table, {wanted.host.lane, backing.device, backing.inode}, mapping));
    return mapping;
}

}  // namespace

struct Mapper::State {
    explicit State(Fd signal) : ready_fd(std::move(signal)) {}

    void done(Mapped mapped) {
        {
            const std::lock_guard lock(mutex);
            ready.push_back(std::move(mapped));
        }
        const uint64_t one = 1;
        static_cast<void>(::write(ready_fd.get(), &one, sizeof one));
    }

    // Unmaps what nobody can punch, or make huge pages of, any more. The rest, which a client has kept from
    // being sealed or never written, is kept mapped, and charged, until he has returned it: unmapping it
    // could wait for him.
    void let_go(const Fd& memfd, MappingRef mapping) const {
        if (seal(memfd.get())) {
            auto pins = pin(memfd.get(), 0, mapping->bytes());
            if (pins) return mapping->keep(std::move(pins->holders));
        }
        unreturned->add([kept = std::move(mapping)] { return kept->is_returned(); });
    }

    const Fd ready_fd;
    const std::shared_ptr<Table> table = std::make_shared<Table>();
    const std::shared_ptr<Unreturned> unreturned = std::make_shared<Unreturned>();
    std::atomic<bool> looks{false};
    std::mutex mutex;
    std::vector<Mapped> ready;
};

Result<std::unique_ptr<Mapper>> Mapper::open(size_t threads_max) {
    Fd signal(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!signal) return loop::fail_without_descriptor("an eventfd");
    NEXAR_TRY(loop::Lanes lanes, loop::Lanes::open(threads_max));
    return std::unique_ptr<Mapper>(new Mapper(std::make_shared<State>(std::move(signal)), std::move(lanes)));
}

void Mapper::map(Wanted wanted) {
    const uint64_t lane = wanted.host.lane;
    // What was lent is bounded by may_lend(), and its client could make it wait if it were unmapped here.
    if (!wanted.lent && lanes_.weight(lane) >= waiting_max)
        return state_->done({wanted.session,
                             wanted.region,
                             fail(Errc::no_memory, "this user has " + std::to_string(waiting_max) +
                                                       " pieces of memory that wait to be mapped"),
                             {},
                             {},
                             {},
                             {},
                             0});
    lanes_.add(lane, 1, [state = state_, wanted = std::move(wanted)]() mutable {
        std::string unpinned;
        auto mapping = fit(wanted, state->table, unpinned);
        if (!mapping && wanted.lent) state->let_go(wanted.memfd, std::move(wanted.lent));
        wanted.lent.reset();
        wanted.memfd.reset();
        state->done({wanted.session, wanted.region, std::move(mapping), std::move(unpinned), {}, {}, {}, 0});
    });
}

void Mapper::make(Wish wish) {
    const uint64_t lane = wish.host.lane;
    lanes_.add(lane, 1, [state = state_, wish = std::move(wish)]() mutable {
        auto lent = Mapping::to_lend(wish.name, wish.bytes, wish.host);
        Mapped made{wish.session, 0, fail(Errc::ok, ""), {}, {}, {}, std::move(wish.answer), wish.host.lane};
        if (lent) {
            *lent->mapping->charges() = std::move(wish.charges);
            made.mapping = std::move(lent->mapping);
            made.memfd = std::move(lent->memfd);
            made.copy = std::move(lent->copy);
        } else {
            made.mapping = fail(lent.error());
        }
        state->done(std::move(made));
    });
}

void Mapper::take_back(uint64_t lane, Mapping::Lent lent, ChargeRef turn) {
    lanes_.add(lane, 1, [state = state_, lent = std::move(lent), counted = std::move(turn)]() mutable {
        lent.copy.reset();
        state->let_go(lent.memfd, std::move(lent.mapping));
    });
}

bool Mapper::may_lend(uint64_t lane) const {
    return lanes_.weight(lane) < waiting_max;
}

const std::shared_ptr<Unreturned>& Mapper::unreturned() const {
    return state_->unreturned;
}

void Mapper::look() {
    if (state_->unreturned->empty() || state_->looks.exchange(true)) return;
    lanes_.add(own_lane, 1, [state = state_] {
        state->looks = false;
        state->unreturned->look();
    });
}

void Mapper::look_for(SessionId session, loop::Releaser& unmapper, uint64_t lane) {
    unmapper.release(lane, {.connection = [state = state_, session] {
                         state->unreturned->look();
                         state->done({session, 0, nullptr, {}, {}, {}, {}, 0, true});
                     }});
}

int Mapper::ready_fd() const {
    return state_->ready_fd.get();
}

std::vector<Mapper::Mapped> Mapper::take() {
    const std::lock_guard lock(state_->mutex);
    uint64_t count = 0;
    static_cast<void>(::read(state_->ready_fd.get(), &count, sizeof count));
    return std::exchange(state_->ready, {});
}

}  // namespace nexar::local
