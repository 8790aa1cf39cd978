// The state machine of renewal: when, whom, how long between tries. Both clocks are made up.
#include "admission/renewal.hpp"

#include <catch2/catch_test_macros.hpp>
#include <map>

using namespace nexar;
using namespace nexar::admission;
using namespace std::chrono_literals;

namespace {

constexpr WallSeconds issued = 1'800'000'000;
constexpr WallSeconds lifetime = 30 * 86400;
constexpr WallSeconds due = issued + lifetime * 2 / 3;

NodeId node(uint8_t n) {
    NodeId id;
    id.bytes.fill(n);
    return id;
}
const NodeId self = node(9);

Error error(Errc code, const std::string& text) {
    return {code, text, -1, -1, {}};
}

// One machine, and a world in which the two clocks go together.
struct Bench {
    explicit Bench(bool issuer = false) : renewal(self, issuer, {issued, issued + lifetime}, {}, Random(7)) {}

    WallSeconds wall() const {
        return issued + std::chrono::duration_cast<std::chrono::seconds>(now.time_since_epoch()).count();
    }
    void to(WallSeconds then) { now = Time(std::chrono::seconds(then - issued)); }
    // Whom it asks now; zero: nobody.
    NodeId step() {
        renewal.on_time(now, wall(), connected);
        NodeId asked;
        while (auto action = renewal.poll_action()) {
            if (auto* ask = std::get_if<AskIssuer>(&*action)) asked = ask->node;
            if (std::get_if<SignOwn>(&*action)) asked = self;
            if (auto* note = std::get_if<RenewalNote>(&*action)) notes.push_back(*note);
        }
        return asked;
    }
    void refuse(const NodeId& from, Errc code, const std::string& text) {
        renewal.on_refused(from, error(code, text), now);
    }
    size_t count_of(std::string_view event) const {
        size_t n = 0;
        for (const auto& note : notes) n += note.event == event;
        return n;
    }

    Time now{};
    Renewal renewal;
    std::vector<NodeId> connected;
    std::vector<RenewalNote> notes;
};

}  // namespace

TEST_CASE("nobody is asked before two thirds of the lifetime have passed, and a member then", "[A9]") {
    Bench b;
    b.connected = {node(1)};
    for (int hours = 0; hours < 20 * 24; hours += 7) {
        b.to(issued + hours * 3600);
        REQUIRE(b.step().is_zero());
        REQUIRE(b.renewal.wake_at() > b.now);
        REQUIRE(b.renewal.wake_at() <= b.now + 1h);  // a clock that is set is noticed
    }
    b.to(due - 1);
    REQUIRE(b.step().is_zero());
    REQUIRE(b.renewal.wake_at() == b.now + 1s);
    b.to(due);
    REQUIRE(b.step() == node(1));
    REQUIRE(b.renewal.wake_at() == b.now + 5s);
    REQUIRE(b.notes.empty());
}

TEST_CASE("a jump of the wall clock makes it due, and back again it is not") {
    Bench b;
    b.connected = {node(1)};
    b.renewal.on_time(b.now, due + 5, b.connected);
    REQUIRE(b.renewal.waits_for(node(1)));
    Bench c;
    c.renewal.on_time(c.now, issued - 86400, c.connected);
    REQUIRE_FALSE(c.renewal.poll_action());
}

TEST_CASE("who is no issuer is passed over at once, until an issuer is found", "[A9]") {
    Bench b;
    for (uint8_t n = 1; n <= 5; ++n) b.connected.push_back(node(n));
    b.to(due);
    std::map<NodeId, int> asked;
    NodeId last;
    for (int i = 0; i < 5; ++i) {
        last = b.step();
        REQUIRE_FALSE(last.is_zero());
        ++asked[last];
        if (i < 4) b.refuse(last, Errc::unsupported, "this node is no issuer");
    }
    REQUIRE(asked.size() == 5);  // each once
    b.renewal.on_renewed({due, due + lifetime}, b.now);
    REQUIRE(b.step().is_zero());
    REQUIRE(b.renewal.failures() == 0);
    REQUIRE(b.notes.empty());

    b.to(due + lifetime * 2 / 3);  // the next time the same issuer is asked first
    REQUIRE(b.step() == last);
}

TEST_CASE("an issuer that does not answer, or is lost, gives way to the next one") {
    Bench b;
    b.connected = {node(1), node(2), node(3)};
    b.to(due);
    const NodeId first = b.step();
    b.now += 4999ms;
    REQUIRE(b.step().is_zero());
    b.now += 1ms;
    const NodeId second = b.step();
    REQUIRE_FALSE(second.is_zero());
    REQUIRE(second != first);
    REQUIRE_FALSE(b.renewal.waits_for(first));
    std::erase(b.connected, second);
    const NodeId third = b.step();
    REQUIRE_FALSE(third.is_zero());
    REQUIRE((third != first && third != second));
}

TEST_CASE("failed rounds wait longer and longer, at most an hour, and say why", "[A9]") {
    Bench b;
    b.connected = {node(1)};
    b.to(due);
    Time last = b.now;
    Duration longest{};
    for (unsigned round = 1; round <= 20; ++round) {
        REQUIRE(b.step() == node(1));
        b.refuse(node(1), Errc::bad_certificate, "the disk of the issuer is full");
        REQUIRE(b.step().is_zero());
        REQUIRE(b.renewal.failures() == round);
        REQUIRE(b.renewal.why().find("the disk of the issuer is full") != std::string::npos);
        REQUIRE(b.renewal.why().find(node(1).short_hex()) != std::string::npos);
        const Duration wait = b.renewal.wake_at() - b.now;
        REQUIRE(wait >= 1s);
        REQUIRE(wait <= 75min);
        if (round < 10) REQUIRE(wait < std::chrono::seconds(2u << round));
        longest = std::max(longest, wait);
        b.now = b.renewal.wake_at();
        REQUIRE(b.now > last);
        last = b.now;
    }
    REQUIRE(longest >= 45min);
    REQUIRE(b.count_of("certificate_renewal_failed") == 20);
    REQUIRE(b.notes.back().level == Level::warn);
}

TEST_CASE("near the end it tries more often, and at least eight times") {
    Bench b;
    b.connected = {node(1)};
    b.to(issued + lifetime - 3600);
    unsigned tries = 0;
    while (b.wall() < issued + lifetime) {
        REQUIRE(b.step() == node(1));
        b.refuse(node(1), Errc::bad_certificate, "no");
        REQUIRE(b.step().is_zero());
        b.now = b.renewal.wake_at();
        ++tries;
    }
    REQUIRE(tries >= 8);
    REQUIRE(tries < 100);
}

TEST_CASE("alone, or among members of which none is an issuer, it says so") {
    Bench alone;
    alone.to(due);
    REQUIRE(alone.step().is_zero());
    REQUIRE(alone.renewal.why().find("connected to no other") != std::string::npos);

    Bench among;
    among.connected = {node(1), node(2)};
    among.to(due);
    for (int i = 0; i < 2; ++i) among.refuse(among.step(), Errc::unsupported, "this node is no issuer");
    REQUIRE(among.step().is_zero());
    REQUIRE(among.renewal.why() == "none of the 2 connected nodes is an issuer");
}

TEST_CASE("an expired leaf is reported once, as an error, and still retried") {
    Bench b;
    b.connected = {node(1)};
    b.to(issued + lifetime + 1);
    REQUIRE(b.step() == node(1));
    REQUIRE(b.count_of("certificate_expired") == 1);
    REQUIRE(b.notes.front().level == Level::error);
    b.refuse(node(1), Errc::bad_certificate, "no");
    REQUIRE(b.step().is_zero());
    b.now = b.renewal.wake_at();
    REQUIRE(b.step() == node(1));
    REQUIRE(b.count_of("certificate_expired") == 1);
}

TEST_CASE("an issuer signs its own, whatever other issuers are connected") {
    Bench b(true);
    b.connected = {node(1), node(2)};
    b.to(due);
    REQUIRE(b.step() == self);
    b.refuse(self, Errc::io, "No space left on device");
    REQUIRE(b.step().is_zero());
    REQUIRE(b.renewal.why() == "this issuer: No space left on device");
    b.now = b.renewal.wake_at();
    REQUIRE(b.step() == self);
    b.renewal.on_renewed({b.wall(), b.wall() + lifetime}, b.now);
    REQUIRE(b.step().is_zero());
    REQUIRE(b.renewal.failures() == 0);
}

TEST_CASE("an answer from somebody who was not asked changes nothing") {
    Bench b;
    b.connected = {node(1), node(2)};
    b.to(due);
    const NodeId asked = b.step();
    b.refuse(asked == node(1) ? node(2) : node(1), Errc::bad_certificate, "no");
    REQUIRE(b.renewal.waits_for(asked));
    REQUIRE(b.step().is_zero());
}

TEST_CASE("a leaf that is due as soon as it is signed does not make the machine spin") {
    Bench b(true);
    b.to(due);
    for (int i = 0; i < 10; ++i) {
        REQUIRE(b.step() == self);
        b.renewal.on_renewed({b.wall() - 20, b.wall() + 2}, b.now);
        REQUIRE(b.step().is_zero());
        REQUIRE(b.renewal.wake_at() >= b.now + 1s);
        b.now = b.renewal.wake_at();
    }
}

namespace {

struct Certified {
    Secret root_key = *make_key(), issuer_key = *make_key(), key = *make_key();
    std::string root = *make_root(root_key, "test", issued);
    std::string issuer = *make_issuer(root_key, root, issuer_key, issued);
    NodeId id = *node_id_of_key(key);

    std::string leaf(WallSeconds now, WallSeconds lasts) const {
        return *sign_leaf(issuer_key, issuer, *make_csr(key), now, lasts);
    }
    Result<LeafTimes> check(const std::string& leaf, const LeafTimes& current, WallSeconds now) const {
        return check_renewed(leaf, issuer, root, id, current, now);
    }
};

}  // namespace

TEST_CASE("a leaf's lifetime is the issuer's, counted without the backdating", "[A7]") {
    Certified c;
    const auto times = leaf_times(c.leaf(issued, 20));
    REQUIRE(times);
    REQUIRE(times->issued == issued);
    REQUIRE(times->expires == issued + 20);
    REQUIRE(renewal_due(*times) == issued + 13);
    REQUIRE(leaf_times(c.leaf(issued, leaf_seconds))->expires == issued + 30 * 86400);
}

TEST_CASE("no leaf outlives its issuer") {
    Certified c;
    const WallSeconds late = issued + issuer_seconds - 100;
    REQUIRE(leaf_times(c.leaf(late, leaf_seconds))->expires == issued + issuer_seconds);
    REQUIRE_FALSE(sign_leaf(c.issuer_key, c.issuer, *make_csr(c.key), issued + issuer_seconds + 1));
}

TEST_CASE("a renewed leaf has the same NodeId, and is taken only if it is ours, valid and longer", "[A10]") {
    Certified c, other;
    const LeafTimes old{issued, issued + 1000};
    const std::string fresh = c.leaf(issued + 700, 1000);
    REQUIRE(*node_id_of_certificate(fresh) == c.id);
    const auto taken = c.check(fresh, old, issued + 700);
    REQUIRE(taken);
    REQUIRE(taken->expires == issued + 1700);

    REQUIRE_FALSE(c.check(c.leaf(issued, 1000), old, issued + 700));          // no longer than the old one
    REQUIRE_FALSE(c.check(fresh, old, issued + 2000));                        // over
    REQUIRE_FALSE(c.check(fresh, old, issued + 700 - backdate_seconds - 1));  // not yet
    const std::string foreign = *sign_leaf(c.issuer_key, c.issuer, *make_csr(other.key), issued + 700, 1000);
    REQUIRE(c.check(foreign, old, issued + 700).error().text.find("not for this one") != std::string::npos);
    REQUIRE_FALSE(c.check(other.leaf(issued + 700, 1000), old, issued + 700));  // another root
    REQUIRE_FALSE(c.check(c.issuer, old, issued + 700));
    REQUIRE_FALSE(c.check("", old, issued + 700));
}

TEST_CASE("a request names its key, and a damaged one is refused") {
    Certified c;
    std::string csr = *make_csr(c.key);
    REQUIRE(*node_id_of_csr(csr) == c.id);
    csr[csr.size() / 2] = csr[csr.size() / 2] == 'A' ? 'B' : 'A';
    REQUIRE_FALSE(node_id_of_csr(csr));
    REQUIRE_FALSE(node_id_of_csr(std::string(csr_bytes_max + 1, 'x')));
}
