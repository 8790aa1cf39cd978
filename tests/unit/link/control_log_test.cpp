// The control log, docs/protocol/control_log.md: two of them over connections that are cut at random, and
// what each rule says about a peer that breaks it.
#include "link/control_log.hpp"

#include <catch2/catch_test_macros.hpp>
#include <deque>
#include <string>
#include <variant>

#include "core/random.hpp"

namespace nexar::link {
namespace {

constexpr Account account_a{1}, account_b{2};

std::vector<std::byte> message(size_t bytes, uint64_t value = 0) {
    std::vector<std::byte> out(std::max(bytes, sizeof value));
    std::memcpy(out.data(), &value, sizeof value);
    return out;
}

struct EntryOnWire {
    uint64_t number, applied;
    std::vector<std::byte> message;
};
struct AppliedOnWire {
    uint64_t applied;
};
using OnWire = std::variant<ControlLog::Resume, EntryOnWire, AppliedOnWire>;

// One side: its log, what it appended, what it applied.
struct Side {
    explicit Side(const ControlLogConfig& config) : log(config) {}
    ControlLog log;
    std::deque<OnWire> out;                      // on its way to the other side
    std::deque<std::vector<std::byte>> arrived;  // and not applied yet
    uint64_t appended = 0, applied = 0;          // since the log was begun
    size_t discards = 0;
    struct Waiting {
        size_t cost;
        Account account;
    };
    std::deque<Waiting> waiting;  // as the log should account for it
    uint64_t acknowledged = 0;    // so many of them are gone
    std::map<Account, size_t> reserved;
};

class Play {
  public:
    Play(uint64_t seed, const ControlLogConfig& config) : random_(seed), sides_{Side(config), Side(config)} {}

    // Empty: no promise was broken.
    std::string run() {
        for (int step = 0; step < 4000 && fault_.empty(); ++step) act();
        for (int step = 0; step < 4000 && fault_.empty(); ++step) finish();
        for (size_t i = 0; i < 2 && fault_.empty(); ++i)
            if (sides_[i].applied != sides_[1 - i].appended) fault_ = "a message was never applied";
        return fault_;
    }
    size_t cuts = 0, discards = 0;

  private:
    void act() {
        const size_t i = random_.below(2);
        switch (random_.below(8)) {
            case 0:
            case 1:
                append(sides_[i]);
                break;
            case 2:
                write(sides_[i]);
                break;
            case 3:
            case 4:
                deliver(sides_[i], sides_[1 - i]);
                break;
            case 5:
                apply(sides_[i]);
                break;
            case 6:
                acknowledge(sides_[i]);
                break;
            default:
                if (!connected_)
                    connect();
                else if (random_.one_in(12))
                    cut();
                else if (random_.one_in(100))
                    discard(sides_[i]);
        }
        check();
    }
    void finish() {
        if (!connected_) connect();
        for (size_t i = 0; i < 2 && connected_; ++i) {
            write(sides_[i]);
            deliver(sides_[i], sides_[1 - i]);
            apply(sides_[i]);
            acknowledge(sides_[i]);
        }
        check();
    }

    void append(Side& side) {
        const size_t bytes = 8 + random_.below(100);
        const Account account = random_.one_in(2) ? account_a : account_b;
        const size_t cost = ControlLog::cost_of(bytes);
        if (random_.one_in(4)) {
            REQUIRE(side.log.append(message(bytes, ++side.appended), std::nullopt));
            side.waiting.push_back({0, account});
        } else if (side.log.reserve(account, cost + 7)) {
            side.reserved[account] += 7;
            REQUIRE(side.log.append(message(bytes, ++side.appended), account));
            side.waiting.push_back({cost, account});
        }
        if (side.reserved[account] > 0 && random_.one_in(2)) {
            side.log.release(account, 7);
            side.reserved[account] -= 7;
        }
    }
    void write(Side& side) {
        if (!connected_) return;
        const ControlLog::Entry* entry = side.log.next();
        if (entry == nullptr) return;
        EntryOnWire frame{entry->number, 0, entry->message};
        frame.applied = side.log.take_ack();
        side.log.written();
        side.out.push_back(std::move(frame));
    }
    void acknowledge(Side& side) {
        if (connected_ && side.log.resumed() && side.log.ack_due())
            side.out.push_back(AppliedOnWire{side.log.take_ack()});
    }
    void apply(Side& side) {
        if (side.arrived.empty()) return;
        uint64_t value = 0;
        std::memcpy(&value, side.arrived.front().data(), sizeof value);
        side.log.applied(side.arrived.front().size());
        side.arrived.pop_front();
        if (value != side.applied + 1) return fail("a message was applied twice, or out of order");
        side.applied = value;
    }
    void deliver(Side& from, Side& to) {
        if (from.out.empty()) return;
        const OnWire frame = std::move(from.out.front());
        from.out.pop_front();
        const char* rule = nullptr;
        if (const auto* resume = std::get_if<ControlLog::Resume>(&frame)) {
            bool discarded = false;
            const bool same = resume->generation == to.log.generation();
            rule = to.log.on_resume(*resume, discarded);
            if (discarded) forget(to);
            if (same) acknowledged(to, resume->applied);
        } else if (const auto* applied = std::get_if<AppliedOnWire>(&frame)) {
            rule = to.log.on_applied(applied->applied);
            acknowledged(to, applied->applied);
        } else {
            const auto& entry = std::get<EntryOnWire>(frame);
            rule = to.log.on_applied(entry.applied);
            acknowledged(to, entry.applied);
            const ControlLog::Arrival arrival = to.log.on_entry(entry.number);
            if (arrival.rule != nullptr) rule = arrival.rule;
            if (arrival.is_new) to.arrived.push_back(entry.message);
        }
        if (rule != nullptr) fail(rule);
    }
    // Acknowledged means applied [L3].
    void acknowledged(Side& side, uint64_t number) {
        const Side& other = &side == &sides_[0] ? sides_[1] : sides_[0];
        if (number > other.applied && other.log.generation() == side.log.generation())
            return fail("a message was acknowledged before it was applied");
        for (; side.acknowledged < number && !side.waiting.empty(); ++side.acknowledged)
            side.waiting.pop_front();
    }
    // One side may be later than the other's first frames.
    void connect() {
        connected_ = true;
        const size_t first = random_.below(2);
        sides_[first].out.push_back(sides_[first].log.resume());
        if (random_.one_in(2)) deliver(sides_[first], sides_[1 - first]);
        sides_[1 - first].out.push_back(sides_[1 - first].log.resume());
    }
    void cut() {
        ++cuts;
        connected_ = false;
        for (Side& side : sides_) {
            side.log.on_channel_lost();
            side.out.clear();
        }
    }
    void discard(Side& side) {
        ++discards;
        cut();
        side.log.discard();
        forget(side);
    }
    static void forget(Side& side) {
        ++side.discards;
        side.appended = side.applied = side.acknowledged = 0;
        side.arrived.clear();
        side.waiting.clear();
    }
    void check() {
        for (Side& side : sides_) {
            side.log.check_invariants();
            for (const Account account : {account_a, account_b}) {
                size_t expected = side.reserved[account];
                for (const Side::Waiting& w : side.waiting)
                    if (w.account == account) expected += w.cost;
                if (side.log.bytes_of(account) != expected) fail("an account pays for what is not its own");
            }
        }
    }
    void fail(const std::string& what) {
        if (fault_.empty()) fault_ = what;
    }

    Random random_;
    std::array<Side, 2> sides_;
    bool connected_ = false;
    std::string fault_;
};

// The first fault of some seeds.
std::string faults(const ControlLogConfig& config) {
    for (uint64_t seed = 1; seed <= 40; ++seed)
        if (const std::string fault = Play(seed, config).run(); !fault.empty()) return fault;
    return {};
}

ControlLogConfig small() {
    ControlLogConfig config;
    config.requests_bytes_max = 8000;
    config.account_bytes_max = 5000;
    return config;
}

// A log that has written `entries` to its connection.
ControlLog resumed_with(uint64_t entries) {
    ControlLog log{ControlLogConfig{}};
    for (uint64_t i = 0; i < entries; ++i) REQUIRE(log.append(message(8), std::nullopt));
    bool discarded = false;
    REQUIRE(log.on_resume({1, 0}, discarded) == nullptr);
    for (uint64_t i = 0; i < entries; ++i) log.written();
    return log;
}

}  // namespace

TEST_CASE("every message is applied once and in order over any number of connections", "[L1][L2][L3][L4]") {
    size_t cuts = 0, discards = 0;
    for (uint64_t seed = 1; seed <= 300; ++seed) {
        CAPTURE(seed);
        Play play(seed, small());
        REQUIRE(play.run() == "");
        cuts += play.cuts;
        discards += play.discards;
    }
    REQUIRE(cuts > 1000);
    REQUIRE(discards > 100);
}

TEST_CASE("sabotage: a number that is skipped is noticed", "[L1]") {
    ControlLogConfig config = small();
    config.sabotage.skip_a_number = true;
    CHECK(faults(config) == "an entry's number does not follow the one before it");
}

TEST_CASE("sabotage: an acknowledgement before the message was applied is noticed", "[L3]") {
    ControlLogConfig config = small();
    config.sabotage.acknowledge_early = true;
    CHECK(faults(config) == "a message was acknowledged before it was applied");
}

TEST_CASE("sabotage: a message that is applied again after a replay is noticed", "[L2]") {
    ControlLogConfig config = small();
    config.sabotage.apply_twice = true;
    CHECK(faults(config) == "a message was applied twice, or out of order");
}

TEST_CASE("sabotage: what a connection lost and nobody replays is noticed", "[L4]") {
    ControlLogConfig config = small();
    config.sabotage.forget_at_reconnect = true;
    CHECK(faults(config) != "");
}

TEST_CASE("sabotage: bytes that are charged to another account are noticed", "[L8]") {
    ControlLogConfig config = small();
    config.sabotage.charge_another_account = true;
    CHECK(faults(config) == "an account pays for what is not its own");
}

TEST_CASE("opens are admitted while little waits for the peer, of one account and of all", "[L8]") {
    ControlLogConfig config;
    config.opens_queued_bytes_max = 4096;
    config.opens_queued_bytes_of_account_max = 2048;
    ControlLog log(config);
    const auto flood = [&](Account account) {
        int admitted = 0;
        for (; log.reserve_open(account, 512); ++admitted) REQUIRE(log.append(message(448), account));
        return admitted;
    };
    CHECK(flood(account_a) == 4);
    CHECK(flood(account_b) == 4);
    CHECK(flood(Account{3}) == 0);
    CHECK(log.reserve(account_a, 512));  // other requests have more room
    REQUIRE(log.append(message(448), {}));
    bool discarded = false;
    REQUIRE(log.on_resume({1, 0}, discarded) == nullptr);
    while (log.next() != nullptr) log.written();
    REQUIRE(log.on_applied(4) == nullptr);
    CHECK(flood(account_b) == 0);
    CHECK(flood(account_a) == 4);
    log.check_invariants();
}

TEST_CASE("opens are listed again while requests leave room, or few of them wait for the peer", "[L8]") {
    ControlLogConfig config;
    config.requests_bytes_max = 16384;
    config.opens_queued_bytes_max = 4096;
    ControlLog log(config);
    CHECK(log.room().opens == 16384);
    REQUIRE(log.reserve(account_a, 8192));
    REQUIRE(log.reserve(account_b, 8192));
    CHECK(log.room().opens == 4096);
    for (int i = 0; i < 8; ++i) REQUIRE(log.append(message(448), account_a));
    CHECK(log.room().opens == 0);
    REQUIRE(log.append(message(448), {}));  // the reserve is not theirs
    CHECK(log.room().opens == 0);
    log.release(account_b, 8192);
    CHECK(log.room().opens == 8192);
    log.check_invariants();
}

TEST_CASE("a peer that breaks a rule of the log is found out", "[L1][L3][L5]") {
    bool discarded = false;
    SECTION("a gap") {
        ControlLog log = resumed_with(0);
        CHECK(log.on_entry(1).is_new);
        CHECK_FALSE(log.on_entry(1).is_new);
        CHECK(log.on_entry(3).rule != nullptr);
    }
    SECTION("an acknowledgement of what was not sent") {
        ControlLog log = resumed_with(2);
        CHECK(log.on_applied(3) != nullptr);
        CHECK(log.on_applied(2) == nullptr);
        CHECK(log.on_applied(1) != nullptr);
    }
    SECTION("anything before the resume") {
        ControlLog log{ControlLogConfig{}};
        CHECK(log.on_entry(1).rule != nullptr);
        CHECK(log.on_applied(0) != nullptr);
    }
    SECTION("a resume that forgets or invents, or comes twice") {
        ControlLog log = resumed_with(2);
        REQUIRE(log.on_applied(2) == nullptr);
        CHECK(log.on_resume({1, 2}, discarded) != nullptr);
        log.on_channel_lost();
        CHECK(log.on_resume({1, 1}, discarded) != nullptr);
        CHECK(log.on_resume({1, 3}, discarded) != nullptr);
        CHECK(log.on_resume({0, 2}, discarded) != nullptr);
        CHECK(log.on_resume({UINT64_MAX, 2}, discarded) != nullptr);
        CHECK(log.on_resume({1, 2}, discarded) == nullptr);
        CHECK_FALSE(discarded);
    }
    SECTION("a later generation discards what waits here") {
        ControlLog log = resumed_with(2);
        log.on_channel_lost();
        CHECK(log.on_resume({5, 0}, discarded) == nullptr);
        CHECK(discarded);
        CHECK(log.generation() == 5);
        CHECK(log.queued_bytes() == 0);
        CHECK(log.next() == nullptr);
        CHECK(log.on_entry(1).is_new);
    }
}

TEST_CASE("a request gets room in its account's share and within all requests', and the reserve stays free",
          "[L7][L8]") {
    ControlLogConfig config;
    config.bytes_max = 2000;
    config.requests_bytes_max = 1000;
    config.account_bytes_max = 600;
    ControlLog log{config};
    CHECK(log.reserve(account_a, 500));
    CHECK_FALSE(log.reserve(account_a, 101));
    CHECK(log.reserve(account_b, 500));
    CHECK_FALSE(log.reserve(account_b, 1));
    CHECK_FALSE(log.take_room_again());
    log.release(account_a, 400);
    CHECK(log.take_room_again());
    CHECK_FALSE(log.take_room_again());
    CHECK(log.reserve(account_b, 1));
    log.release(account_b, 5000);  // more than it has
    CHECK(log.bytes_of(account_b) == 0);

    const std::vector<std::byte> half = message(1000 - ControlLog::entry_overhead_bytes);
    CHECK(log.append(half, std::nullopt));
    CHECK(log.append(half, std::nullopt));
    CHECK_FALSE(log.append(message(8), std::nullopt));
    log.check_invariants();
    log.discard();
    CHECK(log.generation() == 2);
    CHECK(log.bytes_of(account_a) == 100);  // its request is still there
    CHECK(log.append(half, std::nullopt));
    log.check_invariants();
}

}  // namespace nexar::link
