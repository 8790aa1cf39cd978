// The worker threads: every job is done exactly once and reported exactly once, whatever is big or small, and
// a pool may end with work before it.
#include "workers/pool.hpp"

#include <poll.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <map>

#include "engine/local_job.hpp"
#include "loop/fd.hpp"
#include "loop/loop.hpp"
#include "memory.hpp"
#include "support/regions.hpp"

using namespace nexar;
using namespace std::chrono_literals;
using engine::WorkerJob;
using loop::Loop;
using workers::Pool;
using workers::test::Cut;
using workers::test::numbers;
using workers::test::sum;

namespace {

constexpr size_t piece_bytes = workers::piece_traffic / 2;  // of a copy

struct Sum {
    Cut a, b, out;
    std::vector<std::byte> expected;

    Sum(Random& random, size_t count, uint64_t salt)
        : a(random, count * 4, 4), b(random, count * 4, 4), out(random, count * 4, 4) {
        const auto x = numbers<uint32_t>(count, salt), y = numbers<uint32_t>(count, salt + 100000);
        a.set(x);
        b.set(y);
        expected = sum<uint32_t>({x, y});
    }
    WorkerJob job(uint64_t handle) const {
        WorkerJob j;
        j.handle = handle;
        j.kind = WorkerJob::Kind::reduce;
        j.dtype = Dtype::u32;
        j.srcs = {a.extents(), b.extents()};
        j.dsts = {out.extents()};
        return j;
    }
    bool right() const { return out.flat() == expected && out.canaries_live(); }
};

// As the control loop does it: takes what is done, and sleeps on the wake-up in between. False: a completion
// was lost.
bool collect(Pool& pool, loop::Wakeup& wakeup, std::map<uint64_t, int>& ends, size_t wanted) {
    const Time limit = Loop::now() + 60s;
    size_t got = 0;
    for (const auto& [handle, times] : ends) got += static_cast<size_t>(times);
    while (got < wanted) {
        wakeup.awake();
        while (auto handle = pool.poll_done()) {
            ++ends[*handle];
            ++got;
        }
        if (got >= wanted) break;
        wakeup.announce_sleep();
        if (auto handle = pool.poll_done()) {
            ++ends[*handle];
            ++got;
            continue;
        }
        pollfd p{wakeup.fd(), POLLIN, 0};
        if (poll(&p, 1, 10000) != 1 || Loop::now() > limit) return false;
        wakeup.drain();
    }
    wakeup.awake();
    return true;
}

void check_all_done(size_t threads) {
    Random random(threads + 1);
    loop::Wakeup wakeup;
    Pool pool(threads, wakeup);
    std::vector<std::unique_ptr<Sum>> sums;
    for (uint64_t i = 0; i < 60; ++i) {
        const size_t count = i % 10 == 0 ? 150000 + random.below(50000) : 1 + random.below(4000);
        sums.push_back(std::make_unique<Sum>(random, count, i));
    }
    std::map<uint64_t, int> ends;
    for (size_t i = 0; i < sums.size(); ++i) {
        pool.submit(sums[i]->job(1000 + i));
        if (!random.one_in(4)) continue;
        if (auto handle = pool.poll_done()) ++ends[*handle];
    }
    REQUIRE(collect(pool, wakeup, ends, sums.size()));
    CHECK(pool.idle());
    CHECK_FALSE(pool.poll_done());
    CHECK(ends.size() == sums.size());
    for (const auto& [handle, times] : ends) CHECK(times == 1);
    for (const auto& s : sums) CHECK(s->right());
}

}  // namespace

TEST_CASE("big and small jobs are each done and reported once, with 0 to 3 threads", "[workers][threads]") {
    for (size_t threads = 0; threads <= 3; ++threads) {
        INFO(threads << " threads");
        check_all_done(threads);
    }
}

TEST_CASE("jobs one after the other find sleeping workers awake", "[workers][threads]") {
    Random random(9);
    loop::Wakeup wakeup;
    Pool pool(2, wakeup);
    Sum s(random, 5000, 1);
    std::map<uint64_t, int> ends;
    for (uint64_t i = 0; i < 2000; ++i) {
        pool.submit(s.job(i));
        REQUIRE(collect(pool, wakeup, ends, i + 1));
    }
    CHECK(ends.size() == 2000);
    CHECK(s.right());
}

TEST_CASE("more completions than the queue holds are all reported, once they are asked for",
          "[workers][threads]") {
    loop::Wakeup wakeup;
    Pool pool(1, wakeup);
    constexpr size_t jobs = 12000;  // the queues hold 4096
    std::vector<std::byte> from(workers::inline_bytes_max + 8, std::byte{7}), to(from.size());
    WorkerJob copy;
    copy.srcs = {{{nexar::test::place_of(from.data()), from.size()}}};
    copy.dsts = {{{nexar::test::place_of(to.data()), to.size()}}};
    std::map<uint64_t, int> ends;
    for (uint64_t i = 0; i < jobs; ++i) {
        copy.handle = i;
        pool.submit(copy);
    }
    // The worker fills its queue of completions and falls asleep meanwhile, or not.
    std::this_thread::sleep_for(50ms);  // sleep: makes the case, proves nothing
    REQUIRE(collect(pool, wakeup, ends, jobs));
    CHECK(ends.size() == jobs);
    CHECK(to == from);
}

TEST_CASE("a job of many pieces is done while the loop sleeps", "[workers][threads]") {
    loop::Wakeup wakeup;
    Pool pool(1, wakeup);
    // Onto itself, again and again: no byte is copied, but the pieces are there.
    std::vector<std::byte> memory(piece_bytes);
    WorkerJob copy;
    copy.dsts = {link::Extents(5000, {nexar::test::place_of(memory.data()), memory.size()})};
    copy.srcs = copy.dsts;
    copy.handle = 1;
    pool.submit(copy);
    std::map<uint64_t, int> ends;
    REQUIRE(collect(pool, wakeup, ends, 1));
    CHECK(pool.idle());
}

TEST_CASE("a pool ends with work before it, and lets go of all jobs", "[workers][threads]") {
    Random random(3);
    for (int round = 0; round < 5; ++round) {
        loop::Wakeup wakeup;
        std::vector<std::unique_ptr<Sum>> sums;
        for (uint64_t i = 0; i < 20; ++i) sums.push_back(std::make_unique<Sum>(random, 100000, i));
        std::weak_ptr<const void> watch;
        {
            Pool pool(1 + random.below(3), wakeup);
            const auto unwanted = std::make_shared<std::atomic<bool>>(false);
            watch = unwanted;
            for (uint64_t i = 0; i < 20; ++i) {
                WorkerJob job = sums[i]->job(i);
                job.unwanted = unwanted;
                pool.submit(std::move(job));
            }
            CHECK_FALSE(pool.idle());
        }
        CHECK(watch.expired());
    }
}

TEST_CASE("what is left of a job that nobody wants any more is skipped, and the job ends",
          "[workers][threads][D9]") {
    loop::Wakeup wakeup;
    std::vector<std::byte> from(piece_bytes, std::byte{7}), to(from.size()), end(from.size());
    const auto unwanted = std::make_shared<std::atomic<bool>>(false);
    Pool pool(1, wakeup);
    const auto copy = [&](uint64_t handle, size_t pieces, std::vector<std::byte>& last) {
        WorkerJob job;
        job.handle = handle;
        job.dsts = {link::Extents(pieces, {nexar::test::place_of(to.data()), to.size()})};
        job.dsts[0].back() = {nexar::test::place_of(last.data()), last.size()};
        job.srcs = {link::Extents(pieces, {nexar::test::place_of(from.data()), from.size()})};
        return job;
    };
    // Behind work for seconds, so that its last piece has not begun when it is given up.
    WorkerJob long_one = copy(1, 20000, end);
    long_one.unwanted = unwanted;
    pool.submit(std::move(long_one));
    unwanted->store(true);
    std::map<uint64_t, int> ends;
    REQUIRE(collect(pool, wakeup, ends, 1));
    CHECK(end == std::vector<std::byte>(end.size()));

    std::vector<std::byte> next(from.size());
    pool.submit(copy(2, 3, next));
    REQUIRE(collect(pool, wakeup, ends, 2));
    CHECK(next == from);
}

TEST_CASE("a job does not wait for all that another tenant has queued", "[workers][threads][H17]") {
    loop::Wakeup wakeup;
    Pool pool(1, wakeup);
    std::vector<std::byte> from(64 * piece_bytes), to(from.size());
    const auto copy = [&](uint64_t handle, uint64_t tenant, size_t bytes) {
        WorkerJob job;
        job.handle = handle;
        job.dsts = {{{nexar::test::place_of(to.data()), bytes}}};
        job.srcs = {{{nexar::test::place_of(from.data()), bytes}}};
        job.origin.tenant = tenant;
        return job;
    };
    constexpr uint64_t queued = 40;
    // The worker may get as far as it likes before the newcomer comes, on a busy machine: then it is tried
    // anew.
    size_t least = queued + 1;
    for (int tries = 0; least > 3 && tries < 20; ++tries) {
        for (uint64_t i = 1; i <= queued; ++i) pool.submit(copy(i, 1, from.size()));
        pool.submit(copy(100, 2, piece_bytes));
        std::map<uint64_t, int> ends;
        for (size_t n = 1; !ends.contains(100); ++n) REQUIRE(collect(pool, wakeup, ends, n));
        least = std::min(least, ends.size());
        REQUIRE(collect(pool, wakeup, ends, queued + 1));
    }
    CHECK(least <= 3);
}
