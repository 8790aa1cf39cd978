// See tables.hpp.
#include "tables.hpp"

#include <pthread.h>
#include <semaphore.h>
#include <sys/mman.h>

#include <cstdlib>

// Of the C++ ABI; <cxxabi.h> does not declare it everywhere.
extern "C" int __cxa_atexit(void (*function)(void*), void* argument, void* library) noexcept;

namespace nexar::c {

namespace {

// A page that the kernel empties in a fork's child (madvise(2), MADV_WIPEONFORK).
uint32_t* guard_page = nullptr;
uint32_t* make_guard() {
    void* page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return nullptr;
    ::madvise(page, 4096, MADV_WIPEONFORK);
    guard_page = static_cast<uint32_t*>(page);
    return guard_page;
}

// A fork while another thread holds a table's lock must not leave it locked in the child.
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

namespace {

// Raised when the process exits, not when the library is unloaded. While the process exits other threads may
// still use the library's memory, so nothing is freed.
sem_t* exiting = nullptr;

#if defined(__SANITIZE_THREAD__)
constexpr bool thread_sanitizer = true;
#elif defined(__has_feature)
constexpr bool thread_sanitizer = __has_feature(thread_sanitizer);
#else
constexpr bool thread_sanitizer = false;
#endif

bool process_exits() {
    int raised = 0;
    return exiting == nullptr || ::sem_getvalue(exiting, &raised) != 0 || raised != 0;
}

// Skips sessions that a forked child has from its parent.
template <class Act>
void for_each_own_session(Act act) {
    for (uint32_t i = 0; i < Sessions::capacity_max; ++i) {
        SessionPin pin;
        if (sessions().pin_index(i, pin) == Sessions::Found::open && pin->fork_epoch == fork_epoch())
            act(i, *pin);
    }
}

void at_exit_or_unload() {
    if (process_exits())
        return for_each_own_session([](uint32_t, Session& session) { session.send_goodbye(); });
    for_each_own_session([](uint32_t index, Session& session) {
        sessions().close_index(index);
        session.close();
    });
    groups().close_all();
    delete &groups();
    delete &sessions();
    if (guard_page) ::munmap(guard_page, 4096);
}

}  // namespace

// exit() calls all handlers, the last registered first; dlclose() calls only this library's handlers. So a
// handler that is registered for no library (sem_post, with a semaphore) distinguishes the two: it has run
// before this one only in exit().
void close_at_exit_or_unload() {
    static const int registered = [] {
        const int handler = std::atexit(at_exit_or_unload);
        // The thread sanitizer calls such a handler without its argument, so there every end counts as
        // exit().
        if constexpr (thread_sanitizer) return handler;
        exiting = static_cast<sem_t*>(std::malloc(sizeof(sem_t)));  // outlives the library
        if (!exiting) return handler;
        ::sem_init(exiting, 0, 0);
        const auto raise = reinterpret_cast<void (*)(void*)>(reinterpret_cast<void (*)()>(::sem_post));
        if (__cxa_atexit(raise, exiting, nullptr) != 0) exiting = nullptr;
        return handler;
    }();
    (void)registered;  // without a handler an exit counts as a crash, as _exit() does
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
    if (!out.group->open.load(std::memory_order_acquire)) return fail(handle_error(false, "group"));
    NEXAR_TRY(out.session, session_of(out.group->session));
    return out;
}

Result<PinnedRequest> request_of(nexar_request request) {
    PinnedRequest out;
    out.slot.index = static_cast<uint32_t>(request) & (NEXAR_SHM_SLOTS_MAX - 1);
    out.slot.generation = request >> request_generation_shift;
    if (out.slot.generation == 0 || out.slot.generation > shm::SlotPool::generation_mask)
        return fail(Errc::bad_handle, "not the handle of a request");
    SessionPin pin;
    const auto found =
        sessions().pin_index(static_cast<uint32_t>(request >> request_session_shift) & 0xfff, pin);
    if (found == Sessions::Found::never) return fail(Errc::bad_handle, "not the handle of a request");
    NEXAR_TRY(out.session, checked(found, std::move(pin)));
    if (out.slot.index >= out.session->slots() || !out.session->may_have_handle(out.slot))
        return fail(Errc::bad_handle, "not the handle of a request");
    return out;
}

}  // namespace nexar::c
