// An issuer and a member that renews its leaf, with the messages carried by hand: what each checks, and what
// is on disk afterwards. [A8] [A10]
#include "node/renewer.hpp"

#include <algorithm>

#include "clusters.hpp"
#include "support/der.hpp"
#include "support/faults.hpp"
#include "support/processor_time.hpp"

using namespace nexar;
using namespace nexar::node;
using namespace nexar::test;
using namespace nexar::node::test;
using namespace nexar::admission;
using namespace std::chrono_literals;

namespace {

constexpr WallSeconds begin = 1'800'000'000;
constexpr WallSeconds lifetime = 3000;

struct World {
    WallSeconds wall = begin;
    Time now{1s};
    std::vector<std::string> lines;
    Folder folder;
    Log log{[this](Level, const std::string& line) { lines.push_back(line); }, Level::debug};

    struct Side {
        writers::StateDir state;
        DirectDisk disk{state};
        Identity identity;
        Renewer renewer;
        Side(World& w, writers::StateDir where, Identity who)
            : state(std::move(where)),
              identity(std::move(who)),
              renewer(
                  identity, leaf_times(identity.certificate).value(), disk, [&w] { return w.wall; }, w.log,
                  3) {}
        quic::PeerChain chain() const {
            return {der_of_pem(identity.certificate).value(),
                    der_of_pem(identity.issuer_certificate).value()};
        }
    };
    std::unique_ptr<Side> issuer = [this] {
        auto state = open_state(folder.file("issuer"));
        auto id = init_cluster(state, "test", begin, lifetime).value();
        return std::make_unique<Side>(*this, std::move(state), std::move(id));
    }();
    std::unique_ptr<Side> member = join("member"), other = join("other");

    std::unique_ptr<Side> join(const std::string& name) {
        auto state = open_state(folder.file(name));
        const Secret key = make_key().value();
        const JoinReply reply = reply_of(issuer->identity, key, begin, lifetime);
        auto id = join_cluster(state, key, reply, issuer->identity.root_key_hash, begin).value();
        return std::make_unique<Side>(*this, std::move(state), std::move(id));
    }
    // The one message that a side sends now.
    template <class M>
    M sent_by(Side& side, const NodeId& to) {
        const auto out = side.renewer.poll_send();
        REQUIRE(out);
        CHECK(out->first == to);
        REQUIRE(std::get_if<M>(&out->second));
        CHECK_FALSE(side.renewer.poll_send());
        return std::get<M>(out->second);
    }
    wire::RenewalRequest request() {
        wall = begin + 2000;
        member->renewer.on_time(now, {issuer->identity.node});
        return sent_by<wire::RenewalRequest>(*member, issuer->identity.node);
    }
    wire::RenewalReply answer(Side& to, const wire::RenewalRequest& request) {
        CHECK(issuer->renewer.on_message(now, to.identity.node, to.chain(), request));
        return sent_by<wire::RenewalReply>(*issuer, to.identity.node);
    }
    void deliver(const NodeId& from, const wire::RenewalReply& reply) {
        CHECK(member->renewer.on_message(now, from, {}, reply));
    }
    bool logged(const std::string& what) const {
        return std::ranges::any_of(lines, [&](const auto& line) { return contains(line, what); });
    }
};

}  // namespace

TEST_CASE("a member asks at two thirds, and shows and keeps what the issuer signed", "[node]") {
    World w;
    w.wall = begin + 1999;
    w.member->renewer.on_time(w.now, {w.issuer->identity.node});
    CHECK_FALSE(w.member->renewer.poll_send());
    const std::string old = w.member->identity.certificate;

    const auto reply = w.answer(*w.member, w.request());
    REQUIRE(reply.error.code == Errc::ok);
    CHECK_FALSE(w.member->renewer.take_renewed());
    w.deliver(w.issuer->identity.node, reply);

    CHECK(w.member->renewer.take_renewed());
    CHECK_FALSE(w.member->renewer.take_renewed());
    CHECK(w.member->identity.certificate != old);
    CHECK(expiry_of_certificate(w.member->identity.certificate).value() == begin + 2000 + lifetime);
    const auto loaded = load_identity(w.member->state, begin + 2001);
    REQUIRE(loaded);
    CHECK((*loaded)->certificate == w.member->identity.certificate);
    CHECK((*loaded)->node == w.member->identity.node);
    CHECK(w.logged("certificate_signed"));
    CHECK(w.logged("certificate_renewed"));
}

TEST_CASE("an issuer signs only for the key of the connection, and only while its leaf is valid",
          "[node][A8]") {
    World w;
    const auto request = w.request();
    const auto foreign = w.answer(*w.other, request);  // the other one sends the member's request
    CHECK(foreign.error.code == Errc::permission);
    CHECK(contains(foreign.error.text, w.member->identity.node.short_hex()));
    CHECK(contains(foreign.error.text, "only renew its own"));
    CHECK(foreign.certificate.empty());

    CHECK(w.answer(*w.member, {"no request"}).error.code == Errc::bad_certificate);
    w.now += 1s;
    CHECK(w.answer(*w.member, {std::string(5000, 'x')}).error.code == Errc::bad_certificate);
    w.now += 1s;

    w.wall = begin + lifetime + 1;
    const auto late = w.answer(*w.member, request);
    CHECK(late.error.code == Errc::bad_certificate);
    CHECK(contains(late.error.text, "expired"));
    CHECK(w.logged("certificate_renewal_refused"));
    CHECK_FALSE(w.logged("certificate_signed"));
}

TEST_CASE("an issuer signs for one node once a second", "[node]") {
    World w;
    const auto request = w.request();
    CHECK(w.answer(*w.member, request).error.code == Errc::ok);
    CHECK(w.answer(*w.member, request).error.code == Errc::table_full);
    CHECK(w.answer(*w.other, {make_csr(w.other->identity.node_key).value()}).error.code == Errc::ok);
    w.now += 1s;
    CHECK(w.answer(*w.member, request).error.code == Errc::ok);
}

// The sender chooses what a request costs, and how many lines of the log there are.
TEST_CASE("a request that fails takes the second's turn as well, and the log has two lines of a flood",
          "[node][A13]") {
    World w;
    const std::string slow =
        nexar::test::pem_of(nexar::test::request_of(nexar::test::slow_public_key()), "CERTIFICATE REQUEST");
    const auto good = w.request();
    for (int second = 0; second < 2; ++second) {
        w.lines.clear();
        const Duration since = nexar::test::processor_time();
        const auto first = w.answer(*w.member, {slow});
        CHECK(first.error.code == Errc::bad_certificate);
        CHECK(contains(first.error.text, "only ECDSA P-256"));
        for (int i = 0; i < 1000; ++i)
            REQUIRE(w.answer(*w.member, {i % 2 == 0 ? slow : good.csr}).error.code == Errc::table_full);
        CHECK(nexar::test::processor_time() - since < 1s);  // 75 s if each were parsed
        CHECK(w.lines.size() == 2);
        CHECK(w.answer(*w.other, {make_csr(w.other->identity.node_key).value()}).error.code == Errc::ok);
        w.now += 1s;
    }
    CHECK(w.answer(*w.member, good).error.code == Errc::ok);
}

TEST_CASE("who is no issuer says so, and signs nothing", "[node]") {
    World w;
    const auto request = w.request();
    CHECK(w.other->renewer.on_message(w.now, w.member->identity.node, w.member->chain(), request));
    const auto reply = w.sent_by<wire::RenewalReply>(*w.other, w.member->identity.node);
    CHECK(reply.error.code == Errc::unsupported);
    CHECK(reply.certificate.empty());
}

TEST_CASE("a reply that nobody asked for, or that does not fit, changes nothing", "[node]") {
    World w;
    const std::string old = w.member->identity.certificate;
    const auto good = w.answer(*w.member, w.request());
    w.deliver(w.other->identity.node, good);  // not who was asked
    CHECK(w.member->identity.certificate == old);

    auto bad = good;
    bad.certificate = w.answer(*w.other, {make_csr(w.other->identity.node_key).value()}).certificate;
    w.deliver(w.issuer->identity.node, bad);
    CHECK(w.member->identity.certificate == old);
    CHECK_FALSE(w.member->renewer.take_renewed());
    w.deliver(w.issuer->identity.node, good);  // the question was answered already
    CHECK(w.member->identity.certificate == old);
    w.member->renewer.on_time(w.now, {w.issuer->identity.node});
    CHECK(w.member->renewer.renewal().failures() == 1);
    CHECK(contains(w.member->renewer.renewal().why(), "not for this one"));
    CHECK(w.logged("certificate_renewal_failed"));
}

TEST_CASE("an issuer renews its own leaf without asking anybody", "[node]") {
    World w;
    w.wall = begin + 2000;
    w.issuer->renewer.on_time(w.now, {w.member->identity.node});
    CHECK_FALSE(w.issuer->renewer.poll_send());
    CHECK(w.issuer->renewer.take_renewed());
    CHECK(expiry_of_certificate(w.issuer->identity.certificate).value() == begin + 2000 + lifetime);
    CHECK((*load_identity(w.issuer->state, begin + 2001))->certificate == w.issuer->identity.certificate);
}

TEST_CASE("other messages are left to others", "[node]") {
    World w;
    CHECK_FALSE(w.member->renewer.on_message(w.now, w.other->identity.node, {}, wire::Heartbeat{}));
}

TEST_CASE("a renewed leaf is used when it is saved; until then no other is asked for [K10]", "[node]") {
    World w;
    const std::string old = w.member->identity.certificate;
    for (size_t call = 1; call <= 4; ++call) {
        INFO("call number " << call << " fails");
        const auto reply = w.answer(*w.member, w.request());
        {
            const Disk disk(call);
            w.deliver(w.issuer->identity.node, reply);
            CHECK(disk.failed());
        }
        CHECK(w.member->identity.certificate == old);
        CHECK_FALSE(w.member->renewer.take_renewed());
        const auto loaded = load_identity(w.member->state, begin + 2001);  // the old pair, or the new one
        REQUIRE(loaded);
        CHECK((*loaded)->certificate == (call == 4 ? reply.certificate : old));
        w.member->renewer.on_time(w.now, {w.issuer->identity.node});  // the round has failed
        CHECK(contains(w.member->renewer.renewal().why(), "cannot"));
        w.now += 3600s;
    }
    w.deliver(w.issuer->identity.node, w.answer(*w.member, w.request()));
    CHECK(w.member->renewer.take_renewed());
    CHECK((*load_identity(w.member->state, begin + 2001))->certificate == w.member->identity.certificate);
}
