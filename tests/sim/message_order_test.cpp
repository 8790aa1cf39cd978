// The order of messages while senders cancel, and their deadlines pass: of one pair and one tag, what arrives
// arrives in the order of the sends, in the receives in the order in which they were posted.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>

#include "program.hpp"
#include "seeds.hpp"

namespace nexar::sim {
namespace {

struct Posted {
    Call* call;
    uint32_t from;  // the rank that sends
    uint64_t tag;
    std::vector<std::byte> bytes;
};

// One receiver, rank 1; the other ranks send. Every message has data of its own.
class Traffic {
  public:
    Traffic(uint64_t seed, std::vector<uint32_t> placement)
        : cluster(seed, shape()), group(), placement_(std::move(placement)) {
        group = cluster.make_group(placement_);
    }
    Call& send(uint32_t from, uint64_t tag, uint64_t count, Duration timeout = Duration{-1}) {
        engine::OpRequest r = request_of({OpKind::send, Dtype::i32, ReduceOp::sum, count, 0});
        r.peer = 1;
        r.tag = tag;
        r.timeout = timeout;
        const std::vector<std::byte> bytes = Reference::input(++salt_, 0, count, Dtype::i32);
        Call& call = cluster.submit(group, from, r, bytes, 0);
        sent.push_back({&call, from, tag, bytes});
        return call;
    }
    Call& recv(uint32_t from, int64_t tag, Duration timeout = Duration{-1}) {
        engine::OpRequest r = request_of({OpKind::recv, Dtype::i32, ReduceOp::sum, most, 0});
        r.peer = from;
        r.any_tag = tag < 0;
        r.tag = tag < 0 ? 0 : static_cast<uint64_t>(tag);
        r.timeout = timeout;
        Call& call = cluster.submit(group, 1, r, {}, most * 4);
        received.push_back(&call);
        return call;
    }
    // A receive in two steps, or a probe; both take their place in the order now.
    Call& look(OpKind kind, uint32_t from, int64_t tag, Duration timeout = Duration{-1}) {
        engine::OpRequest r = request_of({kind, Dtype::f32, ReduceOp::sum, 0, 0});
        r.peer = from;
        r.any_tag = tag < 0;
        r.tag = tag < 0 ? 0 : static_cast<uint64_t>(tag);
        r.timeout = timeout;
        Call& call = cluster.submit(group, 1, r, {}, 0);
        if (kind == OpKind::mprobe) received.push_back(&call);
        return call;
    }
    // Of the mprobes that have ended, those that have none; `each` in so many.
    void receive_apart(uint64_t each) {
        for (const Call* found : received) {
            if (!found->ok() || found->outcome.message == 0 || of_apart.contains(found)) continue;
            if (below(each) != 0) continue;
            engine::OpRequest r = request_of({OpKind::mrecv, Dtype::i32, ReduceOp::sum, most, 0});
            r.peer = 0;
            r.tag = found->outcome.message;
            of_apart[found] = &cluster.submit(group, 1, r, {}, most * 4);
        }
    }
    // The call that has the bytes; null: nothing was received.
    const Call* bytes_of(const Call& recv) const {
        if (!recv.ok()) return nullptr;
        if (recv.outcome.message == 0) return &recv;
        const auto at = of_apart.find(&recv);
        return at != of_apart.end() && at->second->ok() ? at->second : nullptr;
    }
    void cancel_send(const Posted& p) { cluster.cancel(group, p.from, *p.call); }
    uint64_t below(uint64_t n) { return cluster.clock.random.below(n); }

    // Which message it has received: the place in `sent`.
    size_t message_of(const Call& recv) const {
        for (size_t i = 0; i < sent.size(); ++i) {
            const std::vector<std::byte>& in = sent[i].bytes;
            if (recv.outcome.bytes == in.size() && std::equal(in.begin(), in.end(), recv.out_at_end.begin()))
                return i;
        }
        return sent.size();
    }
    void expect_order() const;
    void expect_end() {
        const bool finished = cluster.run();
        INFO(cluster.unfinished());
        REQUIRE(finished);
        cluster.check();
    }

    static constexpr uint64_t most = 60'000;
    Cluster cluster;
    SimGroup group;
    std::vector<Posted> sent;
    std::vector<const Call*> received;            // in the order in which they were posted
    std::map<const Call*, const Call*> of_apart;  // mprobe: its mrecv

  private:
    static ClusterShape shape() {
        ClusterShape shape;
        shape.nodes = 3;
        shape.collective_timeout = Duration{0};
        return shape;
    }
    std::vector<uint32_t> placement_;
    uint64_t salt_ = 0;
};

void Traffic::expect_order() const {
    std::map<std::pair<uint32_t, uint64_t>, size_t> last;  // by source and tag
    std::set<size_t> arrived;
    for (size_t r = 0; r < received.size(); ++r) {
        const Call* bytes = bytes_of(*received[r]);
        if (bytes == nullptr) continue;
        const size_t message = message_of(*bytes);
        CAPTURE(r, message);
        REQUIRE(message < sent.size());
        REQUIRE(bytes->outcome.source == received[r]->outcome.source);
        REQUIRE(received[r]->outcome.source == sent[message].from);
        REQUIRE(received[r]->outcome.tag == sent[message].tag);
        REQUIRE(arrived.insert(message).second);
        size_t& before = last[{sent[message].from, sent[message].tag}];  // one more than its place
        REQUIRE(before <= message);
        before = message + 1;
    }
    for (size_t i = 0; i < sent.size(); ++i)
        if (sent[i].call->ok()) REQUIRE(arrived.contains(i));
}

// Something that a rank does, at random. `gives_up`: the receiver, too, cancels and has deadlines.
void act(Traffic& t, bool gives_up) {
    const uint64_t what = t.below(10);
    const uint32_t from = t.below(2) ? 0 : 2;
    const uint64_t tag = 5 + t.below(2);
    const bool any_source = t.below(3) == 0, any_tag = t.below(3) == 0;
    const uint64_t count = 1 + t.below(any_tag ? Traffic::most : 300);
    const Duration deadline = t.below(3) == 0 ? 1ns + t.cluster.clock.some(500us) : Duration{0};
    const uint64_t which = t.below(1000);
    if (what < 4)
        t.send(from, tag, count, deadline);
    else if (what < 7)
        t.recv(any_source ? engine::any_rank : from, any_tag ? -1 : static_cast<int64_t>(tag),
               gives_up ? deadline : Duration{0});
    else if (what < 9 && !t.sent.empty())
        t.cancel_send(t.sent[which % t.sent.size()]);
    else if (gives_up && !t.received.empty())
        t.cluster.cancel(t.group, 1, *t.received[which % t.received.size()]);
    if (which % 2) t.cluster.run_for(t.cluster.clock.some(60us));
}

const std::vector<std::vector<uint32_t>> placements = {{0, 1, 0}, {0, 1, 2}, {0, 0, 1}, {0, 0, 0}};

}  // namespace

TEST_CASE("a receive whose message was taken back, after a later one has got the next, is aborted") {
    size_t aborted = 0;
    for (const uint64_t seed : seeds(40)) {
        CAPTURE(seed);
        Traffic t(seed, {0, 1});
        const Call& a = t.recv(0, 5);
        const Call& b = t.recv(0, 5);
        const Call& first = t.send(0, 5, Traffic::most);
        const Call& second = t.send(0, 5, 1);
        while (!second.ended) t.cluster.run_for(1us);
        t.cancel_send(t.sent[0]);
        const Call& third = t.send(0, 5, 3);
        t.cluster.run_for(20ms);
        REQUIRE((a.ended && b.ok()));
        t.expect_order();
        if (!a.ok()) {
            ++aborted;
            CAPTURE(a.outcome.error.text);
            REQUIRE(first.outcome.error.code == Errc::cancelled);
            REQUIRE(a.outcome.error.code == Errc::aborted);
            REQUIRE(a.outcome.error.rank == 0);
        }
        const Call& c = t.recv(0, 5);  // nothing is lost
        t.expect_end();
        REQUIRE((third.ok() && c.ok()));
        REQUIRE(t.message_of(c) == 2);
        t.expect_order();
    }
    REQUIRE(met(aborted));
}

// Unless a later one has its message by then: such a receive is aborted, as nexar.h says.
TEST_CASE("a receive whose message was taken back comes before later ones for what is sent next") {
    size_t again = 0;
    for (const uint64_t seed : seeds(60)) {
        const uint64_t cancelled = 1 + seed % 3;
        CAPTURE(seed, cancelled);
        Traffic t(seed, {0, 1});
        for (int i = 0; i < 4; ++i) t.recv(seed % 2 ? 0 : engine::any_rank, seed % 5 ? 5 : -1);
        for (uint64_t i = 0; i < cancelled; ++i) t.send(0, 5, Traffic::most);
        t.cluster.run_for(40us + t.cluster.clock.some(100us));
        for (uint64_t i = 0; i < cancelled; ++i) t.cancel_send(t.sent[i]);
        for (int i = 0; i < 4; ++i) t.send(0, 5, 1 + t.below(2000));
        t.cluster.run_for(20ms);
        const auto too_late = [&](const Call* call) { return call->ok() && t.message_of(*call) < cancelled; };
        bool all_again = std::ranges::none_of(t.received, too_late);
        for (const Call* call : t.received) {
            CAPTURE(call->outcome.error.text);
            REQUIRE((call->ok() || call->outcome.error.code == Errc::aborted));
            all_again = all_again && call->ok();
        }
        again += all_again ? 1 : 0;
        t.expect_order();
        for (const Posted& p : t.sent) t.cancel_send(p);
        t.expect_end();
    }
    REQUIRE(met(again));  // aborted ones are rare: one seed of a thousand
}

TEST_CASE("what a rank sent last arrives, also when it takes another message back just before it leaves") {
    size_t again = 0;
    for (const uint64_t seed : seeds(60)) {
        CAPTURE(seed);
        Traffic t(seed, {0, 1});
        const Call& a = t.recv(0, 5);
        const Call& b = t.recv(engine::any_rank, -1);
        t.send(0, 5, Traffic::most);
        t.cluster.run_for(20us + t.cluster.clock.some(60us));
        t.cancel_send(t.sent[0]);
        t.send(0, 5, 1 + t.below(2000));
        t.cluster.end_session(t.group, 0, false);
        t.expect_end();
        REQUIRE(a.ok());
        if (t.message_of(a) == 0) {
            REQUIRE(b.ok());
        } else {
            ++again;
            CAPTURE(b.outcome.error.text);
            REQUIRE(b.outcome.error.rank == 0);
            REQUIRE((b.outcome.error.code == Errc::peer_lost || b.outcome.error.code == Errc::aborted));
        }
        t.expect_order();
    }
    REQUIRE(met(again));
}

TEST_CASE("messages keep their order whatever is cancelled, or late, on either side") {
    size_t well = 0, aborted = 0;
    for (const std::vector<uint32_t>& placement : placements)
        for (const uint64_t seed : seeds(150)) {
            CAPTURE(placement, seed);
            Traffic t(seed, placement);
            for (int step = 0; step < 40; ++step) act(t, seed % 4 == 0);
            t.cluster.run_for(50ms);
            for (const Call* call : t.received) {
                if (call->ended && call->outcome.error.code == Errc::aborted) ++aborted;
                well += call->ok() ? 1 : 0;
                t.cluster.cancel(t.group, 1, *call);
            }
            for (const Posted& p : t.sent) t.cancel_send(p);
            t.expect_end();
            t.expect_order();
        }
    REQUIRE(met(well));
    REQUIRE(met(aborted));
}

// The channel breaks, too. An mprobe has its place in the order, whenever its mrecv comes.
TEST_CASE("probes and messages that are set apart keep the order, whatever is cancelled or late",
          "[X1][X2]") {
    size_t apart = 0, looked = 0, taken_back = 0;
    for (const std::vector<uint32_t>& placement : placements)
        for (const uint64_t seed : seeds(100)) {
            CAPTURE(placement, seed);
            Traffic t(seed, placement);
            std::vector<const Call*> probes;
            for (int i = 0; i < 3; ++i)
                t.cluster.clock.after(t.cluster.clock.some(2ms),
                                      [&t] { t.cluster.break_channel(0, 1, t.cluster.clock.some(200us)); });
            for (int step = 0; step < 50; ++step) {
                act(t, seed % 4 == 0);
                const uint32_t from = t.below(3) == 0 ? engine::any_rank : t.below(2) ? 0 : 2;
                const int64_t tag = t.below(3) == 0 ? -1 : static_cast<int64_t>(5 + t.below(2));
                if (t.below(3) == 0) t.look(OpKind::mprobe, from, tag, Duration{0});
                if (t.below(3) == 0)
                    probes.push_back(&t.look(OpKind::probe, from, tag, t.cluster.clock.some(500us) + 1ns));
                t.receive_apart(3);
            }
            t.cluster.run_for(50ms);
            t.receive_apart(1);
            t.cluster.run_for(50ms);
            for (const auto& [found, mrecv] : t.of_apart) {
                ++(mrecv->ok() ? apart : taken_back);
                REQUIRE((mrecv->ok() || mrecv->outcome.error.code == Errc::aborted));
            }
            for (const Call* probe : probes) looked += probe->ok() ? 1 : 0;
            for (const Call* call : t.received) t.cluster.cancel(t.group, 1, *call);
            for (const Call* probe : probes) t.cluster.cancel(t.group, 1, *probe);
            for (const Posted& p : t.sent) t.cancel_send(p);
            t.expect_end();
            t.expect_order();
        }
    REQUIRE(met(apart));
    REQUIRE(met(looked));
    REQUIRE(met(taken_back));
}

}  // namespace nexar::sim
