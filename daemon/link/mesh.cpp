// Mesh: puts the parts together (shared.hpp), and owns channels' comings and goings.
#include "link/mesh.hpp"

#include "link/inbound.hpp"
#include "link/receiving.hpp"
#include "link/sending.hpp"
#include "link/shared.hpp"

namespace nexar::link {

class Mesh::Impl {
  public:
    explicit Impl(const MeshConfig& config)
        : shared(config), sending(shared), receiving(shared, sending), inbound(shared, sending, receiving) {}

    // Acks that we have processed and not confirmed in any header: beyond this an empty nack tells them.
    static constexpr uint64_t unconfirmed_acks_max = 64;

    void attach(PeerIndex index, uint32_t generation, Channel& channel);
    void lose_channel(Peer& peer);
    void drop(Peer& peer);
    void post(Batch& batch);
    void withdraw(const OpKey& op);
    void retract(const OpKey& op);
    void forget_group(const GroupId& group);
    bool send_message(Peer& peer, Bytes message);
    void append(Peer& peer, Bytes message, std::optional<Account> account);
    void discard_log(Peer& peer, const std::string& why);
    void write_resume(Peer& peer);
    void acknowledge(Peer& peer);
    void write(Peer& peer);

    Shared shared;
    Sending sending;
    Receiving receiving;
    Inbound inbound;

  private:
    std::vector<Send*> posted_sends_;
};

void Mesh::Impl::attach(PeerIndex index, uint32_t generation, Channel& channel) {
    Peer& peer = shared.peer(index);
    NEXAR_CHECK(!peer.attached_once || generation > peer.generation);
    lose_channel(peer);
    peer.attached_once = true;
    peer.dropped = false;
    peer.generation = generation;
    peer.channel = &channel;
    peer.resume_due = shared.config.has_log;
    receiving.on_channel(peer);
    sending.on_channel(peer);
}

void Mesh::Impl::lose_channel(Peer& peer) {
    if (peer.channel == nullptr) return;
    peer.channel = nullptr;
    peer.log.on_channel_lost();
    sending.on_channel_lost(peer);
    receiving.on_channel_lost(peer);
}

void Mesh::Impl::drop(Peer& peer) {
    lose_channel(peer);
    peer.dropped = true;
    peer.attached_once = false;  // another incarnation may count its channels anew
    peer.incarnation_known = false;
    while (Recv* r = peer.recvs.front()) receiving.fail(*r);
    while (Send* s = peer.sends.front()) sending.fail(*s);
    peer.early.clear();
    peer.tombstones.clear();
    std::erase_if(shared.events, [&](const MeshEvent& e) { return e.logged && e.peer == peer.index; });
    peer.log = ControlLog(shared.config.log);
}

void Mesh::Impl::post(Batch& batch) {
    posted_sends_.clear();
    const uint64_t first_send = batch.first_handle + batch.recvs.size();
    for (SendSpec& spec : batch.sends)
        posted_sends_.push_back(sending.post(std::move(spec), first_send + posted_sends_.size()));
    uint64_t handle = batch.first_handle;
    for (RecvSpec& spec : batch.recvs) {
        Send* forward = nullptr;
        if (spec.forward) {
            NEXAR_CHECK(*spec.forward < posted_sends_.size());
            forward = posted_sends_[*spec.forward];
            NEXAR_CHECK(forward == nullptr || (forward->memory.bytes() == bytes_of(spec.memory) &&
                                               forward->chunk_bytes == spec.chunk_bytes));
        }
        receiving.post(std::move(spec), handle++, forward);
    }
}

void Mesh::Impl::withdraw(const OpKey& op) {
    shared.remember_withdrawn(op);
    for (const std::unique_ptr<Peer>& peer : shared.peers)
        if (peer) peer->early.drop_op(op);
    // The record goes with its last transfer.
    OpRecord* record = shared.find_op(op);
    if (record == nullptr) return;
    const uint64_t serial = record->serial;
    while (record->serial == serial && !record->recvs.empty()) receiving.fail(*record->recvs.front());
    while (record->serial == serial && !record->sends.empty()) sending.fail(*record->sends.front());
}

void Mesh::Impl::retract(const OpKey& op) {
    OpRecord* record = shared.find_op(op);
    if (record == nullptr) return;
    const uint64_t serial = record->serial;
    while (record->serial == serial && !record->recvs.empty()) receiving.fail(*record->recvs.front());
}

// Tombstones stay: the ranks here may have all they wanted while a sender still waits for a lost ack.
void Mesh::Impl::forget_group(const GroupId& group) {
    shared.remember_forgotten(group);
    for (const std::unique_ptr<Peer>& peer : shared.peers)
        if (peer) peer->early.drop_group(group);
}

bool Mesh::Impl::send_message(Peer& peer, Bytes message) {
    if (peer.channel == nullptr || message.size() > shared.config.message_bytes_max) return false;
    if (peer.log.ack_due()) shared.touch(peer);  // it goes along
    const bool is_next = peer.messages.empty() && Sending::next_entry(peer) == nullptr;
    if (is_next && peer.channel->room(Class::control) >= sizeof(FrameStart) + message.size()) {
        sending.write_message(peer, message);
        return true;
    }
    if (peer.message_bytes + message.size() > shared.config.message_queue_bytes_max) return false;
    peer.messages.emplace_back(message.begin(), message.end());
    peer.message_bytes += message.size();
    return true;
}

void Mesh::Impl::append(Peer& peer, Bytes message, std::optional<Account> account) {
    NEXAR_CHECK(shared.config.has_log && message.size() <= shared.config.message_bytes_max);
    if (peer.dropped) return;  // its incarnation is over
    if (!peer.log.append(message, account)) return discard_log(peer, "the control log is full");
    if (peer.channel != nullptr) sending.write_entries(peer);
}

void Mesh::Impl::discard_log(Peer& peer, const std::string& why) {
    lose_channel(peer);
    shared.discard_log(peer, why);
}

void Mesh::Impl::write_resume(Peer& peer) {
    if (!std::exchange(peer.resume_due, false)) return;
    const ControlLog::Resume resume = peer.log.resume();
    ResumeFrame f{};
    f.start = shared.start_of(peer, FrameKind::resume, sizeof f);
    f.log_generation = resume.generation;
    f.applied = resume.applied;
    const std::array<Bytes, 1> parts{bytes_of_struct(f)};
    peer.channel->write(Class::control, parts);
}

// With what leaves anyhow, at the latest with a heartbeat; only many of them are worth a frame of their own.
void Mesh::Impl::acknowledge(Peer& peer) {
    const bool goes_along = peer.spoke_in_turn == shared.turn;
    if (!peer.log.resumed() || !peer.log.ack_due() || !(goes_along || peer.log.ack_urgent())) return;
    if (peer.channel->room(Class::control) < sizeof(AppliedFrame)) return;
    AppliedFrame f{};
    f.start = shared.start_of(peer, FrameKind::applied, sizeof f);
    f.applied = peer.log.take_ack();
    const std::array<Bytes, 1> parts{bytes_of_struct(f)};
    peer.channel->write(Class::control, parts);
}

void Mesh::Impl::write(Peer& peer) {
    if (peer.channel == nullptr) return;
    write_resume(peer);
    receiving.write_lists(peer);
    sending.pump(peer);
    acknowledge(peer);
    if (peer.acks_processed - peer.acks_confirmed < unconfirmed_acks_max) return;
    ListFrame f{};
    f.start = shared.start_of(peer, FrameKind::nack, sizeof f);
    const std::array<Bytes, 1> parts{bytes_of_struct(f)};
    peer.channel->write(Class::control, parts);
}

Mesh::Mesh(const MeshConfig& config) : impl_(std::make_unique<Impl>(config)) {}
Mesh::~Mesh() = default;

void Mesh::attach(PeerIndex peer, uint32_t generation, Channel& channel) {
    impl_->attach(peer, generation, channel);
}

void Mesh::detach(PeerIndex peer) {
    impl_->lose_channel(impl_->shared.peer(peer));
}

void Mesh::drop_peer(PeerIndex peer) {
    impl_->drop(impl_->shared.peer(peer));
}

void Mesh::on_bytes(PeerIndex index, Class cls, Bytes bytes) {
    Peer* peer = impl_->shared.find_peer(index);
    if (peer == nullptr || peer->channel == nullptr) return;
    const char* rule = impl_->inbound.feed(*peer, cls, bytes);
    if (rule == nullptr) {
        if (peer->acks_processed - peer->acks_confirmed >= Impl::unconfirmed_acks_max)
            impl_->shared.touch(*peer);
        return;
    }
    MeshEvent& e = impl_->shared.events.emplace_back();
    e.kind = MeshEvent::Kind::peer_garbage;
    e.peer = index;
    e.text = rule;
    impl_->lose_channel(*peer);
    if (std::exchange(peer->log_broken, false)) impl_->shared.discard_log(*peer, rule);
}

void Mesh::on_room(PeerIndex index) {
    Peer* peer = impl_->shared.find_peer(index);
    if (peer != nullptr) impl_->sending.pump(*peer);
}

void Mesh::post(Batch batch) {
    impl_->post(batch);
}
void Mesh::withdraw(const OpKey& op) {
    impl_->withdraw(op);
}
void Mesh::retract(const OpKey& op) {
    impl_->retract(op);
}
void Mesh::forget_group(const GroupId& group) {
    impl_->forget_group(group);
}

bool Mesh::send_message(PeerIndex index, Bytes message) {
    Peer* peer = impl_->shared.find_peer(index);
    return peer != nullptr && impl_->send_message(*peer, message);
}

void Mesh::append(PeerIndex index, Bytes message, std::optional<Account> account) {
    impl_->append(impl_->shared.peer(index), message, account);
}

bool Mesh::reserve(PeerIndex index, Account account, size_t bytes) {
    return impl_->shared.peer(index).log.reserve(account, bytes);
}

void Mesh::release(PeerIndex index, Account account, size_t bytes) {
    Peer& peer = impl_->shared.peer(index);
    peer.log.release(account, bytes);
    impl_->shared.report_room(peer);
}

void Mesh::discard_log(PeerIndex index, const std::string& why) {
    impl_->discard_log(impl_->shared.peer(index), why);
}

const ControlLog* Mesh::log_of(PeerIndex index) const {
    const Peer* peer = impl_->shared.find_peer(index);
    return peer == nullptr ? nullptr : &peer->log;
}

void Mesh::flush() {
    // Writing to a peer touches no other one; what it has left continues in on_room().
    for (Peer* peer : impl_->shared.dirty) {
        impl_->write(*peer);
        peer->dirty = false;
    }
    impl_->shared.dirty.clear();
    ++impl_->shared.turn;
}

std::optional<MeshEvent> Mesh::poll_event() {
    std::deque<MeshEvent>& events = impl_->shared.events;
    if (events.empty()) return {};
    std::optional<MeshEvent> out = std::move(events.front());
    events.pop_front();
    if (!out->logged) return out;
    Peer& peer = impl_->shared.peer(out->peer);
    peer.log.applied(out->bytes.size());
    impl_->shared.touch(peer);
    return out;
}

MeshStats Mesh::stats(PeerIndex index) const {
    const Peer* peer = impl_->shared.find_peer(index);
    if (peer == nullptr) return {};
    MeshStats out = peer->stats;
    out.tombstones = peer->tombstones.size();
    out.stash_bytes = peer->early.stash_bytes();
    out.early_bytes = peer->early.bytes();
    out.grants_unclaimed = peer->early.grants();
    return out;
}

}  // namespace nexar::link
