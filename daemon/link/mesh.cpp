// Mesh: a transfer table, and the stream carrier that moves its chunks.
#include "link/mesh.hpp"

#include <set>

#include "link/stream_carrier.hpp"

namespace nexar::link {

class Mesh::Impl {
  public:
    explicit Impl(const MeshConfig& config) : table(config, events), carrier(config, table, events) {}

    void drop(StreamPeer& peer);
    void post(Batch& batch);

    Events events;
    TransferTable table;
    StreamCarrier carrier;

  private:
    std::vector<Send*> posted_sends_;  // of the batch that is posted
    EarlyChunks early_;                // of the receive that is posted
};

void Mesh::Impl::drop(StreamPeer& peer) {
    carrier.lose_channel(peer);
    table.drop(*peer.transfers);
    carrier.forget_incarnation(peer);
}

void Mesh::Impl::post(Batch& batch) {
    posted_sends_.clear();
    const uint64_t first_send = batch.first_handle + batch.recvs.size();
    for (SendSpec& spec : batch.sends) {
        PeerTransfers& to = table.peer(spec.to);
        posted_sends_.push_back(table.sends.post(to, std::move(spec), first_send + posted_sends_.size()));
    }
    uint64_t handle = batch.first_handle;
    for (RecvSpec& spec : batch.recvs) {
        Send* forward = nullptr;
        if (spec.forward) {
            NEXAR_CHECK(*spec.forward < posted_sends_.size());
            forward = posted_sends_[*spec.forward];
            NEXAR_CHECK(forward == nullptr || (forward->memory.bytes() == bytes_of(spec.memory) &&
                                               forward->chunk_bytes == spec.chunk_bytes));
        }
        PeerTransfers& from = table.peer(spec.from);
        Recv* recv = table.recvs.post(from, std::move(spec), handle++, forward, early_);
        if (recv != nullptr && !early_.empty()) carrier.apply_early(*recv, early_);
    }
}

Mesh::Mesh(const MeshConfig& config) : impl_(std::make_unique<Impl>(config)) {}
Mesh::~Mesh() = default;

void Mesh::attach(PeerIndex peer, uint32_t generation, Channel& channel) {
    impl_->carrier.attach(impl_->carrier.peer(peer), generation, channel);
}

void Mesh::detach(PeerIndex peer) {
    impl_->carrier.lose_channel(impl_->carrier.peer(peer));
}

void Mesh::drop_peer(PeerIndex peer) {
    impl_->drop(impl_->carrier.peer(peer));
}

void Mesh::on_bytes(PeerIndex index, Class cls, Bytes bytes) {
    if (StreamPeer* peer = impl_->carrier.find_peer(index)) impl_->carrier.on_bytes(*peer, cls, bytes);
}

MutableBytes Mesh::place(PeerIndex index, Class cls) {
    StreamPeer* peer = impl_->carrier.find_peer(index);
    return peer == nullptr ? MutableBytes() : impl_->carrier.place(*peer, cls);
}

void Mesh::placed(PeerIndex index, Class cls, size_t bytes) {
    if (StreamPeer* peer = impl_->carrier.find_peer(index)) impl_->carrier.placed(*peer, cls, bytes);
}

void Mesh::on_room(PeerIndex index) {
    if (StreamPeer* peer = impl_->carrier.find_peer(index)) impl_->carrier.on_room(*peer);
}

void Mesh::post(Batch batch) {
    impl_->post(batch);
}
void Mesh::withdraw(const OpKey& op) {
    impl_->table.withdraw(op);
}
void Mesh::retract(const OpKey& op) {
    impl_->table.retract(op);
}
void Mesh::forget_group(const GroupId& group) {
    impl_->table.forget_group(group);
}

bool Mesh::send_message(PeerIndex index, Bytes message) {
    StreamPeer* peer = impl_->carrier.find_peer(index);
    return peer != nullptr && impl_->carrier.send_message(*peer, message);
}

void Mesh::append(PeerIndex index, Bytes message, std::optional<Account> account) {
    impl_->carrier.append(impl_->carrier.peer(index), message, account);
}

bool Mesh::reserve(PeerIndex index, Account account, size_t bytes) {
    return impl_->carrier.peer(index).log.reserve(account, bytes);
}

bool Mesh::reserve_open(PeerIndex index, Account account, size_t bytes) {
    return impl_->carrier.peer(index).log.reserve_open(account, bytes);
}

LogRoom Mesh::log_room(PeerIndex index) const {
    return impl_->carrier.peer(index).log.room();
}

void Mesh::release(PeerIndex index, Account account, size_t bytes) {
    impl_->carrier.release(impl_->carrier.peer(index), account, bytes);
}

void Mesh::discard_log(PeerIndex index, const std::string& why) {
    impl_->carrier.discard_log(impl_->carrier.peer(index), why);
}

const ControlLog* Mesh::log_of(PeerIndex index) const {
    const StreamPeer* peer = impl_->carrier.find_peer(index);
    return peer == nullptr ? nullptr : &peer->log;
}

bool Mesh::has_transfers() const {
    return impl_->table.has_transfers();
}

bool Mesh::waits_for(PeerIndex index) const {
    const PeerTransfers* peer = impl_->table.find_peer(index);
    return peer != nullptr && (peer->sends.front() != nullptr || peer->recvs.front() != nullptr);
}

std::vector<GroupId> Mesh::groups_waiting_for(PeerIndex index) const {
    std::set<GroupId> groups;
    if (const PeerTransfers* peer = impl_->table.find_peer(index)) {
        for (const Send* s = peer->sends.front(); s != nullptr; s = peer->sends.after(*s))
            groups.insert(s->key.op.group);
        for (const Recv* r = peer->recvs.front(); r != nullptr; r = peer->recvs.after(*r))
            groups.insert(r->key.op.group);
    }
    return {groups.begin(), groups.end()};
}

void Mesh::flush() {
    flush(never);
}

Time Mesh::acks_due() const {
    return impl_->table.acks_due();
}

void Mesh::flush(Time now) {
    impl_->table.set_time(now);
    // Writing to a peer touches no other one; what it has left continues in on_room().
    impl_->table.take_due(
        [&](PeerTransfers& peer) { impl_->carrier.write(impl_->carrier.peer(peer.index)); });
    impl_->carrier.end_turn();
}

std::optional<MeshEvent> Mesh::poll_event() {
    if (impl_->events.empty()) return {};
    std::optional<MeshEvent> out = impl_->events.pop_front();
    if (out->logged) impl_->carrier.on_polled(impl_->carrier.peer(out->peer), out->bytes.size());
    return out;
}

void Mesh::check_invariants() const {
    impl_->table.check_invariants();
    impl_->carrier.check_invariants();
}

MeshStats Mesh::stats(PeerIndex index) const {
    MeshStats out;
    if (const PeerTransfers* peer = impl_->table.find_peer(index))
        static_cast<TransferStats&>(out) = impl_->table.stats_of(*peer);
    const TrafficCounts counts = traffic(index);
    for (const Amount& amount : counts.sent) out.bytes_sent += amount.payload;
    for (const Amount& amount : counts.received) out.bytes_received += amount.payload;
    return out;
}

TrafficCounts Mesh::traffic(PeerIndex index) const {
    const StreamPeer* peer = impl_->carrier.find_peer(index);
    return peer == nullptr ? TrafficCounts{} : peer->traffic->read();
}

std::shared_ptr<const Traffic> Mesh::traffic() const {
    return impl_->carrier.traffic();
}

void Mesh::count_in(PeerIndex index, std::shared_ptr<Traffic> traffic) {
    impl_->carrier.peer(index).traffic = std::move(traffic);
}

}  // namespace nexar::link
