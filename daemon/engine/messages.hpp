// Messages: send and recv between the ranks of one group. Messages of one (source, destination) pair are
// matched in the order in which they were sent: a receive matches the oldest message that fits its source and
// tag, a message the oldest receive that fits. That also holds for a receive whose sender withdrew the
// matched message. The offer is a control message, the bytes are a transfer of their own. A send to another
// node waits here, with its bytes, until that node has granted its rank a credit and the control log has room
// [L9].
//
// A send completes when its bytes are in the receiver's memory; one without bytes when it was received, too.
// docs/protocol/messages.md has the rules of probes and of messages that are set apart [X1] to [X8].
#pragma once

#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "collectives/layout.hpp"
#include "engine/context.hpp"
#include "engine/credits.hpp"
#include "engine/offer_index.hpp"
#include "engine/receive_index.hpp"
#include "engine/ticket_index.hpp"
#include "engine/timers.hpp"

namespace nexar::engine {

class Group;
struct LocalRank;

class Messages {
  public:
    Messages(Group& group, Timers& timers);
    ~Messages();
    Messages(const Messages&) = delete;
    Messages& operator=(const Messages&) = delete;

    void send(const LocalRank& from, const OpRequest& request, Count count);
    // recv, probe, mprobe. An error: too many messages are set apart for this rank [X5].
    Result<void> recv(const LocalRank& to, const OpRequest& request, Count count);
    // mrecv. An error, also of the next one: this rank has no such message.
    Result<void> recv_apart(const LocalRank& to, const OpRequest& request, Count count);
    Result<void> put_back(uint32_t rank, uint64_t number);  // message_free
    bool cancel(SessionId session, uint64_t ticket);
    void close(uint32_t rank, const Error& own);  // a rank of this node frees the group
    void fail_copies(uint32_t rank, const Error& lost);
    void abort_pending(uint32_t rank,
                       const Error& own);  // a rank of this node has given this daemon up, or aborts
    bool has_sends_of(SessionId session) const;

    void on_offer(collectives::NodeIndex from, const wire::MessageOffer& offer);
    void on_withdraw(collectives::NodeIndex from, const wire::MessageWithdraw& withdraw);
    void on_refused(collectives::NodeIndex from, const wire::MessageRefused& refused);
    void on_credit(collectives::NodeIndex from, const wire::MessageCredit& credit);
    void send_waiting();  // a control log has room again
    void on_mismatch(const link::MeshEvent& event);
    void on_rank_gone(uint32_t rank);  // local or not
    // [G8] The group has ended: messages that are matched with a rank that is not lost may complete, all
    // others end.
    void cut(const Error& error);
    void end_with_node(collectives::NodeIndex node, const Error& error);  // the node does not answer
    void fail_all(const Error& error);
    // Ends what the three above have queued, at most `left` messages, and subtracts their number. True: that
    // was all.
    bool end_some(size_t& left);

    bool idle() const { return sends_.empty() && recvs_.empty(); }
    size_t offers_waiting() const { return offers_.size() + apart_.size(); }
    static constexpr size_t apart_max = 256;  // messages that are set apart for one rank [X5]
    size_t in_flight() const { return sends_.size() + recvs_.size(); }
    // At most `most`; returns how many are left out.
    size_t snapshot(Time now, size_t most, std::vector<MessageSnapshot>& out) const;
    void check_invariants() const;

  private:
    struct Send;
    struct Recv;
    using Sends = std::list<std::unique_ptr<Send>, Recycled<std::unique_ptr<Send>>>;
    using Recvs = std::list<std::unique_ptr<Recv>, Recycled<std::unique_ptr<Recv>>>;
    // An unexpected message: no receive has matched it yet.
    struct Offer {
        wire::MessageOffer message;
        collectives::NodeIndex from;
        Send* local = nullptr;    // the send, if it is of this node
        uint64_t arrival = 0;     // number in order of arrival
        bool was_begun = false;   // a receive had posted its transfer, and returned the message
        bool has_credit = false;  // a credit to return when the message is matched, withdrawn or refused
    };
    using Offers =
        std::map<uint64_t, Offer, std::less<>, Recycled<std::pair<const uint64_t, Offer>>>;  // by `arrival`
    // A message that an mprobe has taken out of offers_ [X3].
    struct Apart {
        Offer offer;
        bool was_withdrawn = false;  // its sender took it back
    };
    using AllApart = std::map<uint64_t, Apart>;  // by the number that the mprobe returned
    // Of the matched message of a receive that ends early: the next receive may match it; its sender is
    // notified; nothing, because the sender already knows.
    enum class Disposition : uint8_t { rematch, refuse, drop };

    // The sends of one rank of this node to one other node. Those to one rank are in order. A rank that does
    // not receive leaves credits for the others of its node [K27].
    struct SendQueue {
        uint64_t limit = 0;              // credits granted so far; `offered` never exceeds it
        uint64_t offered = 0;            // sends
        uint64_t window = 0, ranks = 0;  // credits at the beginning; ranks of that node
        // By destination: not offered yet, by `order`; no inner map is empty.
        std::map<uint32_t, std::map<uint64_t, Send*>> waiting{};
        std::unordered_map<uint32_t, uint64_t> unended{};  // the same: offered and not ended
        // By `order`: the first that waits for each destination; of those that have messages which have not
        // ended, and of those that have none.
        std::map<uint64_t, uint32_t> first_of_busy{}, first_of_idle{};

        bool is_idle(uint32_t dst) const;
        uint64_t credits(bool idle) const;  // for a destination that is, or is not
        bool may_offer(uint32_t dst) const { return credits(is_idle(dst)) > 0; }
        // The destination whose send is the oldest of those that may be offered.
        std::optional<uint32_t> next() const;
        // What `waiting` and `unended` have of a destination changes by change().
        template <class Change>
        void update(uint32_t dst, Change change) {
            unseat(dst);
            change();
            seat(dst);
        }
        void check_invariants() const;

      private:
        void seat(uint32_t dst);
        void unseat(uint32_t dst);
    };
    using SendQueueKey = std::pair<uint32_t, uint32_t>;  // rank, NodeIndex

    void enqueue(Send& send);
    void advance(SendQueue& queue);
    bool offer_now(SendQueue& queue, Send& send);
    void no_longer_offered(const Send& send);
    void offer(Send& send);
    void stop_waiting(Send& send);
    void end_unoffered(uint32_t src, uint32_t dst, const Error& error);
    void return_credit(Offer& offer);
    void grant_credits(collectives::NodeIndex node, uint32_t src);
    bool fits(const Recv& recv, const wire::MessageOffer& offer) const;
    bool takes(const Recv& recv, const wire::MessageOffer& offer) const;
    Recv& add_recv(const LocalRank& to, const OpRequest& request, Count count);
    void match_recv(Recv& recv);
    Recv* oldest_receive(const wire::MessageOffer& offer);
    // To be called where a receive begins or stops to wait, or to have a message.
    void reindex(Recv& recv);
    void drop_rows(Recv& recv);
    void index_receives();  // begins or ends the index, by their number
    static uint8_t roles_of(const Recv& recv);
    void mark_overtaken(const Recv& by);
    void take(Recv& recv, Offer offer);
    void report(Recv& probe, const Offer& offer);
    void report_to_probes(const Offer& offer);
    void set_apart(Recv& recv, Offer offer);
    Result<AllApart::iterator> find_apart(uint32_t rank, uint64_t number);
    Offer take_apart(AllApart::iterator at);
    void no_longer_apart(uint32_t rank);
    void drop_apart_to(uint32_t rank, const Error& error);
    void withdraw_apart(AllApart::iterator at);
    void withdraw_apart(collectives::NodeIndex from, uint64_t number);
    void arrive(Offer offer);
    void match(const Offer& offer);
    void match_again();
    bool is_overtaken(const Recv& recv) const;
    void hold(Recv& recv);
    void requeue(Offer offer);
    void finish_early(Recv& recv);
    void begin_recv(Recv& recv, Offer offer);
    Error mismatch_of(const Recv& recv, const wire::MessageOffer& offer) const;
    void start_transfer(Recv& recv, const Offer& offer);
    static bool copy_at_once(const Recv& recv, const Send& send);
    void start_copy(Recv& recv, Send& send);
    void refuse(Offer offer, const Error& error);
    void end(Send& send, const Error& error, bool notify = true);
    void end(Recv& recv, const Error& error, Disposition disposition = Disposition::refuse);
    Offers::iterator oldest_for(const Recv& recv);
    void keep_offer(const Offer& offer);
    Offer take_offer(Offers::iterator at);
    Offers take_offers();
    void drop_offer_of(const Send& send);
    void finish(Send& send, Error error);  // by value: it may be the send's own
    void finish(Recv& recv, Error error);
    void on_completed(Send& send, const Result<void>& result);
    void on_completed(Recv& recv, const Result<void>& result);
    void transferred(Recv& recv, const Result<void>& result);
    Time deadline(Duration timeout) const;
    link::OpKey key(uint64_t number) const;
    link::Agreement agreement(const wire::MessageOffer& offer) const;
    Class class_of(uint64_t bytes) const;
    void withdraw(uint64_t number);
    std::optional<Error> no_sender_left(const Recv& recv, bool waited) const;
    void end_without_sender();
    // [G11] Messages of an ended group that end: the waiting ones, and those with lost ranks.
    struct Sweep {
        Error error;
        std::function<bool(uint32_t)> lost;
        bool notify = false;  // the other side may run, and has to end its half as well
    };
    void sweep(Sweep sweep);
    void begin_sweep();
    void end_by(const Sweep& sweep, Send& send);
    void end_by(const Sweep& sweep, Recv& recv);
    Send* find_send(uint64_t number);
    Recv* find_recv(uint64_t number);

    Group& group_;
    Timers& timers_;
    Sends sends_;                        // in the order in which they were posted
    Recvs recvs_;                        // the same
    Offers offers_;                      // the unexpected-message buffer
    OfferIndex offers_index_;            // of them, while they are many
    ReceiveIndex<Recv> receives_index_;  // of recvs_, while they are many
    TicketIndex<Send> sends_by_ticket_;  // while they are many, each
    TicketIndex<Recv> recvs_by_ticket_;
    uint64_t receives_posted_ = 0;
    AllApart apart_;
    // By rank: its messages in apart_, and its mprobes in recvs_ [X5]. No number is 0.
    std::unordered_map<uint32_t, size_t> apart_of_;
    uint64_t apart_numbers_ = 0;                     // the newest in apart_ so far [X4]
    uint64_t arrivals_ = 0;                          // of messages so far; the next one's number less 1
    std::map<SendQueueKey, SendQueue> send_queues_;  // from the first send of each pair on
    CreditTable credits_;                            // granted to other nodes' ranks
    std::vector<uint64_t> last_offer_;               // by NodeIndex: its highest message number; 0: none
    uint64_t counter_ = 0;                           // of messages offered by this node
    uint64_t sends_posted_ = 0;                      // to other nodes
    // Receives whose message returns to its sender or to offers_ once their transfer has ended. While there
    // are any, no message is matched: a later receive would get the message of an earlier one.
    size_t held_recvs_ = 0;
    std::deque<Sweep> sweeps_;  // the first one is at next_send_ and next_recv_
    Sends::iterator next_send_;
    Recvs::iterator next_recv_;
};

}  // namespace nexar::engine
