// Lending: when the control loop drives the endpoint of a bulk shard itself, and when it gives it back to the
// shard's thread (docs/protocol/transfers.md [T8]). A single operation of middle size is quicker so, by two
// hand-overs with their wake-ups; beside anything else the thread has it, so that nobody's small operation
// waits for another's bulk. Dry; one for all shards of a node. Thread: the control loop's.
#pragma once

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "core/ids.hpp"
#include "core/time.hpp"
#include "link/mesh.hpp"

namespace nexar::shards {

// A shard, as Lending sees it.
class Lendable {
  public:
    // The loop drives the endpoint from now on, in its turns, until it gives it back. False: the thread is at
    // work, or something waits between the two; it offers the endpoint once it has no transfers.
    virtual bool borrow() = 0;
    virtual void give_back() = 0;  // with all transfers that are in flight
    virtual bool is_borrowed() const = 0;
    // Nobody drives the endpoint until the loop borrows or declines it.
    virtual bool is_offered() const = 0;
    virtual void decline() = 0;
    // Require: is_borrowed().
    virtual bool has_transfers() const = 0;
    // Something came that is not the transfers' own: handshakes of newcomers, or bytes over UDP. How much of
    // that there is others choose, so it is the thread's.
    virtual bool has_visitors() const = 0;
    // Of a turn; while the thread drives it: nothing. True: there was work.
    virtual bool receive(Time now) = 0;
    virtual bool send(Time now) = 0;
    virtual Time wake_at() const = 0;
    virtual bool is_due(Time now) const = 0;  // bytes that wait

  protected:
    ~Lendable() = default;
};

class Lending {
  public:
    // Sent or received by the operation, and by the one before if that was in flight at a borrowed endpoint
    // when it began; by messages since none was in flight there.
    static constexpr size_t bytes_max = 4 * 1024 * 1024;
    static constexpr Duration linger{10'000'000};  // without work on transfers
    // After something else was beside it; doubled each time that it happens soon again: who has an operation
    // now and then is not to wait for another's each time.
    static constexpr Duration pause_min{20'000'000}, pause_max{1'000'000'000};

    // `running`: how many collectives of this node have begun and are not over.
    explicit Lending(std::function<size_t()> running) : running_(std::move(running)) {}

    void add(Lendable& shard) { rows_.push_back({&shard}); }
    void clear() { rows_.clear(); }

    // A rank here has called an operation of this group.
    void requested(Time now, const GroupId& group);
    // The engine is about to post a batch to this shard. Requires: add(to).
    void posting(Time now, const link::Batch& batch, const Lendable& to);

    // The two ends of a turn. True: there was work.
    bool receive(Time now);
    bool send(Time now);
    Time wake_at() const;
    bool is_due(Time now) const;  // bytes that wait

  private:
    struct Row {
        Lendable* shard;
        Time worked{};  // when the loop found work there last
    };
    bool has_transfers() const;  // at a borrowed endpoint
    void count(const link::Batch& batch);
    bool may_lend(Time now) const;
    void answer(Row& row, Time now);
    bool receive(Row& row, Time now);
    void crowded(Time now);
    void give_back_all(Time until);

    std::function<size_t()> running_;
    std::vector<Row> rows_;  // of each shard, lent or not
    struct Bytes {
        size_t sent = 0, received = 0;
        size_t larger() const { return std::max(sent, received); }
        Bytes& operator+=(const Bytes& more) {
            sent += more.sent, received += more.received;
            return *this;
        }
    };
    link::OpKey op_;              // the latest that has posted to a shard
    Bytes own_, before_;          // of it since another had, and of those before it that count
    link::OpKey collective_;      // the latest, whatever messages came between its batches
    Bytes of_collective_;         // of it, all
    Duration pause_ = pause_min;  // the latest
    Time pause_until_{};
};

}  // namespace nexar::shards
