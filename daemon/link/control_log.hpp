// ControlLog: the control messages between two daemons' incarnations, as one log in each direction
// (docs/protocol/control_log.md; numbers in brackets are its invariants). It numbers what is sent, keeps it
// until the peer has applied it, replays it over the next connection, and takes each number from the peer
// once. It also accounts for the bytes that wait here. It has no channel: its owner writes what next()
// returns.
//
// States of the sending side on one connection: attached -> resumed (the peer's RESUME has arrived) -> lost.
#pragma once

#include <compare>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "core/bytes.hpp"
#include "link/account.hpp"

namespace nexar::link {

struct ControlLogConfig {
    size_t bytes_max = 48 << 20;           // all that waits for the peer; beyond it the log is discarded [L7]
    size_t requests_bytes_max = 32 << 20;  // of it, queued and reserved for requests; the rest is the reserve
    size_t account_bytes_max = 16 << 20;   // of that, of one account
    // An open is admitted while requests that wait for the peer's acknowledgement, and those of its account,
    // have less: each that waits may cause answers, which come from the reserve.
    size_t opens_queued_bytes_max = 8 << 20;
    size_t opens_queued_bytes_of_account_max = 2 << 20;
    // A leader's answers to opens wait with the leader, who forgets what is withdrawn, while so much of the
    // reserve waits for the peer.
    size_t prepares_bytes_max = 8 << 20;
    size_t refusals_bytes_max = 4 << 20;  // and reports of who came: less, so that groups are still made
    uint64_t unacknowledged_max = 16;     // applied messages that wait for another frame to go with
    size_t unacknowledged_bytes_max = 64 << 10;
    // Tests only: each switch breaks one promise that a named test must notice.
    struct Sabotage {
        bool skip_a_number = false;
        bool acknowledge_early = false;
        bool apply_twice = false;
        bool forget_at_reconnect = false;
        bool charge_another_account = false;
    } sabotage;
};

// Bytes that may be appended now: of a leader's answers, and of requests' opens that are listed again [L8].
struct LogRoom {
    size_t prepares = SIZE_MAX, refusals = SIZE_MAX, opens = SIZE_MAX;
};

class ControlLog {
  public:
    static constexpr size_t entry_overhead_bytes = 64;  // what an entry costs beyond its message
    static constexpr size_t cost_of(size_t message_bytes) { return message_bytes + entry_overhead_bytes; }

    struct Entry {
        uint64_t number = 0;
        std::vector<std::byte> message;
        std::optional<Account> account;  // none: the daemon's own reserve
    };
    struct Resume {
        uint64_t generation = 0;  // of the log
        uint64_t applied = 0;     // the highest number that was applied
    };
    // What an arriving entry is.
    struct Arrival {
        const char* rule = nullptr;  // broken by it
        bool is_new = false;         // false: applied before, or about to be
    };

    explicit ControlLog(const ControlLogConfig& config) : config_(config) {}

    // ---- Room [L8]
    // Room for messages that a request may cause later. False: there is none now.
    bool reserve(Account account, size_t bytes);
    bool reserve_open(Account account, size_t bytes);  // for the messages of an open
    LogRoom room() const;
    void release(Account account, size_t bytes);
    // True once after a reserve() that failed, when bytes were freed since.
    bool take_room_again();

    // ---- Sending
    // Charged to the account's reservation, or to the daemon's reserve. False: the log is full [L7].
    bool append(Bytes message, std::optional<Account> account);
    const Entry* next() const;                // to be written now; null: nothing, or not resumed yet
    void written();                           // next() was
    const char* on_applied(uint64_t number);  // returns the rule that was broken, or null

    // ---- Receiving
    Arrival on_entry(uint64_t number);
    void applied(size_t bytes);  // the oldest entry that arrived and was not applied yet
    bool ack_due() const { return acknowledged_ < applied_to_send(); }
    bool ack_urgent() const;  // it does not wait for another frame
    uint64_t take_ack();

    // ---- Connections
    Resume resume();  // to be written first
    const char* on_resume(const Resume& theirs, bool& discarded);
    bool resumed() const { return resumed_; }
    void on_channel_lost() { resumed_ = false; }

    // [L7] All that waits is gone, both directions begin anew. Reservations stay: their requests release
    // them.
    void discard();
    uint64_t generation() const { return generation_; }

    // ---- Looking
    size_t queued_bytes() const { return queued_bytes_; }
    size_t bytes_of(Account account) const;  // queued and reserved
    uint64_t received() const { return received_; }
    void check_invariants() const;

  private:
    struct Use {
        size_t queued = 0, reserved = 0;
    };
    void drop_through(uint64_t number);
    void reset();
    uint64_t last() const { return dropped_ + entries_.size(); }
    uint64_t applied_to_send() const { return config_.sabotage.acknowledge_early ? received_ : applied_; }
    void free_if_unused(Account account);

    ControlLogConfig config_;
    uint64_t generation_ = 1;

    std::deque<Entry> entries_;  // not acknowledged, in order; empty: the peer has applied all
    uint64_t dropped_ = 0;       // the highest number that the peer has acknowledged
    uint64_t written_ = 0;       // the highest number that this connection need not carry any more
    uint64_t ever_written_ = 0;  // the highest number written to any connection
    bool resumed_ = false;       // the peer's RESUME of this connection has arrived

    uint64_t received_ = 0;            // the highest number that arrived
    uint64_t applied_ = 0;             // the highest number that was applied here
    uint64_t acknowledged_ = 0;        // the highest number that this side has acknowledged
    size_t unacknowledged_bytes_ = 0;  // of the messages between

    std::map<Account, Use> uses_;  // of accounts that have something here
    size_t queued_bytes_ = 0;      // costs of entries_
    size_t own_bytes_ = 0;         // of them, of entries without an account
    size_t requests_bytes_ = 0;    // queued and reserved of all accounts
    bool room_wanted_ = false;     // a reserve() failed
    bool room_was_freed_ = false;  // and bytes were freed since
};

}  // namespace nexar::link
