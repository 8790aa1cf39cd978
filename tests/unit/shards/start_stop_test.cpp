// The life of a shard's thread: it ends when it is told to, whatever it is doing, and no command or event is
// left lying because a queue was full.
#include "pair.hpp"

using namespace nexar;
using namespace nexar::shards::test;
using shards::Shard;

TEST_CASE("a shard ends at once, also when it is just falling asleep", "[shards]") {
    Node n;
    Random random(1);
    // No yield phase: the first turn is followed by the announcement, and the end comes about then.
    for (int i = 0; i < 400; ++i) {
        n.start(1, 0ns);
        const Time until = Loop::now() + Duration(static_cast<int64_t>(random.below(60'000)));
        while (Loop::now() < until) {
        }
        n.shard.reset();  // joins; a lost wake-up would last for ever
    }
}

TEST_CASE("a port that is taken is an error, not a thread", "[shards]") {
    Node first;
    first.start(1);
    shards::ShardConfig c;
    c.listen = first.shard->local_address();
    c.identity = first.identity();
    c.verifier = judge;
    loop::Wakeup wakeup;
    const auto second = Shard::start(std::move(c), wakeup);
    REQUIRE_FALSE(second);
    CHECK(second.error().text.find(first.shard->local_address().text()) != std::string::npos);
}

TEST_CASE("more commands and events than the queues hold all arrive", "[shards]") {
    Node n;
    n.start(1);
    // A peer that nobody introduced: each send fails at once, one event per handle. 16384 events fit.
    constexpr uint64_t batches = 9000, per_batch = 4;
    static std::byte some[64];
    for (uint64_t i = 0; i < batches; ++i) {
        link::Batch batch;
        batch.first_handle = i * per_batch;
        for (uint32_t j = 0; j < per_batch; ++j) {
            link::SendSpec s;
            s.key = key(i, j);
            s.to = link::PeerIndex(77);
            s.memory = {{some, sizeof some}};
            batch.sends.push_back(s);
        }
        n.shard->post(std::move(batch));
    }
    for (uint64_t i = 0; i < batches; ++i) n.shard->post(shards::Withdraw{key(i, 0).op});
    const Time end = Loop::now() + 30s;
    while (n.over() < batches * per_batch && Loop::now() < end) {
        n.wakeup.awake();
        n.wakeup.drain();
        n.wakeup.announce_sleep();
        const size_t before = n.over();
        n.collect();
        if (n.over() != before) continue;
        pollfd p{n.wakeup.fd(), POLLIN, 0};
        REQUIRE(poll(&p, 1, 10000) == 1);  // something is still to come, so somebody must wake us
    }
    CHECK(n.over() == batches * per_batch);
    CHECK(n.each_once());
}
