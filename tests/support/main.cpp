// The main function of every unit test, compiled once. Test files include the small Catch2 headers only.
#include <unistd.h>

#include <catch2/catch_session.hpp>

// A detached thread that begins while the process ends may not be suspended in time for the search for leaks,
// which then misses that the thread itself holds what it was given.
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
extern "C" const char* __lsan_default_suppressions() {
    return "leak:quiet_thread\n";
}
// A forked child that exits has not the threads of this process, so what they held would look lost there.
namespace {
const pid_t searched = ::getpid();
}
extern "C" int __lsan_is_turned_off() {
    return ::getpid() != searched;
}
#endif
#endif

int main(int argc, char* argv[]) {
    return Catch::Session().run(argc, argv);
}
