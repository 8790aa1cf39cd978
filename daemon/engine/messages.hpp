// Messages: send and recv between the ranks of one group. Messages of one (source, destination) pair are
// matched in the order in which they were sent; a receive takes the oldest message that fits its source and
// tag, a message the oldest such receive; also those receives whose message its sender took back. The offer
// travels as a message of the control link, the bytes as a transfer of their own. A send to another node
// waits here, with its bytes, until that node has granted its rank a credit and the control log has room
// [L9].
//
// A send ends when its bytes are in the receiver's memory; one of nothing when it was received, too.
#pragma once

#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/layout.hpp"
#include "engine/context.hpp"
#include "engine/credits.hpp"
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

    void send(const LocalRank& from, const OpRequest& request);
    void recv(const LocalRank& to, const OpRequest& request);
    bool cancel(SessionId session, uint64_t ticket);
    void close(uint32_t rank, const Error& own);       // a rank of this node frees the group
    void take_back(uint32_t rank, const Error& lost);  // a rank of this node goes on without this daemon
    bool has_sends_of(SessionId session) const;

    void on_offer(collectives::NodeIndex from, const wire::MessageOffer& offer);
    void on_withdraw(collectives::NodeIndex from, const wire::MessageWithdraw& withdraw);
    void on_refused(collectives::NodeIndex from, const wire::MessageRefused& refused);
    void on_credit(collectives::NodeIndex from, const wire::MessageCredit& credit);
    void send_waiting();  // a control log has room again
    void on_mismatch(const link::MeshEvent& event);
    void on_rank_gone(uint32_t rank);  // local or not
    // [G8] The group has ended: what is matched with a rank that is not lost may complete, the rest ends.
    void cut(const Error& error);
    void end_with_node(collectives::NodeIndex node, const Error& error);  // that does not answer
    void fail_all(const Error& error);

    bool idle() const { return sends_.empty() && recvs_.empty(); }
    size_t offers_waiting() const { return offers_.size(); }
    void snapshot(Time now, std::vector<MessageSnapshot>& out) const;
    void check_invariants() const;

  private:
    struct Send;
    struct Recv;
    // A message that no receive has taken yet. `local`: it is a send of this node.
    struct Offer {
        wire::MessageOffer words;
        collectives::NodeIndex from;
        Send* local = nullptr;
        uint64_t place = 0;       // offers_ is in this order
        bool begun = false;       // a receive had begun with it, and gave it back
        bool has_credit = false;  // to be returned when it is not unexpected any more
    };
    // What becomes of the message that a receive has begun with when it ends early: the next receive may have
    // it, its sender is told that it is over, or its sender knows that already.
    enum class Rest : uint8_t { given_back, refused, dropped };

    // What one rank of this node sends to one other node, in order.
    struct Line {
        std::deque<Send*> waiting;  // not offered yet; mostly empty
        uint64_t offered = 0;
        uint64_t limit = 0;  // credits so far: `offered` never exceeds it
    };
    using LineKey = std::pair<uint32_t, uint32_t>;  // rank, NodeIndex

    void enqueue(Send& send);
    void advance(const LineKey& key, Line& line);
    void offer(Send& send);
    void stop_waiting(Send& send);
    void end_never_offered(uint32_t src, uint32_t dst, const Error& error);
    void return_credit(Offer& offer);
    void grant_credits(collectives::NodeIndex node, uint32_t src);
    bool fits(const Recv& recv, const wire::MessageOffer& offer) const;
    void match_recv(Recv& recv);
    void arrive(Offer offer);
    void match(const Offer& offer);
    void match_again();
    bool overtaken(const Recv& recv) const;
    void hold(Recv& recv);
    void give_back(Offer offer);
    void ended_early(Recv& recv);
    void take(Recv& recv, Offer offer);
    Error unfit(const Recv& recv, const wire::MessageOffer& offer) const;
    void start_transfer(Recv& recv, const Offer& offer);
    void start_copy(Recv& recv, Send& send);
    void refuse(Offer offer, const Error& error);
    void end(Send& send, const Error& error, bool tell = true);
    void end(Recv& recv, const Error& error, Rest rest = Rest::refused);
    void drop_offer_of(const Send& send);
    void finish(Send& send, Error error);  // by value: it may be the send's own
    void finish(Recv& recv, Error error);
    void on_over(Send& send, const Result<void>& result);
    void on_over(Recv& recv, const Result<void>& result);
    void transferred(Recv& recv, const Result<void>& result);
    Time deadline(Duration timeout) const;
    link::OpKey key(uint64_t number) const;
    link::Agreement agreement(const wire::MessageOffer& offer) const;
    link::Class class_of(uint64_t bytes) const;
    void withdraw(uint64_t number);
    std::optional<Error> no_sender_left(const Recv& recv, bool waited) const;
    void end_without_sender();
    template <class Lost>
    void end_with(const Error& error, Lost lost, bool tell);
    Send* find_send(uint64_t number);
    Recv* find_recv(uint64_t number);

    Group& group_;
    Timers& timers_;
    std::list<std::unique_ptr<Send>> sends_;  // in the order in which they were posted
    std::list<std::unique_ptr<Recv>> recvs_;
    std::list<Offer> offers_;  // in order of arrival
    uint64_t arrivals_ = 0;
    std::map<LineKey, Line> lines_;
    CreditTable credits_;               // of other nodes' ranks
    std::vector<uint64_t> last_offer_;  // by NodeIndex: numbers only grow
    uint64_t counter_ = 0;
    // Receives whose message goes back, to its sender or to offers_, once their transfer is over. Nothing is
    // matched until then: a later receive would get what one of these, or the next of them, is to get.
    size_t held_ = 0;
};

}  // namespace nexar::engine
