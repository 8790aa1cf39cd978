#include "tables.hpp"

#include <pthread.h>
#include <sys/mman.h>

#include <cstdlib>

namespace nexar::c {

namespace {

// A request's handle: slot (12 bits), session (12), generation (36).
constexpr unsigned session_shift = 12, generation_shift = 24;
static_assert(NEXAR_SHM_SLOTS_MAX <= 1 << session_shift);

// A page that the kernel empties in a fork's child (madvise(2), MADV_WIPEONFORK).
uint32_t* make_guard() {
    void* page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return nullptr;
    ::madvise(page, 4096, MADV_WIPEONFORK);
    return static_cast<uint32_t*>(page);
}

// The tables' locks are held for moments; a fork in such a moment must not leave them locked in the child.
void lock_tables() {
    sessions().lock();
    groups().lock();
}
void unlock_tables() {
    groups().unlock();
    sessions().unlock();
}

Error handle_error(bool closed, const char* what) {
    return closed ? Error{Errc::closed, std::string("the ") + what + " was closed", -1, -1, {}}
                  : Error{Errc::bad_handle, std::string("not the handle of a ") + what, -1, -1, {}};
}

}  // namespace

Sessions& sessions() {
    static Sessions* table = new Sessions;  // never destroyed: threads may still call while the process exits
    return *table;
}
Groups& groups() {
    static Groups* table = [] {
        auto* out = new Groups;
        ::pthread_atfork(lock_tables, unlock_tables, unlock_tables);
        return out;
    }();
    return *table;
}

void say_goodbye_at_exit() {
    static const int registered = std::atexit([] {
        for (uint32_t i = 0; i < Sessions::capacity_max; ++i) {
            SessionPin pin;
            if (sessions().pin_index(i, pin) == Sessions::Found::open && pin->fork_epoch == fork_epoch())
                pin->say_goodbye();
        }
    });
    (void)registered;  // without room for a handler an exit looks like a crash, as _exit() does
}

uint32_t fork_epoch() {
    static uint32_t* const guard = make_guard();
    static std::atomic<uint32_t> epochs{0};  // copied by fork, so a child's next one is new
    if (!guard) return 1;
    std::atomic_ref<uint32_t> word(*guard);
    uint32_t epoch = word.load(std::memory_order_relaxed);
    if (epoch != 0) [[likely]]
        return epoch;
    const uint32_t fresh = epochs.fetch_add(1) + 1;
    return word.compare_exchange_strong(epoch, fresh) ? fresh : epoch;
}

namespace {
Result<SessionPin> checked(Sessions::Found found, SessionPin pin) {
    if (found != Sessions::Found::open)
        return fail(handle_error(found == Sessions::Found::closed, "session"));
    if (pin->fork_epoch != fork_epoch())
        return fail(Errc::closed, "the session belongs to the process that forked this one: open another");
    return pin;
}
}  // namespace

Result<SessionPin> session_of(uint64_t handle) {
    SessionPin pin;
    const auto found = sessions().pin(handle, pin);
    return checked(found, std::move(pin));
}

Result<SessionPin> session_of(const nexar_session* handle) {
    if (!handle) return fail(Errc::bad_handle, "the session is NULL");
    return session_of(number_of(handle));
}

Result<PinnedGroup> group_of(const nexar_group* handle) {
    if (!handle) return fail(Errc::bad_handle, "the group is NULL");
    PinnedGroup out;
    const auto found = groups().pin(number_of(handle), out.group);
    if (found != Groups::Found::open) return fail(handle_error(found == Groups::Found::closed, "group"));
    NEXAR_TRY(out.session, session_of(out.group->session));
    return out;
}

Result<PinnedRequest> request_of(nexar_request request) {
    PinnedRequest out;
    out.slot.index = static_cast<uint32_t>(request) & (NEXAR_SHM_SLOTS_MAX - 1);
    out.slot.generation = request >> generation_shift;
    if (out.slot.generation == 0 || out.slot.generation > shm::SlotPool::generation_mask)
        return fail(Errc::bad_handle, "not the handle of a request");
    SessionPin pin;
    const auto found = sessions().pin_index(static_cast<uint32_t>(request >> session_shift) & 0xfff, pin);
    NEXAR_TRY(out.session, checked(found, std::move(pin)));
    if (out.slot.index >= out.session->slots() || !out.session->may_have_handle(out.slot))
        return fail(Errc::bad_handle, "not the handle of a request");
    return out;
}

nexar_request request_handle(const Session& session, const Slot& slot) {
    return slot.generation << generation_shift | uint64_t{session.handle_index} << session_shift | slot.index;
}

}  // namespace nexar::c
