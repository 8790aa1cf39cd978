// As much of Catch2's macros as the tests of reduce/, shm/ and link/ use, for run.sh: there is no Catch2 for
// AArch64 where the build is for another CPU. main() runs every test case, and its status is 0 when all
// checks held.
#pragma once

#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <sstream>
#include <string>
#include <vector>

namespace mini {

struct Case {
    const char* name;
    bool may_fail;
    void (*run)();
};
inline std::vector<Case>& cases() {
    static std::vector<Case> all;
    return all;
}
inline size_t& failures() {
    static size_t count = 0;
    return count;
}
inline size_t& checks() {
    static size_t count = 0;
    return count;
}
// What INFO stated in the scopes around a check.
inline std::vector<std::string>& notes() {
    static std::vector<std::string> all;
    return all;
}

struct Register {
    Register(void (*run)(), const char* name, const char* tags = "") {
        cases().push_back({name, std::strstr(tags, "!mayfail") != nullptr, run});
    }
};

struct Note {
    explicit Note(const std::ostringstream& text) { notes().push_back(text.str()); }
    ~Note() { notes().pop_back(); }
    Note(const Note&) = delete;
    Note& operator=(const Note&) = delete;
};

struct Abandon {};

// A case is run once for each of its sections, or of the values that it generates: of one kind, side by side.
struct Turn {
    size_t now = 0, all = 1, sections = 0;
};
inline Turn& turn() {
    static Turn one;
    return one;
}
inline bool section() {
    const size_t number = turn().sections++;
    turn().all = turn().sections > turn().all ? turn().sections : turn().all;
    return number == turn().now;
}
template <class T>
T generate(std::initializer_list<T> values) {
    turn().all = values.size();
    return values.begin()[turn().now];
}

inline bool check(bool held, const char* what, const char* file, int line) {
    ++checks();
    if (held) return true;
    ++failures();
    std::printf("%s:%d: %s\n", file, line, what);
    for (const std::string& note : notes()) std::printf("    %s\n", note.c_str());
    return false;
}

}  // namespace mini

#define MINI_JOIN2(a, b) a##b
#define MINI_JOIN(a, b) MINI_JOIN2(a, b)
#define TEST_CASE(...)                                                                                   \
    static void MINI_JOIN(case_, __LINE__)();                                                            \
    static const mini::Register MINI_JOIN(register_, __LINE__)(MINI_JOIN(case_, __LINE__), __VA_ARGS__); \
    static void MINI_JOIN(case_, __LINE__)()
#define CHECK(...) mini::check(static_cast<bool>(__VA_ARGS__), #__VA_ARGS__, __FILE__, __LINE__)
#define CHECK_FALSE(...) mini::check(!static_cast<bool>(__VA_ARGS__), "not " #__VA_ARGS__, __FILE__, __LINE__)
#define REQUIRE(...)                                                                        \
    do {                                                                                    \
        if (!mini::check(static_cast<bool>(__VA_ARGS__), #__VA_ARGS__, __FILE__, __LINE__)) \
            throw mini::Abandon();                                                          \
    } while (false)
#define REQUIRE_FALSE(...) REQUIRE(!(__VA_ARGS__))
#define FAIL_CHECK(...) mini::check(false, std::string(__VA_ARGS__).c_str(), __FILE__, __LINE__)
#define STATIC_REQUIRE(...) static_assert(__VA_ARGS__)
#define INFO(...)               \
    const mini::Note MINI_JOIN( \
        note_, __LINE__)(static_cast<std::ostringstream&&>(std::ostringstream() << __VA_ARGS__))
#define CAPTURE(...) static_cast<void>(0)
#define SECTION(name) if (mini::section())
#define GENERATE(...) mini::generate({__VA_ARGS__})
