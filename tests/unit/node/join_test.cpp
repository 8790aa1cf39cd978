// Joining over real loopback sockets: the issuer's join_server and the joiner.
#include "node/join.hpp"

#include <poll.h>

#include "clusters.hpp"
#include "loop/loop.hpp"
#include "storage/write_queue.hpp"
#include "support/faults.hpp"

using namespace nexar;
using namespace nexar::test;
using namespace nexar::node::test;
using namespace nexar::node;
using namespace nexar::admission;
using namespace std::chrono_literals;

namespace {

constexpr WallSeconds wall_begin = 1'800'000'000;

// Carries batches out when it has to: at once, unless `hangs`.
class LateDisk final : public storage::Port {
  public:
    explicit LateDisk(const writers::StateDir& state) : state_(&state) {}
    storage::Saving save(storage::Batch batch) override {
        storage::Saving out = queue_.push(std::move(batch));
        if (!hangs) carry_out();
        return out;
    }
    void carry_out() {
        while (const storage::Batch* batch = queue_.begin()) queue_.end(state_->apply(*batch));
    }
    bool waits() const { return !queue_.empty(); }
    bool hangs = false;

  private:
    const writers::StateDir* state_;
    storage::WriteQueue queue_;
};

struct World {
    Folder folder;
    writers::StateDir issuer_state = open_state(folder.file("issuer"));
    WallSeconds wall = wall_begin;
    Duration ahead{};  // what virtual time is ahead of the real one
    std::vector<std::string> lines;
    Log log{[this](Level, const std::string& line) { lines.push_back(line); }, Level::debug};
    Identity identity = init_cluster(issuer_state, "test", wall).value();
    LateDisk disk{issuer_state};
    TokenLedger tokens{identity.issuer->tokens, disk};
    JoinServer join_server{identity, tokens, [this] { return wall; }, log};
    std::unique_ptr<transport::QuicPort> port;

    World() {
        transport::QuicPort::Options options;
        options.listen = *quic::Address::parse("127.0.0.1:0");
        options.quic.accept_join = true;
        options.quic.wall_clock = [this] { return wall; };
        quic::Identity shown;
        shown.certificate_chain = identity.chain();
        shown.private_key = identity.node_key;
        shown.trust_anchors = identity.root_certificate;
        shown.join_certificate_chain = identity.issuer->certificate + identity.root_certificate;
        shown.join_private_key = identity.issuer->key;
        auto judge = [](const quic::PeerChain&, std::string_view) -> Result<NodeId> { return NodeId{}; };
        auto made = transport::QuicPort::open(std::move(options), shown, judge);
        if (!made) FAIL(made.error().text);
        port = std::move(*made);
    }
    Time now() const { return loop::Loop::now() + ahead; }
    Token token(uint32_t uses = 1) {
        return identity.issuer->tokens.create(identity.root_key_hash, {port->local().text()}, wall, 600, uses)
            .value();
    }
    size_t closed = 0;
    void serve() {
        const Time t = now();
        port->on_readable(t);
        port->on_time(t);
        while (auto event = port->poll_event()) {
            closed += event->kind == quic::Event::Kind::closed;
            join_server.on_event(t, *event, port->endpoint());
        }
        tokens.step();
        join_server.step(t, port->endpoint());
        while (port->flush(t)) {
        }
    }
    template <class Step>
    bool run(int other_fd, Step step) {
        const Time end = loop::Loop::now() + 20s;
        while (loop::Loop::now() < end) {
            serve();
            if (step()) return true;
            pollfd p[2] = {{port->fd(), POLLIN, 0}, {other_fd, POLLIN, 0}};
            poll(p, 2, 5);
        }
        return false;
    }
    Result<Identity> join(const Token& with) {
        auto joiner = Joiner::start(with, make_key().value(), "guest", [this] { return wall; }, now());
        if (!joiner) return fail(joiner.error());
        std::optional<Result<Identity>> end;
        REQUIRE(run((*joiner)->fd(), [&] {
            end = (*joiner)->step(now());
            return end.has_value();
        }));
        return *end;
    }
    bool logged(const std::string& what) const {
        for (const auto& line : lines)
            if (contains(line, what)) return true;
        return false;
    }
};

// Somebody who dials the join_server with no Joiner's manners.
struct Guest {
    std::unique_ptr<transport::QuicPort> port;
    std::optional<quic::ConnId> conn;
    std::optional<quic::CloseInfo> end;

    explicit Guest(World& world) {
        transport::QuicPort::Options options;
        options.listen = *quic::Address::parse("127.0.0.1:0");
        options.quic.listen = false;
        auto judge = [](const quic::PeerChain&, std::string_view) -> Result<NodeId> { return NodeId{}; };
        auto made = transport::QuicPort::open(std::move(options), {}, judge);
        if (!made) FAIL(made.error().text);
        port = std::move(*made);
        REQUIRE(port->connect(world.now(), world.port->local(), quic::alpn_join));
    }
    void turn(Time now) {
        port->on_readable(now);
        port->on_time(now);
        while (auto event = port->poll_event()) {
            if (event->kind == quic::Event::Kind::connected) conn = event->conn;
            if (event->kind == quic::Event::Kind::closed) end = event->close;
        }
        port->flush(now);
    }
};

}  // namespace

TEST_CASE("who has a token joins, and its use is on disk before the certificate leaves", "[node][A5]") {
    World world;
    const Token token = world.token(2);
    const auto joined = world.join(token);
    if (!joined) FAIL(joined.error().text);
    CHECK(joined->cluster == world.identity.cluster);
    CHECK(joined->node != world.identity.node);
    CHECK(world.logged("node_admitted"));
    const auto kept = TokenBook::parse(world.folder.get("issuer/tokens"));
    REQUIRE(kept);
    REQUIRE(kept->entries().size() == 1);
    CHECK(kept->entries()[0].uses_left == 1);
    // The joiner has closed, and the join_server forgets it.
    REQUIRE(world.run(-1, [&] { return world.closed == 1; }));
    CHECK(world.join_server.wake_at() == never);
}

TEST_CASE("while the disk hangs a joiner waits for its answer, beyond the time for a request",
          "[node][A5][H11]") {
    World world;
    const Token token = world.token(1);
    world.disk.hangs = true;
    auto joiner = Joiner::start(token, make_key().value(), "guest", [&] { return world.wall; }, world.now());
    REQUIRE(joiner);
    REQUIRE(world.run((*joiner)->fd(), [&] {
        REQUIRE_FALSE((*joiner)->step(world.now()));
        return world.disk.waits();
    }));
    world.ahead += 6s;
    world.serve();
    CHECK_FALSE(world.logged("node_admitted"));
    CHECK_FALSE(world.logged("join_refused"));
    CHECK(world.identity.issuer->tokens.entries()[0].uses_left == 1);  // as the file has it
    world.disk.hangs = false;
    world.disk.carry_out();
    std::optional<Result<Identity>> end;
    REQUIRE(world.run((*joiner)->fd(), [&] {
        end = (*joiner)->step(world.now());
        return end.has_value();
    }));
    CHECK(*end);
    CHECK(world.logged("node_admitted"));
    CHECK(world.identity.issuer->tokens.entries()[0].uses_left == 0);
}

TEST_CASE("a use that cannot be saved admits nobody, and the token keeps it", "[node][A5][H15]") {
    World world;
    const Token token = world.token(1);
    std::optional<Result<Identity>> refused;
    {
        const Disk disk(1);
        refused = world.join(token);
    }
    REQUIRE_FALSE(*refused);
    CHECK(contains(refused->error().text, "No space left"));
    CHECK(world.logged("join_refused"));
    CHECK_FALSE(world.logged("node_admitted"));
    CHECK(world.identity.issuer->tokens.entries()[0].uses_left == 1);
    CHECK(world.join(token));
}

TEST_CASE("a wrong secret, an expired and a used-up token are refused with a reason", "[node]") {
    World world;
    const Token token = world.token(1);
    Token wrong = token;
    wrong.secret[5] ^= 1;
    const auto guessed = world.join(wrong);
    REQUIRE_FALSE(guessed);
    CHECK(guessed.error().code == Errc::bad_token);
    CHECK(contains(guessed.error().text, "unknown here, or its proof is wrong"));
    Token unknown = token;
    unknown.id[0] ^= 1;
    CHECK(world.join(unknown).error().text == guessed.error().text);  // the error reveals nothing more
    CHECK(world.logged("join_refused"));

    REQUIRE(world.join(token));
    const auto again = world.join(token);
    REQUIRE_FALSE(again);
    CHECK(contains(again.error().text, "used up"));

    Token late = world.token(1);
    world.wall += 601;
    CHECK(contains(world.join(late).error().text, "expired"));  // the joiner's own clock says so
    late.expires += 1000;                                       // a clock that is behind, or a liar
    const auto expired = world.join(late);
    REQUIRE_FALSE(expired);
    CHECK(contains(expired.error().text, "expired"));
    size_t admitted = 0;
    for (const auto& line : world.lines) admitted += contains(line, "node_admitted");
    CHECK(admitted == 1);
}

TEST_CASE("an issuer of another root is not asked", "[node]") {
    World world;
    Token other = world.token(1);
    other.root_key_hash[0] ^= 1;
    auto joiner = Joiner::start(other, make_key().value(), "guest", [&] { return world.wall; }, world.now());
    REQUIRE(joiner);
    std::optional<Result<Identity>> end;
    REQUIRE(world.run((*joiner)->fd(), [&] {
        world.ahead += 100ms;  // its 30 s of trying again pass quickly
        end = (*joiner)->step(world.now());
        return end.has_value();
    }));
    REQUIRE_FALSE(*end);
    CHECK(end->error().code == Errc::timed_out);
    CHECK(contains(end->error().text, "copy the whole line"));
    CHECK_FALSE(world.logged("join_refused"));  // no request ever came
    CHECK(world.identity.issuer->tokens.entries()[0].uses_left == 1);
}

TEST_CASE("a joiner tries every address, and says which it tried last when none answers", "[node]") {
    World world;
    Token token = world.token(1);
    token.issuer_addresses.insert(token.issuer_addresses.begin(), {"127.0.0.1:1", "not an address"});
    // The first must parse: it decides the family.
    const Time begun = loop::Loop::now();
    const auto joined = world.join(token);
    CHECK(joined.has_value());
    CHECK(loop::Loop::now() - begun < 5s);  // a closed port says so at once: 5 s are not waited for it
    token.issuer_addresses.clear();
    CHECK_FALSE(Joiner::start(token, make_key().value(), "g", [&] { return world.wall; }, world.now()));
    token.issuer_addresses = {"nowhere"};
    CHECK_FALSE(Joiner::start(token, make_key().value(), "g", [&] { return world.wall; }, world.now()));
}

TEST_CASE("a joiner whose only address refuses it says so, and soon tries again", "[node]") {
    World world;
    Token token = world.token(1);
    transport::QuicPort::Options closed;
    closed.listen = *quic::Address::parse("127.0.0.1:0");
    closed.quic.listen = false;
    auto judge = [](const quic::PeerChain&, std::string_view) -> Result<NodeId> { return NodeId{}; };
    auto place = transport::QuicPort::open(std::move(closed), {}, judge);
    REQUIRE(place);
    token.issuer_addresses = {(*place)->local().text()};
    place->reset();  // nobody is there any more
    auto joiner = Joiner::start(token, make_key().value(), "guest", [&] { return world.wall; }, world.now());
    REQUIRE(joiner);
    const Time begun = loop::Loop::now();
    REQUIRE(world.run((*joiner)->fd(), [&] {
        REQUIRE_FALSE((*joiner)->step(world.now()));
        return contains((*joiner)->last_failure(), "no process listens there");
    }));
    CHECK(loop::Loop::now() - begun < 5s);
    CHECK((*joiner)->wake_at() < loop::Loop::now() + 1s);  // and comes again soon
}

TEST_CASE("garbage for a request is answered with an error, a message too long with an end", "[node]") {
    World world;
    Guest guest(world), large(world);
    REQUIRE(world.run(guest.port->fd(), [&] {
        guest.turn(world.now());
        large.turn(world.now());
        return guest.conn && large.conn;
    }));
    auto* conn = guest.port->endpoint().find(*guest.conn);
    JoinStream answer;
    conn->set_receiver(&answer);
    JoinStream::write(*conn, std::as_bytes(std::span("this is no request", 18)));
    const uint32_t length = join_message_bytes_max + 1;
    large.port->endpoint().find(*large.conn)->write(Class::control, std::as_bytes(std::span(&length, 1)));
    std::optional<std::vector<std::byte>> reply;
    REQUIRE(world.run(guest.port->fd(), [&] {
        guest.turn(world.now());
        large.turn(world.now());
        if (!reply) reply = answer.poll();
        return reply && large.end;
    }));
    const auto decoded = decode_join_reply(*reply);
    REQUIRE(decoded);
    CHECK(decoded->error.code == Errc::protocol_error);
    CHECK(large.end->by_peer);
    CHECK(contains(large.end->reason, "not a join request"));
}

TEST_CASE("a guest that says nothing is closed after its time, and the join_server's clock goes on",
          "[node]") {
    World world;
    Guest guest(world);
    REQUIRE(world.run(guest.port->fd(), [&] {
        guest.turn(world.now());
        return guest.conn && world.join_server.wake_at() != never;
    }));
    CHECK(world.join_server.wake_at() > world.now());
    CHECK(world.join_server.wake_at() <= world.now() + 3s);
    world.ahead = 4s;
    REQUIRE(world.run(guest.port->fd(), [&] {
        guest.turn(world.now());
        return guest.end && world.join_server.wake_at() == never;
    }));
    CHECK(contains(guest.end->reason, "no join request within 3 s"));
}
