// Tables, units, and lines of several ranks.
#include <catch2/catch_test_macros.hpp>
#include <string>

#include "nexarctl/line_writer.hpp"
#include "nexarctl/table.hpp"
#include "nexarctl/units.hpp"

using namespace nexarctl;

TEST_CASE("sizes are read by powers of 1024, and nothing else is a size") {
    REQUIRE(parse_bytes("0") == 0);
    REQUIRE(parse_bytes("1000") == 1000);
    REQUIRE(parse_bytes("64M") == 64u << 20);
    REQUIRE(parse_bytes("64MiB") == 64u << 20);
    REQUIRE(parse_bytes("3 kB") == 3072);
    REQUIRE(parse_bytes("2T") == uint64_t{2} << 40);
    for (const char* bad :
         {"", "M", "-1", "1.5M", "64X", "64MM", "1 M x", "99999999999999999999", "99999999999T"}) {
        CAPTURE(bad);
        REQUIRE_FALSE(parse_bytes(bad));
    }
}

TEST_CASE("sizes and times are shown with the unit a person would choose") {
    REQUIRE(bytes_text(0) == "0 B");
    REQUIRE(bytes_text(1023) == "1023 B");
    REQUIRE(bytes_text(1536) == "1.5 KiB");
    REQUIRE(bytes_text(uint64_t{1} << 30) == "1 GiB");
    REQUIRE(bytes_text((uint64_t{1} << 20) - 1) == "1.0 MiB");
    REQUIRE(milliseconds_text(0.21) == "0.21 ms");
    REQUIRE(milliseconds_text(4200) == "4.2 s");
    REQUIRE(milliseconds_text(200'000) == "3 min 20 s");
    REQUIRE(seconds_text(90061) == "1 d 1 h");
    REQUIRE(seconds_text(7200) == "2 h");
}

TEST_CASE("a table aligns its columns, and no cell can break its line") {
    Table table({"NAME", ">SIZE", "STATE"});
    table.row({"a", "10", "up"});
    table.row({"longer \u00e4", "7", ""});
    table.row({"x\ny\x1b[2J", "1", "down"});
    REQUIRE(table.text() ==
            "NAME      SIZE  STATE\n"
            "a           10  up\n"
            "longer \u00e4     7  -\n"
            "x?y?[2J      1  down\n");
    CHECK(printable("a\u009b2J\u202eb\u2066\u2028\u061c") == "a?2J?b???");
    CHECK(printable("\u00a0\u00e9\u2013\u20ac\xe2\x80") == "\u00a0\u00e9\u2013\u20ac\xe2\x80");
}

TEST_CASE("lines come out whole and prefixed, however the bytes arrive") {
    LineWriter writer = LineWriter::prefixed("[3] ");
    REQUIRE(writer.add("ab").empty());
    REQUIRE(writer.add("c\n\nde") == "[3] abc\n[3] \n");
    REQUIRE(writer.add("").empty());
    REQUIRE(writer.end() == "[3] de\n");
    REQUIRE(writer.end().empty());
}

TEST_CASE("as JSON each line is one object, whatever bytes it has") {
    LineWriter writer = LineWriter::json(7, "stderr");
    REQUIRE(writer.add("say \"hi\"\nab\tc\xff") ==
            "{\"rank\":7,\"stream\":\"stderr\",\"line\":\"say \\\"hi\\\"\"}\n");
    REQUIRE(writer.end() == "{\"rank\":7,\"stream\":\"stderr\",\"line\":\"ab\\tc\xef\xbf\xbd\"}\n");
}

TEST_CASE("a line without an end is printed in pieces, and takes no more memory than a piece") {
    LineWriter writer = LineWriter::prefixed("[0] ");
    std::string out;
    for (int i = 0; i < 100; ++i) out += writer.add(std::string(10'000, 'x'));
    out += writer.end();
    size_t letters = 0, lines = 0;
    for (const char c : out) {
        letters += c == 'x';
        lines += c == '\n';
    }
    REQUIRE(letters == 1'000'000);
    REQUIRE(lines == 1'000'000 / LineWriter::line_bytes_max + 1);
}
