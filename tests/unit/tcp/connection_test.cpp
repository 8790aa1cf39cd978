// The TCP machine: who attaches and who does not, what arrives, and what a hostile or broken peer gets.
#include "tcp/connection.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "pair.hpp"

using namespace nexar;
using namespace nexar::test;
using tcp::CloseCode;
using tcp::Mode;

namespace {

void write(End& end, Class cls, Bytes bytes) {
    end.machine->write(cls, std::span(&bytes, 1));
}
uint64_t code_of(const End& end) {
    return end.machine->ended() ? end.machine->ended()->code : UINT64_MAX;
}
bool has(const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("two members attach over TLS and exchange all classes, each in order", "[tcp][B1][B2]") {
    for (const Mode mode : {Mode::tls, Mode::plain}) {
        TcpPair p;
        p.start(mode);
        p.run();
        REQUIRE(p.open());
        CHECK(p.a.machine->peer() == p.b.leaf.id);
        CHECK(p.b.machine->peer() == p.a.leaf.id);
        std::map<Class, std::vector<std::byte>> sent;
        for (uint64_t i = 0; i < 60; ++i) {
            const auto cls = static_cast<Class>(i % 4);
            const auto bytes = pattern(1 + (i * 7919) % 70000, i);
            if (p.a.machine->room(cls) < bytes.size()) continue;
            write(p.a, cls, bytes);
            sent[cls].insert(sent[cls].end(), bytes.begin(), bytes.end());
            if (i % 5 == 0) p.run(2);
        }
        p.run();
        CHECK(p.b.got == sent);
        for (size_t c = 0; c < class_count; ++c) {
            const auto cls = static_cast<Class>(c);
            CHECK(p.a.machine->acknowledged(cls) == p.a.machine->written(cls));
        }
        CHECK_FALSE(p.ended());
    }
}

TEST_CASE("without TLS a chunk is delivered whole, when its checksums were found right", "[tcp][B7]") {
    TcpPair p;
    p.start(Mode::plain);
    p.run();
    const auto chunk = pattern(256 * 1024 + 120, 3);
    write(p.a, Class::bulk, chunk);
    p.run();
    CHECK(p.b.deliveries == 1);
    CHECK(p.b.got[Class::bulk] == chunk);
}

TEST_CASE("what is encrypted where it is arrives as it was written, whatever the wire takes of it", "[tcp]") {
    for (const size_t piece : {SIZE_MAX, size_t{40'000}, size_t{5000}, size_t{511}})
        for (const size_t room : {size_t{1} << 20, size_t{30'000}}) {
            TcpPair p;
            p.start();
            p.run();
            REQUIRE(p.open());
            p.a.machine->allow_direct(true);
            p.b.places = true;
            p.a.wire.piece = p.b.wire.piece = piece;
            p.forth.room = room;
            std::map<Class, std::vector<std::byte>> sent;
            Random random(piece + room);
            for (uint64_t i = 0; i < 60; ++i) {
                const auto cls = random.one_in(3)   ? Class::control
                                 : random.one_in(3) ? Class::small
                                                    : Class::bulk;
                const auto bytes = pattern(1 + random.below(random.one_in(2) ? 300 : 262'264), i);
                const size_t cut = random.below(bytes.size());
                const Bytes parts[] = {Bytes(bytes).first(cut / 2),
                                       Bytes(bytes).subspan(cut / 2, cut - cut / 2),
                                       Bytes(bytes).subspan(cut)};
                if (p.a.machine->room(cls) >= bytes.size()) {
                    p.a.machine->write(cls, parts);
                    sent[cls].insert(sent[cls].end(), bytes.begin(), bytes.end());
                }
                p.run(random.one_in(2) ? 0 : 12);
            }
            p.run(2000);
            CHECK(p.b.got == sent);
            CHECK(sent[Class::bulk].size() > 1'000'000);
            CHECK(p.b.bytes_placed > 500'000);
            CHECK_FALSE(p.ended());
        }
}

// 262,264 bytes are 16 TLS records of 16,384 bytes and a short one, each 22 bytes longer than its payload.
TEST_CASE("the wire gets three TLS records at once, and the rest at the end of what is written", "[tcp]") {
    TcpPair p;
    p.start();
    p.run();
    p.a.machine->allow_direct(GENERATE(true, false));
    const auto chunk = pattern(262'264, 5);
    std::vector<size_t> sends;
    size_t before = p.forth.passed;
    const auto note = [&] {
        if (p.forth.passed > before) sends.push_back(p.forth.passed - before);
        before = p.forth.passed;
    };
    p.a.wire.on_send = note;
    write(p.a, Class::bulk, chunk);
    p.a.turn(p.now);
    note();
    REQUIRE(sends.size() == 6);
    for (size_t i = 0; i < 5; ++i) CHECK(sends[i] == 3 * (16'384 + 22));
    p.run();
    CHECK(p.b.got[Class::bulk] == chunk);
}

TEST_CASE("a connection that waits for work holds no buffer, whatever it has sent", "[tcp]") {
    for (const auto mode : {tcp::Mode::tls, tcp::Mode::plain}) {
        TcpPair p;
        p.start(mode);
        p.run();
        p.a.machine->allow_direct(GENERATE(true, false));
        const auto chunk = pattern(262'144, 5);
        size_t most = 0;
        p.a.wire.on_send = [&] { most = std::max(most, p.a.machine->stream_buffer_bytes()); };
        for (const size_t room : {size_t{1} << 20, size_t{30'000}}) {
            p.forth.room = room;  // also where the wire takes a part only
            write(p.a, Class::bulk, chunk);
            p.run(200);
        }
        CHECK(most > 16'384);
        CHECK(p.a.machine->stream_buffer_bytes() <= 8192);
        CHECK(p.b.got[Class::bulk].size() == 2 * chunk.size());
    }
}

TEST_CASE("what leaves directly has a limit for each turn, and none waits in a queue", "[tcp][B9]") {
    TcpPair p;
    p.start(GENERATE(Mode::tls, Mode::plain));
    p.run();
    p.a.machine->allow_direct(true);
    const auto chunk = pattern(256 * 1024, 3);
    size_t written = 0;
    while (p.a.machine->room(Class::bulk) >= chunk.size()) {
        write(p.a, Class::bulk, chunk);
        written += chunk.size();
    }
    CHECK(written == tcp::Connection::direct_bytes_per_turn);
    p.run(4);
    CHECK(p.a.machine->room(Class::bulk) >= chunk.size());
    p.forth.room = 100'000;  // what the peer does not read
    write(p.a, Class::bulk, chunk);
    CHECK(p.a.machine->room(Class::bulk) == 0);
    p.a.turn(p.now);
    CHECK(p.a.machine->room(Class::bulk) == 0);
    CHECK(p.a.machine->room(Class::control) > 0);
    p.forth.room = 1u << 20;
    p.run();
    CHECK(p.b.got[Class::bulk].size() == written + chunk.size());
    CHECK(p.a.machine->room(Class::bulk) >= chunk.size());
}

TEST_CASE("what has come of a long record is acknowledged before the rest", "[tcp][P13]") {
    TcpPair p;
    p.start();
    p.run();
    p.a.machine->allow_direct(true);
    p.forth.room = 100'000;
    write(p.a, Class::bulk, pattern(256 * 1024, 1));
    p.b.turn(p.now);  // what passed; the rest waits at the sender
    p.now += Duration{10'000'000};
    p.b.turn(p.now);
    p.a.machine->on_readable(p.now, 1u << 20);
    const uint64_t acknowledged = p.a.machine->acknowledged(Class::bulk);
    CHECK(acknowledged == p.b.got[Class::bulk].size());
    CHECK((acknowledged > 50'000 && acknowledged < 100'000));
    p.run();
    CHECK(p.a.machine->acknowledged(Class::bulk) == 256 * 1024);
    CHECK_FALSE(p.ended());
}

TEST_CASE("a connection that ends while bytes leave directly takes no more", "[tcp][B10]") {
    const bool waits = GENERATE(false, true);  // what was written before finds that it is broken
    TcpPair p;
    p.start(GENERATE(Mode::tls, Mode::plain));
    p.run();
    p.a.machine->allow_direct(true);
    if (waits) write(p.a, Class::small, pattern(100, 1));
    p.a.wire.broken = true;
    write(p.a, Class::bulk, pattern(200'000, 1));
    CHECK(p.a.machine->ended());
    CHECK(has(p.a.machine->ended()->reason, "broken for the test"));
    write(p.a, Class::bulk, pattern(200'000, 1));
    CHECK(p.a.machine->is_done());
    p.a.turn(p.now);
    CHECK(p.a.machine->room(Class::bulk) == 0);
}

// The link writes a full list of acknowledgements from inside of on_bytes() [T5].
TEST_CASE("what a receiver writes while it reads changes nothing of what it reads", "[tcp][T5]") {
    struct Answering final : tcp::ByteReceiver {
        End* end = nullptr;
        std::vector<std::byte> answer = pattern(49'192, 9), got;
        void on_bytes(Class, Bytes bytes) override {
            write(*end, Class::control, answer);
            got.insert(got.end(), bytes.begin(), bytes.end());
        }
    } answering;
    TcpPair p;
    p.start(GENERATE(Mode::tls, Mode::plain));
    p.run();
    REQUIRE(p.open());
    answering.end = &p.b;
    p.b.machine->set_receiver(&answering);
    p.b.machine->allow_direct(true);
    const auto bytes = pattern(100'000, 4);
    write(p.a, Class::bulk, bytes);
    p.run();
    CHECK((answering.got == bytes));
    CHECK(p.a.got[Class::control].size() == p.b.machine->written(Class::control));
    CHECK_FALSE(p.ended());
}

TEST_CASE("control passes bulk that waits, and bulk is not starved", "[tcp][B9]") {
    TcpPair p;
    p.start();
    p.run();
    p.forth.room = 0;
    write(p.a, Class::bulk, pattern(512 * 1024, 1));
    p.a.turn(p.now);
    write(p.a, Class::control, pattern(64, 2));
    p.forth.room = 160 * 1024;
    p.a.turn(p.now);
    p.b.turn(p.now);
    CHECK(p.b.got[Class::control].size() == 64);
    CHECK(p.b.machine->received_bytes() < 256 * 1024);
    p.forth.room = 1u << 20;
    p.run();
    CHECK(p.b.got[Class::bulk].size() == 512 * 1024);
}

TEST_CASE("every boundary of pieces gives the same bytes", "[tcp]") {
    for (const Mode mode : {Mode::tls, Mode::plain})
        for (const size_t piece : {size_t{1}, size_t{2}, size_t{7}, size_t{16}, size_t{511}, size_t{4097}}) {
            TcpPair p;
            p.a.wire.piece = p.b.wire.piece = piece;
            p.start(mode);
            p.run(200);
            REQUIRE(p.open());
            const auto bytes = pattern(40000, piece);
            write(p.a, Class::bulk, bytes);
            write(p.b, Class::small, bytes);
            p.run(200);
            CHECK(p.b.got[Class::bulk] == bytes);
            CHECK(p.a.got[Class::small] == bytes);
        }
}

TEST_CASE("a connection goes on from wherever its bytes were cut for a while", "[tcp]") {
    for (const Mode mode : {Mode::tls, Mode::plain}) {
        TcpPair p;
        p.start(mode);
        p.run();
        REQUIRE(p.open());
        std::vector<std::byte> sent;
        for (const size_t size : {size_t{1}, size_t{300}, size_t{7000}, size_t{20'000}}) {
            const auto bytes = pattern(size, size);
            write(p.a, Class::bulk, bytes);
            sent.insert(sent.end(), bytes.begin(), bytes.end());
            p.a.turn(p.now);
        }
        for (const std::byte byte : std::exchange(p.forth.bytes, {})) {
            p.forth.bytes.push_back(byte);
            p.b.turn(p.now);
        }
        CHECK_FALSE(p.ended());
        CHECK(p.b.got[Class::bulk] == sent);
    }
}

TEST_CASE("a certificate of another root is refused", "[tcp][B1]") {
    TcpPair p(other_authority());
    p.start();
    p.run();
    CHECK_FALSE(p.b.machine->is_open());
    REQUIRE(p.b.machine->ended());
    CHECK(has(p.b.machine->ended()->reason, "not valid here"));
    CHECK(p.a.machine->ended());
    CHECK(p.b.deliveries == 0);
}

TEST_CASE("another node than the dialled one is refused by the dialler", "[tcp][B1]") {
    TcpPair p;
    p.start();
    const NodeId other = authority().issue("other").id;
    p.a.keys.rows[other] = p.a.keys.rows[p.b.leaf.id];
    p.a.start(Mode::tls, other);
    p.run();
    CHECK_FALSE(p.a.machine->is_open());
    REQUIRE(p.a.machine->ended());
    CHECK(has(p.a.machine->ended()->reason, other.short_hex()));
}

TEST_CASE("keys of different control connections attach nothing", "[tcp][B2]") {
    for (const Mode mode : {Mode::tls, Mode::plain}) {
        TcpPair p;
        p.a.keys.rows.clear();
        p.introduce(TcpPair::key(8), TcpPair::key(7));
        p.start(mode);
        p.run();
        CHECK_FALSE(p.a.machine->is_open());
        CHECK_FALSE(p.b.machine->is_open());
        CHECK(p.b.machine->waits_for_key());
    }
}

TEST_CASE("an acceptor waits for the key of a control connection that it learns later", "[tcp][B3]") {
    TcpPair p;
    p.b.keys.rows.clear();
    p.start();
    p.run();
    REQUIRE(p.b.machine->waits_for_key());
    p.b.keys.rows[p.a.leaf.id].add(p.a.shared.incarnation, TcpPair::key(7));
    p.b.machine->on_keys(p.now);
    p.run();
    CHECK(p.open());
}

TEST_CASE("the key before the present one attaches, and the one before that does not", "[tcp][B3]") {
    TcpPair p;
    p.b.keys.rows[p.a.leaf.id].add(p.a.shared.incarnation, TcpPair::key(8));
    p.start();
    p.run();
    CHECK(p.open());
    TcpPair q;
    q.b.keys.rows[q.a.leaf.id].add(q.a.shared.incarnation, TcpPair::key(8));
    q.b.keys.rows[q.a.leaf.id].add(q.a.shared.incarnation, TcpPair::key(9));
    q.start();
    q.run();
    CHECK_FALSE(q.open());
}

TEST_CASE("another incarnation or shard than the proof's is refused", "[tcp][B2]") {
    TcpPair p;
    p.start();
    p.a.keys.rows[p.b.leaf.id].incarnation = {9, 9};
    p.run();
    CHECK_FALSE(p.a.machine->is_open());
    CHECK_FALSE(p.b.machine->is_open());
    TcpPair q;
    q.a.shared.shard = 1;
    q.start();
    q.run();
    CHECK(code_of(q.b) == static_cast<uint64_t>(CloseCode::not_attached));
    CHECK_FALSE(q.a.machine->is_open());
}

// In plain mode a listener receives all: what it repeats attaches nothing, since the acceptor's nonce is new.
TEST_CASE("what was received once attaches nothing again", "[tcp][B2]") {
    std::vector<std::byte> copied;
    TcpPair p;
    p.start(Mode::plain);
    for (int i = 0; i < 10; ++i) {
        p.a.turn(p.now);
        copied.insert(copied.end(), p.forth.bytes.begin(), p.forth.bytes.end());
        p.b.turn(p.now);
    }
    REQUIRE(p.open());
    End again(p.forth, p.back, 5);
    again.shared.self = p.b.shared.self;
    again.shared.incarnation = p.b.shared.incarnation;
    again.keys.rows = p.b.keys.rows;
    p.forth.bytes = copied;
    again.start(Mode::plain, std::nullopt);
    for (int i = 0; i < 10; ++i) again.turn(p.now);
    CHECK_FALSE(again.machine->is_open());
    CHECK(code_of(again) == static_cast<uint64_t>(CloseCode::not_attached));
}

TEST_CASE("a connection that is cut at any byte ends at both ends, and delivers no part of a record",
          "[tcp][B4][B10]") {
    TcpPair whole;
    whole.start();
    whole.run();
    REQUIRE(whole.open());
    const uint64_t opened_at = whole.forth.passed;
    for (uint64_t cut = 1; cut < opened_at + 3000; cut += cut < 300 ? 1 : 97) {
        TcpPair p;
        p.start();
        const auto chunk = pattern(2000, cut);
        bool written = false;
        for (int i = 0; i < 40 && !p.forth.ended; ++i) {
            if (p.a.machine->is_open() && !std::exchange(written, true)) write(p.a, Class::bulk, chunk);
            p.a.turn(p.now);
            if (p.forth.passed >= cut) {
                const size_t over = std::min<size_t>(p.forth.passed - cut, p.forth.bytes.size());
                p.forth.bytes.resize(p.forth.bytes.size() - over);
                p.forth.ended = true;
            }
            p.b.turn(p.now);
        }
        CAPTURE(cut);
        const auto& got = p.b.got[Class::bulk];
        CHECK((got.empty() || got == chunk));
        if (p.forth.ended) CHECK(p.b.machine->ended());
    }
}

TEST_CASE("a changed byte ends the connection before it reaches the link", "[tcp][B4][B7]") {
    for (const Mode mode : {Mode::tls, Mode::plain})
        for (size_t at = 0; at < 1500; at += 13) {
            TcpPair p;
            p.start(mode);
            p.run();
            REQUIRE(p.open());
            const auto chunk = pattern(1400, at);
            write(p.a, Class::bulk, chunk);
            p.a.turn(p.now);
            if (at >= p.forth.bytes.size()) break;
            p.forth.bytes[at] ^= std::byte{0x20};
            p.b.turn(p.now);
            p.forth.ended = true;
            p.b.turn(p.now);
            CAPTURE(at);
            CHECK(p.b.got.empty());
            CHECK(p.b.machine->ended());
        }
}

TEST_CASE("garbage instead of a handshake ends the connection", "[tcp][B4]") {
    for (const Mode mode : {Mode::tls, Mode::plain}) {
        TcpPair p;
        p.start(mode);
        const auto garbage = pattern(4096, 1);
        p.forth.bytes.assign(garbage.begin(), garbage.end());
        for (int i = 0; i < 5; ++i) p.b.turn(p.now);
        CHECK(p.b.machine->ended());
        CHECK_FALSE(p.b.machine->is_open());
    }
}

TEST_CASE("TLS to an acceptor of plain connections, and the reverse, is refused", "[tcp][B7]") {
    for (const bool dialler_plain : {false, true}) {
        TcpPair p;
        p.a.start(dialler_plain ? Mode::plain : Mode::tls, p.b.leaf.id);
        p.b.start(dialler_plain ? Mode::tls : Mode::plain, std::nullopt);
        p.run();
        CHECK_FALSE(p.a.machine->is_open());
        CHECK_FALSE(p.b.machine->is_open());
        CHECK(p.b.machine->ended());
    }
}

TEST_CASE("a close gives the peer code and reason, and what was written before may be lost", "[tcp][B10]") {
    TcpPair p;
    p.start();
    p.run();
    p.a.machine->close(19, "another connection is kept");
    p.run();
    REQUIRE(p.b.machine->ended());
    CHECK(p.b.machine->ended()->by_peer);
    CHECK(p.b.machine->ended()->code == 19);
    CHECK(p.b.machine->ended()->reason == "another connection is kept");
    CHECK(p.a.machine->is_done());
}

TEST_CASE("a half-closed connection is lost", "[tcp][B10]") {
    TcpPair p;
    p.start();
    p.run();
    p.forth.ended = true;
    p.run(2);
    CHECK(p.b.machine->ended());
}

TEST_CASE("a peer that does not read fills its own queue only", "[tcp][B9]") {
    TcpPair p;
    p.start();
    p.run();
    p.forth.room = 0;
    const auto chunk = pattern(256 * 1024, 1);
    size_t written = 0;
    while (p.a.machine->room(Class::bulk) >= chunk.size()) {
        write(p.a, Class::bulk, chunk);
        p.a.turn(p.now);
        REQUIRE((written += chunk.size()) <= 4u << 20);
    }
    CHECK_FALSE(p.a.machine->ended());
    while (!p.a.machine->ended()) write(p.a, Class::control, pattern(64 * 1024, 1));
    CHECK(code_of(p.a) == static_cast<uint64_t>(CloseCode::send_overflow));
}

TEST_CASE("while credit is held a peer sends no more than a limit", "[tcp][B9]") {
    TcpPair p;
    p.start();
    p.run();
    p.b.machine->hold_credit(true);
    p.forth.room = 64u << 20;
    for (int i = 0; i < 20; ++i) {
        if (p.a.machine->room(Class::bulk) > 256 * 1024) write(p.a, Class::bulk, pattern(256 * 1024, 1));
        p.run(1);
    }
    CHECK(p.b.got[Class::bulk].size() <= tcp::Connection::held_bytes_max + 300 * 1024);
    p.b.machine->hold_credit(false);
    p.run();
    CHECK(p.b.got[Class::bulk].size() == p.a.machine->written(Class::bulk));
}
