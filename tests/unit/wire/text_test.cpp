// Text from other hosts: which text is clean, and how other text is replaced.
#include "wire/text.hpp"

#include <catch2/catch_test_macros.hpp>

namespace nexar::wire {
namespace {

TEST_CASE("clean text is UTF-8 without control characters", "[wire]") {
    for (const char* good : {"", "train", "Jörg's job", "训练", "🚂", "a\xC2\xA0z", "\xF4\x8F\xBF\xBF"})
        CHECK(is_clean_text(good));
    for (const char* bad :
         {"a\n", "\x7f", "\xC2\x80", "\xC0\xAF", "\xE0\x80\xAF", "\xED\xA0\x80", "\xF0\x80\x80\xAF",
          "\xF4\x90\x80\x80", "\xF8\x88\x80\x80\x80", "\x80", "\xE2\x82", "\xff"})
        CHECK_FALSE(is_clean_text(bad));
    CHECK_FALSE(is_clean_text(std::string_view("a\0b", 3)));
}

TEST_CASE("clean_text replaces what is not clean and cuts between characters", "[wire]") {
    CHECK(clean_text("a\tb\xff"
                     "c",
                     100) == "a?b?c");
    CHECK(clean_text("äöü", 5) == "äö");
    CHECK(clean_text("äöü", 6) == "äöü");
    CHECK(clean_text("anything", 0).empty());
    for (int byte = 0; byte < 256; ++byte)
        CHECK(is_clean_text(clean_text(std::string(3, static_cast<char>(byte)), 10)));
}

}  // namespace
}  // namespace nexar::wire
