// How jobs get from the control loop to the workers [K32].
#include "workers/shared_queue.hpp"

#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <map>
#include <thread>
#include <vector>

#include "support/regions.hpp"

using namespace nexar;
using workers::Job;
using workers::piece_traffic;
using workers::SharedQueue;

namespace {

// A copy of so many pieces that is never run.
std::shared_ptr<Job> job_of(uint64_t handle, size_t pieces, engine::WorkOrigin origin = {}) {
    static std::byte somewhere;
    const link::Extents extents{{nexar::test::place_of(&somewhere), pieces * piece_traffic / 2}};
    engine::WorkerJob job;
    job.handle = handle;
    job.srcs = {extents};
    job.dsts = {extents};
    job.origin = origin;
    return std::make_shared<Job>(std::move(job));
}

std::vector<uint64_t> handles_of(SharedQueue& queue) {
    std::vector<uint64_t> out;
    while (const auto piece = queue.take()) out.push_back(piece->job->job.handle);
    return out;
}

}  // namespace

TEST_CASE("a job is handed over while a worker is stopped that takes a piece", "[workers][K32]") {
    SharedQueue queue;
    CHECK_FALSE(queue.any());
    CHECK_FALSE(queue.take());
    std::thread taker;
    {
        const auto stopped = queue.hold();
        taker = std::thread([&queue] { static_cast<void>(queue.take()); });
        for (uint64_t handle = 1; handle <= 5; ++handle) queue.push(job_of(handle, 1));
        CHECK(queue.any());
    }
    taker.join();
    const auto handles = handles_of(queue);
    // Whether the other one found a piece is a matter of time.
    CHECK(handles.size() >= 4);
    CHECK(std::ranges::is_sorted(handles));
    CHECK_FALSE(queue.any());
}

TEST_CASE("what was handed over last passes what waits, by its priority", "[workers][K32][K22]") {
    SharedQueue queue;
    const auto with = [](Priority priority) {
        engine::WorkOrigin origin;
        origin.priority = priority;
        return origin;
    };
    for (uint64_t handle = 1; handle <= 3; ++handle) queue.push(job_of(handle, 1, with(Priority::bulk)));
    REQUIRE(queue.take()->job->job.handle == 1);
    queue.push(job_of(4, 1, with(Priority::bulk)));
    queue.push(job_of(5, 1, with(Priority::critical)));
    CHECK(handles_of(queue) == std::vector<uint64_t>{5, 2, 3, 4});
}

TEST_CASE("each piece of what one thread hands over is taken once, by whichever of several",
          "[workers][K32]") {
    constexpr uint64_t jobs = 2000;
    constexpr size_t takers = 3;
    SharedQueue queue;
    std::atomic<bool> all_there{false};
    std::map<uint64_t, std::vector<size_t>> begins[takers];
    std::vector<std::thread> threads;
    for (size_t i = 0; i < takers; ++i)
        threads.emplace_back([&, i] {
            while (true) {
                const bool last = all_there.load();
                if (const auto piece = queue.take())
                    begins[i][piece->job->job.handle].push_back(piece->begin);
                else if (last)
                    return;
                else
                    std::this_thread::yield();
            }
        });
    for (uint64_t handle = 0; handle < jobs; ++handle) queue.push(job_of(handle, 1 + handle % 3));
    all_there.store(true);
    for (std::thread& thread : threads) thread.join();
    std::map<uint64_t, std::vector<size_t>> all;
    for (const auto& each : begins)
        for (const auto& [handle, at] : each) all[handle].insert(all[handle].end(), at.begin(), at.end());
    REQUIRE(all.size() == jobs);
    for (auto& [handle, at] : all) {
        std::ranges::sort(at);
        CHECK(at.size() == 1 + handle % 3);
        CHECK(std::ranges::adjacent_find(at) == at.end());
    }
}

TEST_CASE("jobs that nobody has taken end with their queue", "[workers][K32]") {
    std::weak_ptr<Job> watch;
    {
        SharedQueue queue;
        auto job = job_of(1, 2);
        watch = job;
        queue.push(std::move(job));
        CHECK_FALSE(watch.expired());
    }
    CHECK(watch.expired());
}
