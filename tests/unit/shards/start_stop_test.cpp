// Start and stop of a shard's thread: it stops when asked, in every phase of its turn, and a full queue
// delays commands and events but loses none.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ctime>
#include <thread>

#include "pair.hpp"
#include "support/regions.hpp"

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

namespace {

// Makes this process behave as on an old kernel, or in a sandbox that permits no newer calls.
bool refuse_call(uint32_t number) {
    sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog program{std::size(rules), rules};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

}  // namespace

TEST_CASE("a shard with nothing to do sleeps, also where epoll_pwait2 is refused", "[shards]") {
    constexpr int cannot_try = 77;
    const pid_t child = fork();
    if (child == 0) {
        alarm(20);
        if (!refuse_call(SYS_epoll_pwait2)) _exit(cannot_try);
        Node n;
        n.start(1);
        bool idle = false;
        for (int again = 0; again < 5 && !idle; ++again) {  // the first may have its start
            const std::clock_t before = std::clock();       // of the whole process
            std::this_thread::sleep_for(400ms);             // sleep: the time over which it is measured
            idle = std::clock() - before < CLOCKS_PER_SEC / 200;
        }
        n.shard.reset();
        _exit(idle ? 0 : 1);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE(WIFEXITED(status));
    if (WEXITSTATUS(status) == cannot_try) SKIP("this place allows no seccomp filters");
    CHECK(WEXITSTATUS(status) == 0);
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

namespace {

// Sends to a peer that was never introduced: they wait until they are withdrawn, then each fails, with one
// event per handle.
link::Batch waiting_sends(uint64_t op, uint64_t first_handle, uint32_t count) {
    static std::byte some[64];
    link::Batch batch;
    batch.first_handle = first_handle;
    for (uint32_t j = 0; j < count; ++j) {
        link::SendSpec s;
        s.key = key(op, j);
        s.to = link::PeerIndex(77);
        s.memory = {{nexar::test::place_of(some), sizeof some}};
        batch.sends.push_back(s);
    }
    return batch;
}

// Collects until `count` transfers are over, asleep in between. False: no wake-up came, or 30 s have passed.
bool collect_asleep(Node& n, size_t count) {
    const Time end = Loop::now() + 30s;
    while (n.over() < count && Loop::now() < end) {
        n.wakeup.awake();
        n.wakeup.drain();
        n.wakeup.announce_sleep();
        const size_t before = n.over();
        n.collect();
        if (n.over() != before) continue;
        pollfd p{n.wakeup.fd(), POLLIN, 0};
        if (poll(&p, 1, 10000) != 1)
            return false;  // events are outstanding, so the shard must wake this thread
    }
    return n.over() >= count;
}

}  // namespace

TEST_CASE("more commands and events than the queues hold all arrive", "[shards]") {
    Node n;
    n.start(1);
    constexpr uint64_t batches = 9000, per_batch = 4;  // 4096 commands fit, and 16384 events
    for (uint64_t i = 0; i < batches; ++i) n.shard->post(waiting_sends(i, i * per_batch, per_batch));
    for (uint64_t i = 0; i < batches; ++i) n.shard->post(shards::Withdraw{key(i, 0).op});
    CHECK(collect_asleep(n, batches * per_batch));
    CHECK(n.over() == batches * per_batch);
    CHECK(n.each_once());
}

TEST_CASE("commands that found the queue full wake a shard that has emptied it since", "[shards]") {
    Node n;
    n.start(1);
    constexpr uint32_t many = 16000, too_many = 5000;
    // While the shard applies the first two, this thread fills its queue and keeps a rest in the outbox.
    n.shard->post(waiting_sends(1, 0, many));
    n.shard->post(shards::Withdraw{key(1, 0).op});
    for (uint64_t i = 0; i < too_many; ++i) n.shard->post(shards::Withdraw{key(2, 0).op});
    n.shard->post(waiting_sends(3, many, 1));
    n.shard->post(shards::Withdraw{key(3, 0).op});
    std::this_thread::sleep_for(100ms);  // sleep: it empties its queue and sleeps, or not: both are right
    CHECK(collect_asleep(n, many + 1));
    CHECK(n.each_once());
}
