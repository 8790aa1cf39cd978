// Hostile bytes: every header truncated, every bit of it flipped, random bytes. No crash, and a named rule
// [W9].
#include <catch2/catch_test_macros.hpp>

#include "harness.hpp"
#include "support/processor_time.hpp"

namespace nexar::link::test {

namespace {

using Frame = std::vector<std::byte>;

Frame concat(Bytes a, Bytes b) {
    Frame out(a.begin(), a.end());
    out.insert(out.end(), b.begin(), b.end());
    return out;
}

FrameStart start_of(FrameKind kind, size_t frame_bytes) {
    FrameStart s{};
    s.length = frame_bytes - length_bytes;
    s.kind = static_cast<uint8_t>(kind);
    s.header_words = static_cast<uint8_t>(header_bytes_of(kind) / 8);
    s.generation = 1;
    s.incarnation = 1000;
    return s;
}

Frame data_frame(const TransferKey& k, size_t bytes, uint32_t chunk_bytes, uint32_t chunk) {
    DataFrame f{};
    const uint32_t payload = bytes_of_chunk(bytes, chunk_bytes, chunk);
    f.start = start_of(FrameKind::data, sizeof f + payload);
    f.key = to_wire(k);
    f.plan_hash = 11;
    f.descriptor_hash = 22;
    f.bytes = bytes;
    f.offset = uint64_t{chunk} * chunk_bytes;
    f.chunk = chunk;
    f.chunk_bytes = chunk_bytes;
    f.payload_bytes = payload;
    return concat(bytes_of_struct(f), pattern(payload, chunk));
}

Frame list_frame(FrameKind kind, const std::vector<RangeEntry>& entries, uint16_t flags = 0) {
    ListFrame f{};
    const size_t bytes = entries.size() * sizeof(RangeEntry);
    f.start = start_of(kind, sizeof f + bytes);
    f.count = static_cast<uint32_t>(entries.size());
    f.flags = flags;
    return concat(bytes_of_struct(f), {reinterpret_cast<const std::byte*>(entries.data()), bytes});
}

Frame grant_frame(const TransferKey& k, size_t bytes, uint32_t chunk_bytes, uint32_t first_word,
                  uint32_t words) {
    GrantEntry e{to_wire(k), 11, 22, bytes, chunk_bytes, 0, first_word, words};
    ListFrame f{};
    f.start = start_of(FrameKind::grant, sizeof f + sizeof e + words * 8);
    f.count = 1;
    f.entry_bytes = sizeof e;
    return concat(concat(bytes_of_struct(f), bytes_of_struct(e)),
                  std::vector<std::byte>(words * 8, std::byte{0x55}));
}

// A node with some of everything posted, that talks to a peer which we play.
struct Target {
    Target() : net(2, 1), to(6400), from(6400) {
        std::vector<RecvSpec> recvs{recv_spec(key(1, 1, 0), 0, to, 640, Class::bulk, true),
                                    recv_spec(key(1, 1, 1), 0, to, 640, Class::small)};
        std::vector<SendSpec> sends{send_spec(key(1, 1, 0), 0, from, 640),
                                    send_spec(key(1, 1, 1), 0, from, 640, Class::small)};
        net[1].post(batch(1, recvs, sends));
        net.flush();
    }
    // The first rule that was broken, or "".
    std::string give(Class cls, const Frame& bytes) {
        net[1].on_bytes(peer(0), cls, bytes);
        net.flush();
        return net.garbage.empty() ? "" : net.garbage.front();
    }
    Net net;
    Memory to, from;
};

const std::vector<std::pair<Class, Frame>>& good_frames() {
    static const std::vector<std::pair<Class, Frame>> frames = [] {
        const WireKey k = to_wire(key(1, 1, 0));
        const Frame message =
            concat(bytes_of_struct(start_of(FrameKind::message, 32 + 100)), pattern(100, 1));
        return std::vector<std::pair<Class, Frame>>{
            {Class::control, message},
            {Class::bulk, data_frame(key(1, 1, 0), 6400, 640, 3)},
            {Class::small, data_frame(key(1, 1, 1), 6400, 640, 9)},
            {Class::small, data_frame(key(5, 5, 5), 100, 64, 1)},
            {Class::control, grant_frame(key(1, 1, 0), 6400, 640, 0, 1)},
            {Class::control, grant_frame(key(9, 9, 9), 6400, 640, 0, 0)},
            {Class::control, list_frame(FrameKind::ack, {{k, 0, 10}})},
            {Class::control, list_frame(FrameKind::nack, {{to_wire(key(1, 1, 1)), 2, 3}})},
            {Class::control, list_frame(FrameKind::ask, {{k, 0, 0}, {to_wire(key(7, 7)), 0, 0}}, ask_last)},
        };
    }();
    return frames;
}

DataFrame good_data() {
    return read_at<DataFrame>(good_frames()[1].second, 0);
}

std::string rule_of(const DataFrame& f) {
    const char* rule = broken_rule(f);
    return rule == nullptr ? "" : rule;
}

}  // namespace

TEST_CASE("the frames that the other tests break are good") {
    for (const auto& [cls, frame] : good_frames()) {
        Target t;
        CHECK(t.give(cls, frame) == "");
    }
}

TEST_CASE("every bit of every frame flipped: no crash, and the node still works or names the rule", "[W9]") {
    for (const auto& [cls, frame] : good_frames())
        for (size_t bit = 0; bit < std::min<size_t>(frame.size(), 200) * 8; ++bit) {
            Target t;
            Frame bad = frame;
            bad[bit / 8] ^= std::byte{1} << (bit % 8);
            t.give(cls, bad);
            t.give(cls, frame);  // whatever it now reads this as
            CHECK(t.to.canaries_live());
        }
}

TEST_CASE("every frame truncated at every byte: nothing happens until the rest comes") {
    for (const auto& [cls, frame] : good_frames())
        for (size_t n = 0; n < frame.size(); ++n) {
            Target t;
            CHECK(t.give(cls, Frame(frame.begin(), frame.begin() + static_cast<std::ptrdiff_t>(n))) == "");
            CHECK(t.net[1].stats(peer(0)).chunks_applied == 0);
            CHECK(t.give(cls, Frame(frame.begin() + static_cast<std::ptrdiff_t>(n), frame.end())) == "");
        }
}

TEST_CASE("longer headers and entries have the same effect: what is not known of them is skipped", "[V3]") {
    for (const auto& [cls, frame] : good_frames()) {
        const size_t header = header_bytes_of(read_at<FrameStart>(frame, 0));
        for (const nexar::test::More more :
             {nexar::test::More{8, 8}, {0, 24}, {40, 0}, {header_bytes_max - header, 400}}) {
            const Frame with_more = nexar::test::longer(frame, more);
            Target plain, at_once, one_by_one;
            CHECK(plain.give(cls, frame) == "");
            CHECK(at_once.give(cls, with_more) == "");
            for (const std::byte& byte : with_more) CHECK(one_by_one.give(cls, {byte}) == "");
            for (Target* t : {&at_once, &one_by_one}) {
                const MeshStats have = t->net[1].stats(peer(0)), want = plain.net[1].stats(peer(0));
                CHECK(std::memcmp(&have, &want, sizeof have) == 0);
                CHECK(t->net.messages == plain.net.messages);
                CHECK(t->to.flat() == plain.to.flat());
                CHECK(t->give(cls, frame) == "");  // the next frame begins where this one ended
                CHECK(t->give(cls, with_more) == "");
            }
        }
    }
}

TEST_CASE("random bytes end the channel and nothing else") {
    Random random(3);
    for (size_t i = 0; i < 3000; ++i) {
        Target t;
        const auto cls = static_cast<Class>(random.below(class_count));
        Frame noise = pattern(64 + random.below(400), i);
        // Half of them get past the first rules.
        if (random.one_in(2)) {
            const FrameStart start =
                start_of(static_cast<FrameKind>(random.below(8)), 8 + random.below(noise.size()));
            std::memcpy(noise.data(), &start, sizeof start);
        }
        for (int n = 0; n < 4; ++n) t.give(cls, noise);
        CHECK(t.to.canaries_live());
        CHECK(t.net.garbage.size() <= 1);
    }
}

TEST_CASE("after garbage the channel is dead, and a new one works") {
    Target t;
    CHECK(t.give(Class::bulk, Frame(100, std::byte{0xFF})) != "");
    t.give(Class::bulk, good_frames()[1].second);
    CHECK(t.net[1].stats(peer(0)).chunks_applied == 0);
    t.net.connect(0, 1);
    CHECK(t.net[1].send_message(peer(0), pattern(10, 1)));
    CHECK(t.net.run());
    CHECK(t.net.messages.size() == 1);
    CHECK(t.net.garbage.size() == 1);
}

TEST_CASE("each rule of a data header is named", "[W9]") {
    const auto with = [](auto change) {
        DataFrame f = good_data();
        change(f);
        return rule_of(f);
    };
    CHECK(rule_of(good_data()) == "");
    CHECK(with([](DataFrame& f) { f.bytes = 0; }) == "transfer bytes are 0");
    CHECK(with([](DataFrame& f) { f.chunk_bytes = 0; }) ==
          "chunk bytes are not a multiple of 64 in (0, 256 KiB]");
    CHECK(with([](DataFrame& f) { f.chunk_bytes = 650; }) ==
          "chunk bytes are not a multiple of 64 in (0, 256 KiB]");
    CHECK(with([](DataFrame& f) { f.chunk_bytes = 512 * 1024; }) != "");
    CHECK(with([](DataFrame& f) { f.bytes = ~uint64_t{0}; }) == "a transfer has more than 2^20 chunks");
    CHECK(with([](DataFrame& f) { f.chunk = 10; }) == "chunk number beyond the transfer");
    CHECK(with([](DataFrame& f) { f.offset += 64; }) == "offset is not that of the chunk");
    CHECK(with([](DataFrame& f) { f.payload_bytes -= 1; }) == "payload bytes are not those of the chunk");
    CHECK(with([](DataFrame& f) { f.start.length += 1; }) == "frame length and payload bytes differ");
    CHECK(with([](DataFrame& f) { f.zero = 1; }) == "reserved field of a data header is not 0");
}

TEST_CASE("each rule about who speaks, and where, is named", "[V4]") {
    const auto with = [](Class cls, Frame frame, auto change) {
        auto start = read_at<FrameStart>(frame, 0);
        change(start);
        std::memcpy(frame.data(), &start, sizeof start);
        Target t;
        return t.give(cls, frame);
    };
    const auto same = [](FrameStart&) {};
    const Frame data = good_frames()[1].second, ack = good_frames()[6].second,
                message = good_frames()[0].second;
    CHECK(with(Class::control, data, same) == "data on the control stream");
    CHECK(with(Class::bulk, ack, same) == "grant, ack, nack or ask outside the control stream");
    CHECK(with(Class::bulk, message, same) == "message on a data stream");
    CHECK(with(Class::bulk, data, [](FrameStart& s) { s.header_words = 14; }) ==
          "frame header shorter than its kind has");
    CHECK(with(Class::control, message, [](FrameStart& s) { s.header_words = 33; }) ==
          "frame header over the size limit");
    CHECK(with(Class::control, message, [](FrameStart& s) { s.header_words = 17; }) ==
          "frame shorter than its header");
    CHECK(with(Class::bulk, data, [](FrameStart& s) { s.kind = 10; }) == "unknown frame kind");
    CHECK(with(Class::bulk, data, [](FrameStart& s) { s.flags = 1; }) == "frame flags are not 0");
    CHECK(with(Class::bulk, data, [](FrameStart& s) { s.length = 3; }) == "frame shorter than its header");
    CHECK(with(Class::bulk, data, [](FrameStart& s) { s.length = 1 << 30; }) ==
          "data frame over the size limit");
    CHECK(with(Class::control, message, [](FrameStart& s) { s.length = 1 << 30; }) ==
          "message over the size limit");
    CHECK(with(Class::control, ack, [](FrameStart& s) { s.length = 1 << 20; }) ==
          "list frame over the size limit");
    CHECK(with(Class::bulk, data, [](FrameStart& s) { s.generation = 2; }) ==
          "frame of a later channel generation");
    CHECK(with(Class::bulk, data, [](FrameStart& s) { s.incarnation = 1001; }) ==
          "the sender's incarnation is our own");
    CHECK(with(Class::bulk, data, [](FrameStart& s) { s.acks_seen = 1; }) == "more acks seen than were sent");
    CHECK(with(Class::bulk, data, [](FrameStart& s) { s.generation = 0; }) == "");  // an older one: skipped
    Target t;
    CHECK(t.give(Class::bulk, data) == "");
    Frame other = data;
    const uint64_t incarnation = 7;
    std::memcpy(other.data() + offsetof(FrameStart, incarnation), &incarnation, sizeof incarnation);
    CHECK(t.give(Class::bulk, other) == "the sender's incarnation changed");
}

TEST_CASE("each rule of lists and grants is named", "[W9]") {
    const auto give = [](const Frame& frame) { return Target().give(Class::control, frame); };
    const WireKey k = to_wire(key(1, 1, 0));
    CHECK(give(list_frame(FrameKind::ack, {{k, 0, 0}})) == "empty range of chunks");
    CHECK(give(list_frame(FrameKind::ack, {{k, 0, 11}})) == "range of chunks beyond the transfer");
    CHECK(give(list_frame(FrameKind::nack, {{k, 5, ~0u}})) == "range of chunks beyond the transfer");
    CHECK(give(list_frame(FrameKind::ask, {{k, 1, 0}})) == "an ask with a range");
    CHECK(give(list_frame(FrameKind::ack, {}, 1)) == "unknown list flag");
    CHECK(give(grant_frame(key(1, 1), 6400, 640, 0, 2)) == "grant's bitmap beyond the transfer");
    CHECK(give(grant_frame(key(1, 1), 6400, 640, 1, 0)) == "");
    CHECK(give(grant_frame(key(1, 1), 1 << 25, 64, 0, 257)) == "grant with too long a bitmap");
    Frame count = list_frame(FrameKind::ack, {{k, 0, 1}});
    count[32] = std::byte{200};
    CHECK(give(count) == "list length and count differ");
    Frame entry = list_frame(FrameKind::ack, {{k, 0, 1}});
    entry[offsetof(ListFrame, entry_bytes)] = std::byte{40};
    CHECK(give(entry) == "entries of a list shorter than their kind has");
    entry = grant_frame(key(1, 1), 6400, 640, 1, 0);
    entry[offsetof(ListFrame, entry_bytes)] = std::byte{72};
    CHECK(give(entry) == "entries of a list shorter than their kind has");
    entry[offsetof(ListFrame, entry_bytes)] = std::byte{88};
    CHECK(give(entry) == "grant beyond its frame");
    Frame anew = grant_frame(key(1, 1), 6400, 640, 1, 0);
    anew[40 + 68] = std::byte{2};
    CHECK(give(anew) == "grant anew amid its bitmap");
    anew[40 + 68] = std::byte{4};
    CHECK(give(anew) == "unknown grant flag");
    Frame words = grant_frame(key(1, 1), 1 << 25, 64, 0, 1);
    words[40 + 76] = std::byte{99};
    CHECK(give(words) == "grant's bitmap beyond its frame");
}

TEST_CASE(
    "early chunks without neighbours may be more than a frame of acks holds: the peer counts the frames",
    "[T5]") {
    Target t;
    constexpr uint32_t chunk_bytes = 64;
    const uint32_t early = static_cast<uint32_t>(ranges_per_frame) + 1;
    Memory to(2 * early * chunk_bytes);
    for (uint32_t i = 0; i < early; ++i)
        t.give(Class::small, data_frame(key(3, 1), to.flat().size(), chunk_bytes, 2 * i));
    Wire& wire = t.net.wire(1, 0);
    CHECK(wire.frames_of_kind[static_cast<size_t>(FrameKind::nack)] == 0);
    const size_t acks_before = wire.frames_of_kind[static_cast<size_t>(FrameKind::ack)];
    t.net[1].post(batch(50, {recv_spec(key(3, 1), 0, to, chunk_bytes, Class::small)}, {}));
    t.net.flush();
    const size_t acks = wire.frames_of_kind[static_cast<size_t>(FrameKind::ack)];
    CHECK(acks > acks_before + 1);
    ListFrame confirmation{};
    confirmation.start = start_of(FrameKind::nack, sizeof confirmation);
    confirmation.start.acks_seen = acks;
    confirmation.entry_bytes = sizeof(RangeEntry);
    CHECK(t.give(Class::control, concat(bytes_of_struct(confirmation), {})) == "");
}

TEST_CASE("a peer that brings one chunk on two streams at once cannot write into finished memory") {
    Target t;
    Memory to(640);
    t.net[1].post(batch(50, {recv_spec(key(3, 1), 0, to, 640, Class::small)}, {}));
    const Frame frame = data_frame(key(3, 1), 640, 640, 0);
    t.give(Class::small, Frame(frame.begin(), frame.begin() + 300));
    t.give(Class::bulk, frame);
    CHECK(t.net.done(1, 50));
    to.fill(std::byte{1});
    t.give(Class::small, Frame(frame.begin() + 300, frame.end()));
    CHECK(to.all(std::byte{1}));
    CHECK(t.net.end_of(1, 50).done == 1);
}

TEST_CASE("a peer that sends early data of ever new groups and ops is held to the limits", "[W8]") {
    MeshConfig config;
    config.eager_groups_max = 4;
    config.eager_room_per_group = 1000;
    config.incarnation = 1;
    Mesh mesh(config);
    Wire wire;
    mesh.attach(peer(0), 1, wire);
    for (uint64_t i = 0; i < 2000; ++i)
        mesh.on_bytes(peer(0), Class::small, data_frame(key(i % 50, i), 100, 128, 0));
    // Four groups, each with room for four chunks of 100 + 128 bytes.
    CHECK(mesh.stats(peer(0)).nacks_sent == 2000 - 4 * 4);
    CHECK_FALSE(mesh.poll_event().has_value());
}

TEST_CASE("an early chunk that comes again costs no look at the others that are held", "[W8]") {
    const auto again = [](uint32_t held) {
        MeshConfig config;
        config.eager_room_per_group = 4u << 20;
        config.incarnation = 1;
        Mesh mesh(config);
        Wire wire;
        mesh.attach(peer(0), 1, wire);
        const auto send = [&](uint32_t chunk) {
            mesh.on_bytes(peer(0), Class::small, data_frame(key(1, 1), 1 << 20, 64, chunk));
        };
        for (uint32_t i = 0; i < held; ++i) send(i);
        REQUIRE(mesh.stats(peer(0)).unexpected_bytes == size_t{held} * (64 + 128));
        Duration least{1'000'000'000};
        for (int i = 0; i < 200; ++i) {
            const Duration begin = nexar::test::processor_time();
            send(held - 1);
            least = std::min(least, nexar::test::processor_time() - begin);
        }
        return least;
    };
    const Duration few = again(8);
    CHECK(again(16'384) < 8 * few);
}

TEST_CASE("what a peer sends early is bounded by bytes over all its groups, and the room comes back",
          "[W8]") {
    MeshConfig config;
    config.early_bytes_max = 100'000;
    config.incarnation = 1;
    Mesh mesh(config);
    Wire wire;
    mesh.attach(peer(0), 1, wire);
    size_t most = 0;
    for (uint64_t i = 0; i < 5000; ++i) {  // each group is far below its own room
        mesh.on_bytes(peer(0), Class::small, data_frame(key(i % 500, i), 100, 128, 0));
        most = std::max(most, mesh.stats(peer(0)).early_bytes);
        REQUIRE(mesh.stats(peer(0)).early_bytes <= 100'000);
    }
    CHECK(most > 99'000);
    CHECK(mesh.stats(peer(0)).unexpected_bytes == 100'000 / 228 * 228);  // then every one is refused
    CHECK(mesh.stats(peer(0)).nacks_sent == 5000 - 100'000 / 228);

    for (uint64_t group = 0; group < 500; ++group) mesh.forget_group(key(group, 0).op.group);
    CHECK(mesh.stats(peer(0)).early_bytes == 0);
    mesh.on_bytes(peer(0), Class::small, data_frame(key(1000, 1), 100, 128, 0));
    CHECK(mesh.stats(peer(0)).unexpected_bytes == 228);

    for (uint64_t i = 2; i < 3000; ++i)  // too long to be kept: only that they want a grant is
        mesh.on_bytes(peer(0), Class::bulk, data_frame(key(1000 + i % 500, i), 100, 128, 0));
    CHECK(mesh.stats(peer(0)).early_bytes <= 100'000);
    CHECK_FALSE(mesh.poll_event().has_value());
}

}  // namespace nexar::link::test
