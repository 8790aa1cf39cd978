#include "engine/messages.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "core/check.hpp"
#include "engine/group.hpp"
#include "engine/local_job.hpp"
#include "engine/message_state.hpp"
#include "engine/timeout_advice.hpp"
#include "wire/codec.hpp"

namespace nexar::engine {

using collectives::NodeIndex;

std::string Messages::Recv::text() const {
    return name_of(kind) + (" by rank " + std::to_string(rank)) + " from " +
           (source == any_rank ? std::string("any rank") : "rank " + std::to_string(source)) +
           (any_tag ? ", any tag" : ", tag " + std::to_string(tag));
}

void Messages::Send::on_time() {
    owner.end(*this, Error{Errc::timed_out,
                           "send to rank " + std::to_string(message.dst) + ", tag " +
                               std::to_string(message.tag) + " was not received within " +
                               std::to_string(to_ms(timeout)) + " ms; " + timeout_advice(OpKind::send),
                           message.dst,
                           -1,
                           {}});
}

void Messages::Recv::on_time() {
    const auto waited = std::to_string(to_ms(timeout));
    const int64_t rank_or_none = source == any_rank ? -1 : int64_t{source};
    const std::string what =
        in_flight ? ": the message did not arrive whole within " : ": no such message within ";
    const std::string advice = "; " + timeout_advice(OpKind::recv);
    owner.end(*this, Error{Errc::timed_out, text() + what + waited + " ms" + advice, rank_or_none, -1, {}},
              Disposition::rematch);
}

namespace {

uint64_t window_of(Group& group) {
    return credit_window(group.context().config.unexpected_per_group_max, group.facts.size());
}
uint64_t reserve_of(Group& group) {
    return credit_reserve(window_of(group), group.facts.layout.ranks_on(group.facts.self).size());
}

}  // namespace

Messages::Messages(Group& group, Timers& timers)
    : group_(group),
      timers_(timers),
      credits_(window_of(group), reserve_of(group)),
      last_offer_(group.facts.nodes.size()),
      next_send_(sends_.end()),
      next_recv_(recvs_.end()) {}

Messages::~Messages() = default;

link::OpKey Messages::key(uint64_t number) const {
    return {group_.facts.id, group_.facts.epoch, number};
}

link::Agreement Messages::agreement(const wire::MessageOffer& o) const {
    OpDescriptor descriptor;
    descriptor.kind = OpKind::send;
    descriptor.count = o.bytes;
    descriptor.dtype = Dtype(o.dtype);
    descriptor.root = o.dst;
    return {group_.facts.table_hash,
            descriptor.hash() ^ (o.tag * 0x9e3779b97f4a7c15u) ^ (uint64_t{o.src} << 32)};
}

Class Messages::class_of(uint64_t bytes) const {
    return bytes <= group_.facts.table.small_bytes_max ? Class::small : Class::bulk;
}

void Messages::withdraw(uint64_t number) {
    for (MeshPort* mesh : group_.context().ports.meshes) mesh->withdraw(key(number));
}

Messages::Send* Messages::find_send(uint64_t number) {
    for (auto& send : sends_)
        if (send->message.number == number) return send.get();
    return nullptr;
}

Messages::Recv* Messages::find_recv(uint64_t number) {
    for (auto& recv : recvs_)
        if (recv->matched && recv->matched->message.number == number) return recv.get();
    return nullptr;
}

// ---- From this node's ranks ----

Messages::Recv& Messages::add_recv(const LocalRank& to, const OpRequest& request, Count count) {
    Context& context = group_.context();
    Recv& recv = *recvs_.emplace_back(std::make_unique<Recv>(*this, timers_, to.user()));
    recv.count = std::move(count);
    recv.at = std::prev(recvs_.end());
    recv.kind = request.descriptor.kind;
    recv.rank = to.rank;
    recv.source = request.peer;
    recv.tag = request.tag;
    recv.any_tag = request.any_tag;
    recv.dtype = request.descriptor.dtype;
    recv.capacity = request.descriptor.count * reduce::size_of(recv.dtype);
    recv.session = request.session;
    recv.ticket = request.ticket;
    recv.out = request.out;
    recv.pieces = request.pieces;
    recv.posted = context.now;
    recv.only_now = request.timeout == OpRequest::only_now;
    recv.timeout = request.timeout < Duration{0} ? group_.facts.timeouts.collective : request.timeout;
    recv.wake_at(deadline(recv.timeout));
    recv.order = ++receives_posted_;
    recvs_by_ticket_.added(recvs_, recv);
    if (recv.kind == OpKind::mprobe) ++apart_of_[recv.rank];
    index_receives();
    reindex(recv);
    return recv;
}

Result<void> Messages::recv(const LocalRank& to, const OpRequest& request, Count count) {
    const auto apart = apart_of_.find(to.rank);
    if (request.descriptor.kind == OpKind::mprobe && apart != apart_of_.end() && apart->second >= apart_max)
        return fail(Errc::table_full, "rank " + std::to_string(to.rank) + " has set " +
                                          std::to_string(apart_max) +
                                          " messages apart, the most: receive or free one first");
    match_recv(add_recv(to, request, std::move(count)));
    return {};
}

Time Messages::deadline(Duration timeout) const {
    return timeout > Duration{0} ? deadline_after(group_.context().now, timeout) : never;
}

bool Messages::cancel(SessionId session, uint64_t ticket) {
    const Error cancelled{Errc::cancelled, "cancelled by its own rank", -1, -1, {}};
    uint64_t& looks = group_.context().cancels_looked_at;
    if (Send* send = sends_by_ticket_.find(sends_, session, ticket, looks))
        return end(*send, cancelled), true;
    if (Recv* recv = recvs_by_ticket_.find(recvs_, session, ticket, looks))
        return end(*recv, cancelled, Disposition::rematch), true;
    return false;
}

// Its sends are delivered, as those of a closed session are. A copy between two ranks of this node completes
// soon.
void Messages::close(uint32_t rank, const Error& own) {
    std::vector<Recv*> recvs;
    for (auto& recv : recvs_)
        if (recv->rank == rank) recvs.push_back(recv.get());
    for (Recv* recv : recvs) end(*recv, own);
}

// A copy between two ranks of this node completes, but the process may have used its memory for something
// else meanwhile, so both halves fail.
void Messages::fail_copies(uint32_t rank, const Error& lost) {
    for (auto& send : sends_)
        if (send->message.src == rank && send->copied_by != nullptr) send->copied_by->copy_error = lost;
    for (auto& recv : recvs_)
        if (recv->rank == rank && recv->in_flight) recv->copy_error = lost;
}

// The cut ends the halves on other nodes [F16]: a message that is taken back could end there before.
void Messages::abort_pending(uint32_t rank, const Error& own) {
    std::vector<Send*> sends;
    std::vector<Recv*> recvs;
    for (auto& send : sends_)
        if (send->message.src == rank) sends.push_back(send.get());
    for (auto& recv : recvs_)
        if (recv->rank == rank) recvs.push_back(recv.get());
    for (Send* send : sends) end(*send, own, false);
    for (Recv* recv : recvs) end(*recv, own, Disposition::drop);
}

bool Messages::has_sends_of(SessionId session) const {
    return std::ranges::any_of(sends_, [&](const auto& send) { return send->session == session; });
}

// ---- From other nodes ----

void Messages::on_offer(NodeIndex from, const wire::MessageOffer& message) {
    const GroupFacts& facts = group_.facts;
    if (!is_number_of(from, message.number)) return;        // of a collective, or of another node's message
    if (message.number <= last_offer_[from.value]) return;  // the key of its transfer may be in use [W1]
    last_offer_[from.value] = message.number;
    const bool sane =
        message.src < facts.size() && message.dst < facts.size() &&
        facts.layout.node_of(message.src) == from &&
        facts.layout.node_of(message.dst) == facts.self &&  // a type that is not known fits no receive
        message.bytes % reduce::size_of(Dtype(message.dtype)) == 0 &&
        message.bytes <= facts.message_bytes_max();
    Offer offer{message, from, nullptr};
    if (!sane)
        return refuse(
            offer, {Errc::protocol_error, "the message's ranks or its length are out of range", -1, -1, {}});
    if (!credits_.arrived(message.src))
        return refuse(offer, {Errc::table_full,
                              "rank " + std::to_string(message.src) + " has no credit for another message",
                              message.dst,
                              -1,
                              {}});
    offer.has_credit = true;
    grant_credits(from, message.src);
    // Sent before that node knew of the departure; later ones are not offered.
    if (const auto gone = group_.departure_error(message.dst, true)) return refuse(offer, *gone);
    if (group_.failed()) return refuse(offer, *group_.failed());
    arrive(offer);
}

void Messages::on_withdraw(NodeIndex from, const wire::MessageWithdraw& message) {
    if (!is_number_of(from, message.number)) return;
    const auto at = std::ranges::find_if(offers_, [&](const auto& each) {
        return each.second.from == from && each.second.message.number == message.number;
    });
    if (at != offers_.end()) {
        return_credit(at->second);
        take_offer(at);
    }
    withdraw_apart(from, message.number);
    withdraw(message.number);
    Recv* recv = find_recv(message.number);
    if (recv == nullptr || recv->matched->from != from || !recv->in_flight) return;
    recv->was_withdrawn = true;
    hold(*recv);
}

void Messages::on_refused(NodeIndex from, const wire::MessageRefused& refused) {
    Send* send = find_send(refused.number);
    if (send == nullptr || send->to != from) return;
    if (const auto& failed = group_.failed()) return end(*send, *failed, false);
    // That node may have removed the group, and with it the reason of the rank's departure.
    const auto gone = group_.departure_error(send->message.dst, true);
    const bool lost = refused.error.code == Errc::peer_lost && gone;
    end(*send, lost ? *gone : refused.error, false);
}

void Messages::on_mismatch(const link::MeshEvent& event) {
    const Error error{Errc::mismatch,
                      "the two nodes do not agree on message " + std::to_string(event.key.op.op),
                      -1,
                      -1,
                      {}};
    if (Send* send = find_send(event.key.op.op)) return end(*send, error);
    if (Recv* recv = find_recv(event.key.op.op)) return end(*recv, error);
}

size_t Messages::snapshot(Time now, size_t most, std::vector<MessageSnapshot>& out) const {
    const size_t end = most > SIZE_MAX - out.size() ? SIZE_MAX : out.size() + most;
    const size_t before = out.size();
    for (const auto& send : sends_) {
        if (out.size() == end) break;
        out.push_back({group_.facts.id,
                       "send by rank " + std::to_string(send->message.src) + " to rank " +
                           std::to_string(send->message.dst) + ", tag " + std::to_string(send->message.tag) +
                           ", " + std::to_string(send->message.bytes) + " bytes",
                       now - send->posted});
    }
    for (const auto& recv : recvs_) {
        if (out.size() == end) break;
        out.push_back({group_.facts.id, recv->text(), now - recv->posted});
    }
    return sends_.size() + recvs_.size() - (out.size() - before);
}

void Messages::check_invariants() const {
    credits_.check_invariants();
    const bool is_over = group_.failed() && sweeps_.empty();
    NEXAR_CHECK(group_.failed() || sweeps_.empty());
    size_t waiting = 0;
    for (const auto& send : sends_) {
        waiting += send->waiting ? 1 : 0;
        NEXAR_CHECK(!(send->waiting && (send->in_mesh || send->in_flight)));
        if (is_over) NEXAR_CHECK(!send->waiting);
    }
    for (const auto& [key, queue] : send_queues_) {
        NEXAR_CHECK(queue.offered <= queue.limit);
        for (const auto& [dst, sends] : queue.waiting) {
            NEXAR_CHECK(!sends.empty());
            waiting -= sends.size();
        }
        queue.check_invariants();
        uint64_t unended = 0;
        for (const auto& [dst, sends] : queue.unended) unended += sends;
        NEXAR_CHECK(unended <= queue.offered);
    }
    NEXAR_CHECK(waiting == 0);
    size_t rows = 0;
    auto apart_of = apart_of_;
    for (const auto& [number, apart] : apart_) --apart_of[apart.offer.message.dst];
    for (const auto& recv : recvs_)
        if (recv->kind == OpKind::mprobe) --apart_of[recv->rank];
    for (const auto& [rank, left] : apart_of) NEXAR_CHECK(left == 0);
    for (const auto& recv : recvs_) {
        NEXAR_CHECK(!recv->in_flight || recv->matched);
        if (is_over) NEXAR_CHECK(recv->in_flight || recv->end_error);
        NEXAR_CHECK(recv->indexed == (receives_index_.is_kept() ? roles_of(*recv) : 0));
        rows += static_cast<size_t>(std::popcount(recv->indexed));
    }
    NEXAR_CHECK(receives_index_.size() == rows);
    NEXAR_CHECK(sends_by_ticket_.size() == (sends_by_ticket_.is_kept() ? sends_.size() : 0));
    NEXAR_CHECK(recvs_by_ticket_.size() == (recvs_by_ticket_.is_kept() ? recvs_.size() : 0));
    if (is_over) NEXAR_CHECK(offers_.empty() && apart_.empty());
    for (const auto& [number, apart] : apart_) {
        const Send* send = apart.offer.local;
        NEXAR_CHECK(send == nullptr || (send->apart == number && !send->offer_at && !apart.was_withdrawn));
        NEXAR_CHECK(number <= apart_numbers_ && !apart.offer.has_credit);
    }
    for (const auto& [arrival, offer] : offers_) {
        if (offer.local != nullptr) NEXAR_CHECK(&(*offer.local->offer_at)->second == &offer);
        NEXAR_CHECK(offer.arrival == arrival && arrival != 0);
    }
    NEXAR_CHECK(offers_index_.size() == (offers_index_.is_kept() ? offers_.size() : 0));
}

}  // namespace nexar::engine
