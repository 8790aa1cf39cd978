// The control codec: every message survives a round trip; malformed input is refused and has no other effect.
#include "wire/codec.hpp"

#include <catch2/catch_test_macros.hpp>
#include <set>

#include "core/random.hpp"
#include "samples.hpp"
#include "support/lies.hpp"
#include "wire/limits.hpp"
#include "wire/text.hpp"

namespace nexar {
bool operator==(const Error& a, const Error& b) {
    return a.code == b.code && a.text == b.text && a.rank == b.rank && a.other_rank == b.other_rank &&
           a.node == b.node && a.pid == b.pid;
}
}  // namespace nexar

namespace nexar::wire {
bool operator==(const FailedSet& a, const FailedSet& b) {
    return a.error == b.error && a.excluded == b.excluded;
}
bool operator==(const Cut& a, const Cut& b) {
    return a.seq == b.seq && a.failed == b.failed;
}
bool operator==(const AcceptedCut& a, const AcceptedCut& b) {
    return a.ballot == b.ballot && a.cut == b.cut;
}

namespace {

// Field by field, by structured bindings: a field added to a struct without a line here does not compile.
struct Same {
    template <class A, class B>
    bool operator()(const A&, const B&) const {
        return false;
    }
#define NEXAR_SAME(Kind, ...)                             \
    bool operator()(const Kind& a, const Kind& b) const { \
        auto tie = [](const Kind& m) {                    \
            const auto& [__VA_ARGS__] = m;                \
            return std::tuple(__VA_ARGS__);               \
        };                                                \
        return tie(a) == tie(b);                          \
    }
    NEXAR_SAME(Hello, f1, f2, f3, f4, f5, f6, f7)
    NEXAR_SAME(RosterUpdate, f1)
    bool operator()(const Heartbeat&, const Heartbeat&) const { return true; }
    NEXAR_SAME(Goodbye, f1)
    NEXAR_SAME(ProbeRequest, f1, f2, f3)
    NEXAR_SAME(ProbeReply, f1, f2)
    NEXAR_SAME(GroupOpen, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12)
    NEXAR_SAME(GroupWithdraw, f1, f2, f3, f4)
    NEXAR_SAME(GroupPrepared, f1, f2, f3)
    NEXAR_SAME(GroupCommit, f1, f2)
    NEXAR_SAME(GroupQuery, f1)
    NEXAR_SAME(GroupUnlisted, f1)
    NEXAR_SAME(GroupLeader, f1)
    NEXAR_SAME(CreateQuery, f1, f2, f3, f4, f5, f6)
    NEXAR_SAME(CreateAnswer, f1, f2, f3, f4, f5, f6, f7, f8, f9)
    NEXAR_SAME(RenewalRequest, f1)
    NEXAR_SAME(RenewalReply, f1, f2, f3)
    NEXAR_SAME(GroupRefused, f1, f2, f3)
    NEXAR_SAME(GroupStatusRequest, f1, f2)
    NEXAR_SAME(RankGone, f1, f2, f3, f4, f5, f6, f7)
    NEXAR_SAME(SuspicionReport, f1, f2, f3, f4, f5, f6)
    NEXAR_SAME(GroupFailed, f1, f2, f3, f4)
    NEXAR_SAME(GroupFreeze, f1, f2, f3, f4)
    NEXAR_SAME(GroupReport, f1, f2, f3, f4, f5, f6, f7)
    NEXAR_SAME(GroupCut, f1, f2, f3, f4)
    NEXAR_SAME(GroupAccepted, f1, f2, f3, f4)
    NEXAR_SAME(GroupEnd, f1, f2, f3)
    NEXAR_SAME(GroupDeparted, f1, f2)
    NEXAR_SAME(OpAbort, f1, f2, f3, f4)
    NEXAR_SAME(OpAnnounce, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13)
    NEXAR_SAME(ArrivalQuery, f1, f2, f3, f4)
    NEXAR_SAME(MessageOffer, f1, f2, f3, f4, f5, f6, f7, f8, f9)
    NEXAR_SAME(MessageWithdraw, f1, f2)
    NEXAR_SAME(MessageRefused, f1, f2, f3)
    NEXAR_SAME(MessageCredit, f1, f2, f3, f4)
#undef NEXAR_SAME
    static auto members(const std::vector<GroupMemberRecord>& list) {
        std::vector<std::tuple<RequestId, NodeId, uint32_t, uint32_t, Incarnation, uint64_t, Nonce>> out;
        for (const auto& [request, node, rank, pid, incarnation, features, nonce] : list)
            out.emplace_back(request, node, rank, pid, incarnation, features, nonce);
        return out;
    }
    bool operator()(const GroupPrepare& a, const GroupPrepare& b) const {
        auto tie = [](const GroupPrepare& m) {
            const auto& [group, epoch, key, name, list, plan, timeout] = m;
            return std::tuple(group, epoch, key, name, members(list), timeout);
        };
        return tie(a) == tie(b) && a.plan == b.plan;
    }
    bool operator()(const GroupStatus& a, const GroupStatus& b) const {
        auto tie = [](const GroupStatus& m) {
            const auto& [id, size, present, others, gave_up] = m;
            return std::tuple(id, size, members(present), others, gave_up);
        };
        return tie(a) == tie(b);
    }
    bool operator()(const ArrivalReply& a, const ArrivalReply& b) const {
        auto tie = [](const ArrivalReply& m) {
            std::vector<std::tuple<uint32_t, uint64_t, bool>> list;
            for (const auto& [rank, next, stalled] : m.ranks) list.emplace_back(rank, next, stalled);
            const auto& [group, nonce, ranks] = m;
            return std::tuple(group, nonce, list);
        };
        return tie(a) == tie(b);
    }
};

bool same(const Message& a, const Message& b) {
    return std::visit(Same{}, a, b);
}

template <class T>
T sample() {
    for (const Message& m : sample_messages())
        if (const T* found = std::get_if<T>(&m)) return *found;
    FAIL("no sample");
    return {};
}

std::string refusal_of(const Message& message) {
    const auto result = decode(encode(message));
    if (result) return "accepted";
    CHECK(result.error().code == Errc::protocol_error);
    return result.error().text;
}
bool says(const std::string& text, std::string_view what) {
    UNSCOPED_INFO(text);
    return text.find(what) != std::string::npos;
}

TEST_CASE("every kind of message survives encoding and decoding, field by field", "[wire]") {
    std::set<size_t> kinds;
    for (const Message& message : sample_messages()) {
        CAPTURE(message.index());
        const auto back = decode(encode(message));

        REQUIRE(back);
        REQUIRE(back->index() == message.index());
        CHECK(same(*back, message));
        kinds.insert(message.index());
    }
    REQUIRE(kinds.size() == std::variant_size_v<Message>);
}

TEST_CASE("a message's bytes do not depend on what was encoded before it", "[wire]") {
    RosterUpdate roster;  // more than one segment
    for (uint8_t i = 0; i < 120; ++i) {
        NodeRecord& record = roster.nodes.emplace_back();
        record.node.bytes.fill(i + 1);
        record.addresses.assign(4, std::string(40, 'a'));
    }
    for (const Message& message : sample_messages()) {
        CAPTURE(message.index());
        const auto alone = encode(message);
        REQUIRE(encode(roster).size() > size_t{1024} * 8);
        CHECK(encode(message) == alone);
        CHECK(encode(message) == alone);
    }
}

TEST_CASE("every truncation of every message is refused", "[wire]") {
    for (const Message& message : sample_messages()) {
        const auto bytes = encode(message);
        for (size_t n = 0; n < bytes.size(); ++n) {
            CAPTURE(message.index(), n);
            // In its own allocation: the address sanitizer detects a read beyond its end.
            const std::vector<std::byte> cut(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(n));
            const auto result = decode(cut);
            REQUIRE_FALSE(result);
            REQUIRE(result.error().code == Errc::protocol_error);
        }
    }
}

TEST_CASE("flipped bits are refused or make another well formed message, never a crash", "[wire]") {
    Random random(1);
    size_t refused = 0, accepted = 0;
    for (const Message& message : sample_messages()) {
        const auto bytes = encode(message);
        for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
            auto bad = bytes;
            bad[bit / 8] ^= std::byte{1} << (bit % 8);
            if (random.one_in(2))
                bad[random.below(bad.size())] ^= static_cast<std::byte>(1 + random.below(255));
            const auto result = decode(bad);
            if (result) {
                ++accepted;
                REQUIRE(decode(encode(*result)));  // what was accepted is within the limits
            } else {
                ++refused;
            }
        }
    }
    INFO("refused " << refused << " accepted " << accepted);
    REQUIRE(refused > 0);
    REQUIRE(accepted > 0);
}

TEST_CASE("random bytes are refused", "[wire]") {
    Random random(2);
    for (int round = 0; round < 20000; ++round) {
        std::vector<std::byte> bytes(8 * random.below(40));
        for (std::byte& b : bytes) b = static_cast<std::byte>(random.one_in(3) ? random.next() : 0);
        if (!bytes.empty()) bytes[0] = bytes[1] = bytes[2] = bytes[3] = std::byte{0};  // one segment
        if (bytes.size() >= 8) bytes[4] = static_cast<std::byte>(bytes.size() / 8 - 1);
        (void)decode(bytes);
    }
    REQUIRE_FALSE(decode(Bytes{}));
}

TEST_CASE("bytes after the end of a message are refused", "[wire]") {
    auto bytes = encode(Heartbeat{});
    bytes.resize(bytes.size() + 8);
    const auto result = decode(bytes);
    REQUIRE_FALSE(result);
    CHECK(says(result.error().text, "left over"));
}

TEST_CASE("a kind of message that is not known is refused, and named", "[wire][V4]") {
    auto bytes = encode(Heartbeat{});
    constexpr size_t kind_at = 16;  // behind the segment table and the root pointer
    REQUIRE(bytes[kind_at] == std::byte{2});
    bytes[kind_at] = std::byte{200};
    const auto result = decode(bytes);
    REQUIRE_FALSE(result);
    CHECK(result.error().code == Errc::protocol_error);
    CHECK(says(result.error().text, "200"));
}

TEST_CASE("a message over the size limit is refused before it is read", "[wire]") {
    const std::vector<std::byte> bytes(message_bytes_max + 8);
    const auto result = decode(bytes);
    REQUIRE_FALSE(result);
    CHECK(says(result.error().text, std::to_string(message_bytes_max)));
}

TEST_CASE("the largest group fits in one message and comes back whole", "[wire]") {
    auto prepare = sample<GroupPrepare>();
    const NodeId node = prepare.members[0].node;
    prepare.members.clear();
    for (uint32_t i = 0; i < ranks_max; ++i)
        prepare.members.push_back({{node, i * 3u}, node, i, i + 9, {7, 8}});

    const auto bytes = encode(prepare);
    const auto back = decode(bytes);

    CHECK(bytes.size() < message_bytes_max);
    REQUIRE(back);
    CHECK(same(*back, prepare));
}

TEST_CASE("a failure of a newer version is read as its class's general one", "[wire][V2]") {
    for (const auto& [sent, read] : {std::pair(-199, Errc::call),
                                     {-299, Errc::retry},
                                     {-399, Errc::operation},
                                     {-499, Errc::open},
                                     {-599, Errc::recoverable},
                                     {-699, Errc::group},
                                     {-799, Errc::session},
                                     {-899, Errc::system},
                                     {-601, Errc::peer_lost},
                                     {-300, Errc::operation}}) {
        CAPTURE(sent);
        auto abort = sample<OpAbort>();
        abort.error.code = static_cast<Errc>(sent);
        const auto back = decode(encode(abort));
        REQUIRE(back);
        CHECK(std::get<OpAbort>(*back).error.code == read);
    }
    auto end = sample<GroupEnd>();
    end.cut.failed.error.code = static_cast<Errc>(-699);
    CHECK(std::get<GroupEnd>(*decode(encode(end))).cut.failed.error.code == Errc::group);
}

TEST_CASE("values over their limits are refused, naming the field and the limit", "[wire]") {
    SECTION("group size") {
        auto open = sample<GroupOpen>();
        open.size = ranks_max + 1;
        CHECK(says(refusal_of(open), "group size is 65537, allowed is at most 65536"));
        open.size = 0;
        CHECK(says(refusal_of(open), "group size is 0"));
    }
    SECTION("rank") {
        auto open = sample<GroupOpen>();
        open.rank = -2;
        CHECK(says(refusal_of(open), "rank is -2"));
        open.rank = ranks_max;
        CHECK(says(refusal_of(open), "rank is 65536, allowed is -1 to 65535"));
        auto gone = sample<RankGone>();
        gone.rank = ranks_max;
        CHECK(says(refusal_of(gone), "rank is 65536"));
    }
    SECTION("time-outs") {
        auto open = sample<GroupOpen>();
        open.timeouts.barrier_ms = -2;
        CHECK(says(refusal_of(open), "a time-out is -2 ms, allowed is -1 to 2147483648"));
        auto prepare = sample<GroupPrepare>();
        prepare.timeouts.rpc_ms = -1;  // agreed: set by a member, or by the leader
        CHECK(says(refusal_of(prepare), "a time-out is -1 ms, allowed is 0 to 2147483648"));
        prepare.timeouts.rpc_ms = timeout_ms_max + 1;
        CHECK(says(refusal_of(prepare), "a time-out is 2147483649 ms"));
    }
    SECTION("ranks of a prepared group out of order") {
        auto prepare = sample<GroupPrepare>();
        std::swap(prepare.members[1].rank, prepare.members[2].rank);
        CHECK(says(refusal_of(prepare), "member 1 has rank 2"));
        prepare.members.clear();
        CHECK(says(refusal_of(prepare), "without members"));
    }
    SECTION("enums") {
        auto abort = sample<OpAbort>();
        abort.error.code = static_cast<Errc>(12345);
        CHECK(says(refusal_of(abort), "error code 12345 is unknown"));
        for (const int code : {2, 99, -1, -99, -900, -999, -1000, INT32_MIN}) {
            abort.error.code = static_cast<Errc>(code);
            CHECK(says(refusal_of(abort), "error code " + std::to_string(code) + " is unknown"));
        }
        auto freeze = sample<GroupFreeze>();
        freeze.failed.error.code = Errc::mismatch;
        CHECK(says(refusal_of(freeze), "by MISMATCH"));
    }
    SECTION("features of more nodes than there are") {
        std::string key = "0";
        for (size_t i = 1; i < GroupKey{}.size(); ++i) key += ", 0";
        const auto result = decode(lies::from_text(R"({"groupPrepare": {"key": [)" + key +
                                                   R"(], "members": {"features": ["1", "2", "3"]}}})"));
        REQUIRE_FALSE(result);
        CHECK(says(result.error().text, "count of group nodes' features is 3, allowed is at most 0"));
    }
    SECTION("shards") {
        auto hello = sample<Hello>();
        hello.bulk_shards = bulk_shards_max + 1;
        CHECK(says(refusal_of(hello), "bulk_shards is 65"));
    }
}

TEST_CASE("the end of an operation, a message or a group carries a failure, and not one of a daemon's own",
          "[wire][H13]") {
    const std::vector<Errc> never{Errc::ok,
                                  Errc::pending,
                                  static_cast<Errc>(2),
                                  static_cast<Errc>(-9),
                                  Errc::io,
                                  Errc::bad_config,
                                  Errc::bad_token,
                                  static_cast<Errc>(-1000),
                                  static_cast<Errc>(INT32_MAX),
                                  static_cast<Errc>(INT32_MIN)};
    for (const Errc code : never) {
        CAPTURE(static_cast<int>(code));
        auto abort = sample<OpAbort>();
        abort.error.code = code;
        CHECK(says(refusal_of(abort), "code"));
        auto refused = sample<MessageRefused>();
        refused.error.code = code;
        CHECK(says(refusal_of(refused), "code"));
        auto end = sample<GroupEnd>();
        end.cut.failed.error.code = code;
        CHECK(refusal_of(end) != "accepted");
        auto one_open = sample<GroupRefused>();
        one_open.error.code = code;
        CHECK(says(refusal_of(one_open), "code"));
    }
    for (const Errc code :
         {Errc::aborted, Errc::mismatch, Errc::timed_out, Errc::peer_lost, Errc::daemon_lost}) {
        CAPTURE(static_cast<int>(code));
        auto abort = sample<OpAbort>();
        abort.error.code = code;
        CHECK(refusal_of(abort) == "accepted");
    }
}

TEST_CASE("PENDING is an error of an attempt to form a group, and of nothing else", "[wire][H13]") {
    auto prepared = sample<GroupPrepared>();
    for (const Errc code : {Errc::ok, Errc::pending, Errc::link_lost}) {
        prepared.error.code = code;
        CHECK(refusal_of(prepared) == "accepted");
    }
    prepared.error.code = Errc::io;
    CHECK(says(refusal_of(prepared), "code"));
    auto attempt = sample<GroupRefused>();
    attempt.id.number = 0;  // the whole attempt
    attempt.error.code = Errc::pending;
    CHECK(refusal_of(attempt) == "accepted");
    attempt.error.code = Errc::ok;
    CHECK(says(refusal_of(attempt), "code"));
    auto renewal = sample<RenewalReply>();
    for (const Errc code : {Errc::ok, Errc::unsupported, Errc::bad_certificate}) {
        renewal.error.code = code;
        CHECK(refusal_of(renewal) == "accepted");
    }
    renewal.error.code = Errc::pending;
    CHECK(says(refusal_of(renewal), "code"));
}

// The codec accepts every number, because another version may know more; the engine reports a mismatch.
TEST_CASE("kinds, types and operators of every number are read", "[wire][H1]") {
    auto announce = sample<OpAnnounce>();
    announce.kind = announce.dtype = announce.op = 255;
    CHECK(refusal_of(announce) == "accepted");
    auto offer = sample<MessageOffer>();
    offer.dtype = 255;
    CHECK(refusal_of(offer) == "accepted");
}

TEST_CASE("a list of members that was read can be written again: each node is in the table once",
          "[wire][H12]") {
    auto status = sample<GroupStatus>();
    status.present.clear();
    const auto node = [](uint32_t i) {
        NodeId id = sample<GroupStatus>().id.origin;
        id.bytes[0] = static_cast<uint8_t>(i), id.bytes[1] = static_cast<uint8_t>(i >> 8);
        return id;
    };
    constexpr uint32_t nodes = group_nodes_max;
    for (uint32_t i = 0; i < nodes; ++i)
        status.present.push_back({{node((i + 1) % nodes), i}, node(i), i, i + 9, {7, i + 1}});

    const auto back = decode(encode(status));

    REQUIRE(back);
    CHECK(same(*back, status));
    CHECK(encode(*back) == encode(status));
}

TEST_CASE("free text is made clean and cut on its way out, so that it cannot make a message undecodable",
          "[wire]") {
    auto abort = sample<OpAbort>();
    abort.error.text = "line one\nline two \xff" + std::string(5000, 'x');
    const auto back = decode(encode(abort));

    REQUIRE(back);
    const std::string& text = std::get<OpAbort>(*back).error.text;
    CHECK(text.starts_with("line one?line two ?xxx"));
    CHECK(text.size() == text_bytes_max);
}

TEST_CASE("control characters in text that arrives are refused", "[wire]") {
    auto bytes = encode(Goodbye{"maintenance"});
    for (std::byte& b : bytes)
        if (b == std::byte{'m'}) b = std::byte{'\n'};
    const auto result = decode(bytes);
    REQUIRE_FALSE(result);
    CHECK(says(result.error().text, "control characters"));
}

}  // namespace
}  // namespace nexar::wire
