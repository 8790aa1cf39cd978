// Whose piece is next [N5]: turns between tenants, sessions and groups, by what the pieces cost.
#include "workers/fair_queue.hpp"

#include <catch2/catch_test_macros.hpp>
#include <map>
#include <tuple>
#include <vector>

#include "core/random.hpp"
#include "support/regions.hpp"

using namespace nexar;
using workers::FairQueue;
using workers::Job;
using workers::Piece;
using workers::piece_traffic;
using workers::turn_cost;

namespace {

// A copy of so many bytes that is never run.
std::shared_ptr<Job> job_of(engine::WorkOrigin origin, size_t bytes, uint64_t handle = 0, size_t copies = 1) {
    static std::byte somewhere;
    const link::Extents extents{{nexar::test::place_of(&somewhere), bytes}};
    engine::WorkerJob job;
    job.handle = handle;
    job.srcs = {extents};
    job.dsts.assign(copies, extents);
    job.origin = origin;
    return std::make_shared<Job>(std::move(job));
}

constexpr size_t copy_piece = piece_traffic / 2;  // bytes of a copy's piece

uint64_t cost_of(const Piece& piece) {
    return (piece.end - piece.begin) * (piece.job->job.dsts.size() + piece.job->job.srcs.size());
}

}  // namespace

TEST_CASE("a job is cut into pieces of equal traffic, whatever lists it has", "[workers][N5][K26]") {
    for (const size_t copies : {1u, 2u, 7u, 64u}) {
        INFO(copies << " copies");
        FairQueue queue;
        const size_t bytes = 3'000'017;
        queue.push(job_of({}, bytes, 1, copies));
        size_t at = 0;
        while (!queue.empty()) {
            const Piece piece = queue.take();
            CHECK(piece.begin == at);
            CHECK(piece.begin % 64 == 0);
            CHECK(piece.end > piece.begin);
            CHECK(cost_of(piece) <= piece_traffic);
            if (piece.end != bytes) CHECK(cost_of(piece) > piece_traffic - 64 * (copies + 1));
            at = piece.end;
        }
        CHECK(at == bytes);
    }
}

TEST_CASE("a newcomer's piece waits for one turn of each other tenant", "[workers][N6][H17]") {
    FairQueue queue;
    for (uint64_t i = 0; i < 64; ++i) queue.push(job_of({1, 1, i % 4}, 128 << 20, i));
    for (uint64_t i = 0; i < 64; ++i) queue.push(job_of({2, 2, 0}, 128 << 20, 100 + i));
    for (int i = 0; i < 33; ++i) queue.take();
    queue.push(job_of({3, 3, 0}, copy_piece, 999));
    size_t before = 0;
    while (queue.take().job->job.handle != 999) ++before;
    CHECK(before <= 2 + 1);  // and what is left of the turn that had begun
}

TEST_CASE("sessions share their tenant's turns, and groups their session's", "[workers][N5]") {
    FairQueue queue;
    queue.push(job_of({1, 1, 1}, 100 * copy_piece));
    queue.push(job_of({1, 2, 1}, 100 * copy_piece));
    queue.push(job_of({1, 2, 2}, 100 * copy_piece));
    queue.push(job_of({2, 3, 1}, 100 * copy_piece));
    std::map<std::tuple<uint64_t, uint64_t, uint64_t>, int> pieces;
    for (int i = 0; i < 80; ++i) {
        const engine::WorkOrigin origin = queue.take().job->job.origin;
        ++pieces[{origin.tenant, origin.session, origin.group}];
    }
    CHECK(pieces[{2, 3, 1}] == 40);
    CHECK(pieces[{1, 1, 1}] == 20);
    CHECK(pieces[{1, 2, 1}] == 10);
    CHECK(pieces[{1, 2, 2}] == 10);
}

TEST_CASE("what is left of a job that nobody wants is one piece that costs nothing", "[workers][N5][D9]") {
    FairQueue queue;
    const auto unwanted = std::make_shared<std::atomic<bool>>(false);
    const auto job = job_of({1, 1, 1}, 100 * copy_piece, 1);
    job->job.unwanted = unwanted;
    queue.push(job);
    CHECK(queue.take().end == copy_piece);
    unwanted->store(true);
    CHECK(queue.take().end == 100 * copy_piece);
    CHECK(queue.empty());
}

TEST_CASE("an urgent job overtakes all that its tenant has queued, of any session and group",
          "[workers][K22]") {
    FairQueue queue;
    for (uint64_t i = 0; i < 64; ++i) queue.push(job_of({1, i % 3, i % 4, Priority::bulk}, 128 << 20, i));
    for (int i = 0; i < 33; ++i) queue.take();
    queue.push(job_of({1, 7, 1, Priority::realtime}, copy_piece, 1001));
    queue.push(job_of({1, 8, 1, Priority::critical}, copy_piece, 1002));
    CHECK(queue.take().job->job.handle == 1002);
    CHECK(queue.take().job->job.handle == 1001);
    CHECK(queue.take().job->job.handle < 64);
}

TEST_CASE("a less urgent job that was passed over for long gets a piece", "[workers][K22]") {
    FairQueue queue;
    queue.push(job_of({1, 1, 1, Priority::bulk}, 10 * copy_piece, 3));
    queue.push(job_of({1, 1, 1, Priority::realtime}, 100 * copy_piece, 2));
    queue.push(job_of({1, 1, 1, Priority::critical}, 100 * copy_piece, 1));
    std::map<uint64_t, int> pieces;
    std::vector<uint64_t> order;
    for (int i = 0; i < 60; ++i) {
        order.push_back(queue.take().job->job.handle);
        ++pieces[order.back()];
    }
    constexpr int floor = workers::priority_floor / turn_cost;
    CHECK(std::vector<uint64_t>(order.begin(), order.begin() + floor) == std::vector<uint64_t>(floor, 1));
    CHECK(pieces[1] >= 60 * 3 / 5);  // of each six pieces four: the others get one each
    CHECK(pieces[2] >= 60 / 6);
    CHECK(pieces[3] == 10);
}

TEST_CASE("urgency takes nothing from another tenant, and does not wait longer than its tenant's turn",
          "[workers][K22][N5]") {
    FairQueue queue;
    for (uint64_t i = 0; i < 8; ++i)
        queue.push(job_of({1, i, i, Priority::critical}, 100 * copy_piece, 100 + i));
    queue.push(job_of({2, 1, 1, Priority::bulk}, 100 * copy_piece, 200));
    std::map<uint64_t, int> pieces;
    for (int i = 0; i < 80; ++i) ++pieces[queue.take().job->job.origin.tenant];
    CHECK(pieces[1] == 40);
    CHECK(pieces[2] == 40);
    queue.push(job_of({2, 2, 2, Priority::critical}, copy_piece, 201));
    const uint64_t first = queue.take().job->job.handle;
    CHECK((first == 201 || queue.take().job->job.handle == 201));
}

namespace {

// Random jobs of a few tenants, sessions and groups come and are taken.
class Mix {
  public:
    explicit Mix(uint64_t seed) : random_(seed) {}

    void run() {
        for (int step = 0; step < 3000; ++step) {
            if (random_.one_in(step < 2000 ? 4 : 40)) add();
            if (!queue_.empty()) take();
        }
        while (!queue_.empty()) take();
        for (const auto& [handle, job] : jobs_) CHECK(job->begun == job->bytes);
        for (const auto& [tenant, waiting] : waiting_) CHECK(waiting == 0);
        CHECK(queue_.tenants() == 0);
    }

  private:
    void add() {
        const engine::WorkOrigin origin{random_.below(3), random_.below(2), random_.below(2),
                                        static_cast<Priority>(random_.below(priority_count))};
        const size_t bytes = 1 + random_.below(random_.one_in(3) ? 20 * copy_piece : copy_piece / 8);
        const uint64_t handle = jobs_.size() + 1;
        jobs_[handle] = job_of(origin, bytes, handle, 1 + random_.below(3));
        if (waiting_[origin.tenant]++ == 0) since_[origin.tenant] = {};
        queue_.push(jobs_[handle]);
    }
    void take() {
        const Piece piece = queue_.take();
        const Job& job = *piece.job;
        const engine::WorkOrigin& origin = job.job.origin;
        CHECK(piece.begin == next_[job.job.handle]);
        next_[job.job.handle] = piece.end;
        if (piece.begin == 0) check_in_order(job);
        for (auto& [tenant, served] : since_)
            if (waiting_[tenant] > 0) served[origin.tenant] += cost_of(piece);
        if (piece.end == job.bytes && --waiting_[origin.tenant] == 0) since_.erase(origin.tenant);
        check_shares();
    }
    void check_in_order(const Job& job) {
        const engine::WorkOrigin& o = job.job.origin;
        uint64_t& last = last_[{o.tenant, o.session, o.group, o.priority}];
        CHECK(last < job.job.handle);
        last = job.job.handle;
    }
    // Since a tenant has work, no other one has got more than it by more than three turns: one, and a piece
    // of each of the two.
    void check_shares() {
        for (auto& [tenant, served] : since_)
            for (const auto& [other, cost] : served) CHECK(cost <= served[tenant] + 3 * turn_cost);
    }

    Random random_;
    FairQueue queue_;
    std::map<uint64_t, std::shared_ptr<Job>> jobs_;           // by handle
    std::map<uint64_t, size_t> next_;                         // by handle: where its next piece begins
    std::map<uint64_t, size_t> waiting_;                      // by tenant: jobs in the queue
    std::map<uint64_t, std::map<uint64_t, uint64_t>> since_;  // by tenant with work: what each got since
    std::map<std::tuple<uint64_t, uint64_t, uint64_t, Priority>, uint64_t>
        last_;  // by origin: the newest begun job
};

}  // namespace

TEST_CASE("any mix of jobs is served whole, in order in a group, and in equal shares between tenants",
          "[workers][N5][N7][K22]") {
    for (uint64_t seed = 1; seed <= 40; ++seed) {
        INFO("seed " << seed);
        Mix(seed).run();
    }
}
