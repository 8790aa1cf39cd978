// Member in a cluster: control plane, bulk shards, tokens and certificates.
#include <algorithm>
#include <sstream>
#include <utility>

#include "node/bulk_log.hpp"
#include "node/member.hpp"
#include "node/member_ports.hpp"
#include "node/wall_clock.hpp"
#include "wire/limits.hpp"

namespace nexar::node {
namespace {

constexpr size_t events_per_turn_max = 1024;
constexpr size_t departures_max = 4096;
// All of what goes over the loop's own endpoint. The link requires: the same on all nodes.
constexpr size_t loop_eager_bytes_max = 256 * 1024;
constexpr size_t loop_eager_room = 4 * loop_eager_bytes_max;  // of a group, of each peer
constexpr Duration loop_handshake_share{3'000'000};           // in 10 ms
constexpr size_t loop_turn_bytes = 256 * 1024;                // read, and as much encrypted: some 0.2 ms
constexpr Duration control_timer_granularity{1'000'000};      // operations that follow each other come sooner
constexpr Duration roster_pause{1'000'000'000};   // between two writes, so that a burst of new peers is two
constexpr Duration roster_quiet{10'000'000'000};  // between two log lines about the disk [K9]

quic::Identity quic_identity(const Identity& id) {
    quic::Identity out;
    out.certificate_chain = id.chain();
    out.private_key = id.node_key;
    out.trust_anchors = id.root_certificate;
    if (id.issuer) {
        out.join_certificate_chain = id.issuer->certificate + id.root_certificate;
        out.join_private_key = id.issuer->key;
    }
    return out;
}

}  // namespace

Result<void> Member::enter_cluster(Entry entry, Time now) {
    auto built = build_cluster(std::move(entry), now);
    if (!built) {
        drop_cluster();
        return built;
    }
    plane_relay_->plane = plane_.get();
    for (size_t i = 0; i < shards_.size(); ++i) shard_meshes_[i]->shard = shards_[i].get();
    return {};
}

Result<void> Member::build_cluster(Entry entry, Time now) {
    identity_ = &entry.identity;
    NEXAR_TRY(listen_, quic::Address::parse(needs_.config.listen));
    NEXAR_TRY(addresses_, choose_addresses(listen_, needs_.config.advertise, list_interfaces()));
    if (identity_->issuer) {
        tokens_ = std::make_unique<TokenLedger>(identity_->issuer->tokens, needs_.storage);
        join_server_ = std::make_unique<JoinServer>(*identity_, *tokens_, wall_now, needs_.log);
    }
    NEXAR_TRY(leaf_, admission::leaf_times(identity_->certificate));
    renewer_ = std::make_unique<Renewer>(*identity_, leaf_, needs_.storage, wall_now, needs_.log,
                                         admission::random_u64());
    const quic::Identity identity = quic_identity(*identity_);
    const quic::Verifier verifier = [root = identity_->root_certificate](const quic::PeerChain& chain,
                                                                         std::string_view) {
        return admission::verify_member(chain, root, wall_now());
    };
    NEXAR_TRY_VOID(build_plane(now, entry, identity, verifier));
    return build_shards(entry, identity, verifier);
}

// Threads and what they use end in this order.
void Member::drop_cluster() {
    for (const auto& mesh : shard_meshes_) mesh->shard = nullptr;
    if (plane_relay_) plane_relay_->plane = nullptr;
    plane_watch_.reset();
    lending_.clear();
    shards_.clear();
    if (loop_bulk_) loop_bulk_->close(loop::Loop::now());
    plane_.reset();
    renewer_.reset();
    join_server_.reset();
    tokens_.reset();
    addresses_ = {};
    roster_ = {};
    plane_wants_write_ = false;
    identity_ = nullptr;
}

Result<void> Member::build_plane(Time now, const Entry& entry, const quic::Identity& identity,
                                 const quic::Verifier& verifier) {
    ControlPlane::Config c;
    c.listen = listen_;
    c.identity = identity;
    c.verifier = verifier;
    c.quic.wall_clock = wall_now;
    c.quic.timer_granularity = control_timer_granularity;
    c.renewer = renewer_.get();
    c.reset_secret = entry.reset_secret(listen_.port);
    c.mesh.incarnation = needs_.incarnation.nonce;
    c.mesh.message_bytes_max = wire::message_bytes_max;
    c.mesh.has_log = true;
    c.seed = admission::random_u64();
    c.table.self = {needs_.self, host_name(), {}};
    for (const AddressChoice& a : addresses_.chosen) c.table.self.addresses.push_back(a.address);
    c.table.incarnation = needs_.incarnation;
    c.table.cluster = identity_->cluster;
    c.table.bulk_port = static_cast<uint16_t>(listen_.port + 1);
    if (needs_.config.tcp_bulk) c.table.capabilities.features |= feature_of_tcp_bulk;
    if (needs_.config.tcp_bulk && !needs_.config.encrypt_bulk) {
        c.table.capabilities.features |= feature_of_plain_bulk;
        needs_.log.warn("bulk_not_encrypted",
                        {field("why",
                               "encrypt_bulk is false: with nodes that say the same, bulk data goes over "
                               "TCP unencrypted, and who can change packets can change it")});
    }
    c.table.bulk_shards = static_cast<uint16_t>(shard_meshes_.size());
    roster_.text = entry.roster;
    std::istringstream lines(roster_.text);
    for (std::string address; lines >> address && c.table.seeds.size() < 1024;)
        c.table.seeds.push_back(address);
    NEXAR_TRY(plane_, ControlPlane::open(std::move(c), join_server_.get(), *this, needs_.log, now));
    plane_watch_ =
        needs_.loop.watch(plane_->fd(), true, false, [](loop::Loop::Ready) {});  // the turn reads it
    return {};
}

Result<void> Member::build_shards(const Entry& entry, const quic::Identity& identity,
                                  const quic::Verifier& verifier) {
    for (size_t i = 0; i < shard_meshes_.size(); ++i) {
        shards::ShardConfig c{endpoint_config(entry, identity, verifier, i)};
        c.number = static_cast<uint16_t>(i);
        c.at_work = &server_->bulk_count();
        if (c.tcp) c.lends_to = &needs_.loop;  // bulk over QUIC is the threads' [T8]
        c.yield_window = Duration(static_cast<int64_t>(needs_.config.yield_microseconds * 1000));
        NEXAR_TRY(auto shard, shards::Shard::start(std::move(c), needs_.wakeup));
        shards_.push_back(std::move(shard));
        lending_.add(*shards_.back());
    }
    // Behind the shards' ports, whose number is another one on each node.
    auto c = endpoint_config(entry, identity, verifier, shard_meshes_.size());
    c.number = shards::loop_number;
    c.mesh.eager_bytes_max = loop_eager_bytes_max;
    c.mesh.eager_room_per_group = loop_eager_room;
    c.handshake_share = loop_handshake_share;
    c.turn_bytes = loop_turn_bytes;
    c.acks_wait = c.reads_far = true;
    return loop_bulk_->open(std::move(c), needs_.loop);
}

shards::BulkEndpointConfig Member::endpoint_config(const Entry& entry, const quic::Identity& identity,
                                                   const quic::Verifier& verifier, size_t port) const {
    shards::BulkEndpointConfig c;
    c.listen = listen_;
    c.listen.port = static_cast<uint16_t>(listen_.port + 1 + port);
    c.identity = identity;
    c.verifier = verifier;
    c.quic.wall_clock = wall_now;
    c.reset_secret = entry.reset_secret(c.listen.port);
    c.self = needs_.self;
    c.incarnation = needs_.incarnation;
    c.tcp = needs_.config.tcp_bulk;
    c.tcp_plain = c.tcp && !needs_.config.encrypt_bulk;
    c.mesh.incarnation = needs_.incarnation.nonce;
    c.watch.interval = config::seconds(needs_.config.heartbeat_interval);
    c.watch.timeout = config::seconds(needs_.config.heartbeat_timeout);
    return c;
}

bool Member::step_cluster(Time now) {
    bool work = plane_->receive(now);
    work |= loop_bulk_->receive(now);
    work |= lending_.receive(now);
    return read_shards(now) || work;
}

// Sends what the engine has posted in this turn.
bool Member::end_step_of_cluster(Time now) {
    bool work = tokens_ && tokens_->step();
    if (roster_.saving) roster_is_saved(now);
    if (roster_.due <= now && !roster_.saving) save_roster(now);
    for (auto& shard : shards_) shard->flush();
    work |= plane_->send(now);
    work |= loop_bulk_->send(now);
    work |= lending_.send(now);
    note_sent(now);
    if (plane_->wants_writable() != plane_wants_write_) {
        plane_wants_write_ = plane_->wants_writable();
        plane_watch_->want(true, plane_wants_write_);
    }
    return work;
}

// [F2]
void Member::note_sent(Time now) {
    while (const auto peer = plane_->poll_sent()) engine_->on_sent(now, *peer);
}

void Member::on_connection(Time now, connections::ControlEvent& event) {
    if (const auto* up = std::get_if<connections::PeerIsUp>(&event)) {
        peer_is_up(now, *up);
    } else if (const auto* down = std::get_if<connections::PeerIsDown>(&event)) {
        peer_is_down(now, *down);
    } else if (const auto* received = std::get_if<connections::PeerReceived>(&event)) {
        // Packets may follow the goodbye of a peer that is gone from the table.
        if (const auto at = peers_.find(received->peer); at != peers_.end())
            at->second.last_received_at = now;
        engine_->on_received(now, received->peer, received->rtt);
    } else if (const auto* redial = std::get_if<connections::RedialFailed>(&event)) {
        engine_->on_redial_failed(now, redial->peer);
    }
}

void Member::on_message(Time now, PeerIndex from, const wire::Message& message) {
    engine_->on_message(now, from, message);
}

void Member::on_mesh_event(Time now, const link::MeshEvent& event) {
    engine_->on_mesh_event(now, event);
}

void Member::peer_is_up(Time now, const connections::PeerIsUp& up) {
    PeerView& view = peers_[up.info.peer];
    departures_.erase(up.info.record.node);
    view = {up.info, up.remote, true, now, now, {}, std::move(view.bulk)};
    needs_.log.info("peer_up", {field("peer", up.info.record.node), field("host", up.info.record.hostname),
                                field("address", view.remote)});
    introduce_to_shards(up, view);
    engine_->on_peer_up(now, up.info.peer, up.info.record.node, up.info.incarnation);
    roster_.due = std::max(now, roster_.free);
}

// Each shard connects to the peer's shard of the same number; a group uses as many as all its nodes have. The
// loops' own endpoints are connected in any case.
void Member::introduce_to_shards(const connections::PeerIsUp& up, PeerView& view) {
    auto address = quic::Address::parse(up.remote);
    if (!address) return;  // cannot happen: the address is that of an open connection
    const size_t count = std::min<size_t>(shards_.size(), up.info.bulk_shards);
    if (view.bulk.size() < count + 1) view.bulk.resize(count + 1);
    const auto key = plane_->attach_key(up.info.peer);
    const uint64_t features = up.info.agreed.features;
    const bool tcp = key && needs_.config.tcp_bulk && (features & feature_of_tcp_bulk) != 0;
    const bool plain = !needs_.config.encrypt_bulk && (features & feature_of_plain_bulk) != 0;
    for (size_t i = 0; i <= count; ++i) {
        const auto post = [&](shards::Command command) {
            i < count ? shards_[i]->post(std::move(command)) : loop_bulk_->apply(std::move(command));
        };
        address->port = static_cast<uint16_t>(up.info.bulk_port + (i < count ? i : up.info.bulk_shards));
        view.bulk[i].address = address->text();
        view.bulk[i].tcp = tcp;
        if (tcp) post(shards::UseAttachKey{{up.info.record.node, up.info.incarnation, *key, plain}});
        post(connections::KnownPeer{up.info.peer, up.info.record.node, up.info.incarnation,
                                    view.bulk[i].address, needs_.self < up.info.record.node,
                                    view.bulk[i].traffic, tcp});
    }
}

void Member::peer_is_down(Time now, const connections::PeerIsDown& down) {
    PeerView& view = peers_[down.peer];
    view.up = false;
    view.since = now;
    view.why_down = down.why;
    needs_.log.warn("peer_down", {field("peer", view.info.record.node), field("why", down.why),
                                  field("proof", down.proof)});
    engine_->on_peer_down(now, down.peer, down.why, down.proof);
    if (!down.proof) return;  // transfers wait for a new connection
    const shards::DropPeer drop{down.peer, view.info.record.node, view.info.incarnation};
    for (auto& shard : shards_) shard->post(drop);
    loop_bulk_->apply(drop);
    plane_->drop_peer(down.peer);
    if (departures_.size() >= departures_max) departures_.clear();
    departures_[view.info.record.node] = down.why;
    peers_.erase(down.peer);
}

std::string Member::why_departed(const NodeId& node) const {
    const auto found = departures_.find(node);
    return found == departures_.end() ? std::string() : found->second;
}

void Member::use_new_certificate(Time now) {
    const auto identity = std::make_shared<const quic::Identity>(quic_identity(*identity_));
    const WallSeconds old_left = std::exchange(leaf_, renewer_->renewal().leaf()).expires - wall_now();
    if (auto used = plane_->set_identity(*identity, old_left, now); !used) {
        needs_.log.error("certificate_not_used", {field("why", used.error().text)});
        return;
    }
    for (auto& shard : shards_) shard->post(shards::UseIdentity{identity});
    loop_bulk_->apply(shards::UseIdentity{identity});
}

bool Member::read_shards(Time now) {
    bool work = false;
    for (size_t i = 0; i < shards_.size(); ++i) {
        for (size_t n = 0; n < events_per_turn_max; ++n) {
            auto event = shards_[i]->poll_event();
            if (!event) break;
            work = true;
            on_bulk_event(now, i, std::move(*event));
        }
    }
    for (size_t n = 0; n < events_per_turn_max; ++n) {
        auto event = loop_bulk_->poll_event();
        if (!event) break;
        work = true;
        on_bulk_event(now, shards::loop_number, std::move(*event));
    }
    return work;
}

void Member::on_bulk_event(Time now, size_t shard, shards::Event event) {
    if (auto* mesh = std::get_if<link::MeshEvent>(&event)) {
        engine_->on_mesh_event(now, *mesh);
    } else if (auto* bulk = std::get_if<connections::BulkState>(&event)) {
        on_bulk(now, shard, *bulk);
    } else if (auto* pause = std::get_if<shards::AcceptPause>(&event)) {
        if (pause->begins)
            needs_.log.warn("tcp_accept_paused",
                            {field("shard", shard), field("reason", "no descriptor or memory is left")});
        else
            needs_.log.info("tcp_accept_resumed", {field("shard", shard)});
    }
}

void Member::on_bulk(Time now, size_t shard, const connections::BulkState& state) {
    const auto it = peers_.find(state.peer);
    bool was_up = !state.why.empty();  // where the peer is gone meanwhile
    if (it != peers_.end() && shard == shards::loop_number) shard = it->second.bulk.size() - 1;
    if (it != peers_.end() && shard < it->second.bulk.size()) {
        BulkView& view = it->second.bulk[shard];
        was_up = std::exchange(view.up, state.up);
        view.carrier = state.carrier;
        view.carrier_why = state.carrier_why;
        if (state.answers || state.is_new)
            view.answers = true;
        else if (!state.up || !state.cut_off.empty())
            view.answers = false;
    }
    if (state.answers) return;
    if (!state.cut_off.empty()) return engine_->on_bulk_cut_off(now, state.peer, state.cut_off, state.why);
    log_bulk(needs_.log, was_up, state);
}

void Member::ask_bulk() {
    for (auto& [index, peer] : peers_)
        for (BulkView& bulk : peer.bulk) bulk.answers = false;
    for (const auto& shard : shards_) shard->post(shards::AskPeers{});
    loop_bulk_->apply(shards::AskPeers{});
}

bool Member::bulk_answers() const {
    return std::ranges::all_of(peers_, [](const auto& entry) {
        const PeerView& peer = entry.second;
        return !peer.up || std::ranges::all_of(peer.bulk, &BulkView::answers);
    });
}

// Saves the known addresses, which a restarted node dials.
void Member::save_roster(Time now) {
    roster_.due = never;
    std::string text;
    for (const auto& record : plane_->table().roster())
        for (const std::string& address : record.addresses) text += address + "\n";
    if (text == roster_.text) return;
    roster_.text = std::move(text);
    roster_.free = now + roster_pause;
    roster_.saving = needs_.storage.save({{roster_file, Secret(roster_.text)}});
}

void Member::roster_is_saved(Time now) {
    const storage::Outcome* outcome = roster_.saving->outcome();
    if (!outcome) return;
    if (!outcome->result) {
        roster_.text.clear();  // the next change is saved, whatever it is
        if (now >= roster_.quiet_until)
            needs_.log.warn("roster_not_saved", {field("why", outcome->result.error().text)});
        if (now >= roster_.quiet_until) roster_.quiet_until = now + roster_quiet;
    }
    roster_.saving.reset();
}

}  // namespace nexar::node
