// See server.hpp.
#include "local/server.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <set>

#include "shm/words.hpp"

namespace nexar::local {

namespace {
// Keys of watched descriptors: a listener's has the highest bit, and its index; the mapper's is the bit
// below, the courier's the next one; others are a user's number. In a user's epoll a session's connection and
// pidfd are its number, doubled.
constexpr uint64_t listener_bit = uint64_t{1} << 63, mapped_key = uint64_t{1} << 62,
                   delivered_key = uint64_t{1} << 61;
// Descriptors of a user's sessions, and packets. So of a user as many end in a turn: an end takes what its
// client had submitted, and frees memory.
constexpr size_t reads_per_turn_max = 8;
uint64_t connection_key(SessionId id) {
    return id.value * 2;
}
uint64_t process_key(SessionId id) {
    return id.value * 2 + 1;
}
constexpr Duration tick_interval = std::chrono::milliseconds(NEXAR_SHM_TICK_MS);
constexpr size_t accepts_per_turn_max = 4;  // of a listener; and handshakes of a user
constexpr unsigned last_sends_seconds = 1;
constexpr Duration accept_pause{100'000'000};
}  // namespace

Server::Server(const ServerConfig& config, engine::Service& service, Tenants& tenants,
               Descriptors& descriptors, Log& log)
    : config_(config),
      service_(&service),
      tenants_(&tenants),
      descriptors_(&descriptors),
      log_(&log),
      newcomers_(config.handshake_interval, config.handshakes_at_once) {}

Result<std::unique_ptr<Server>> Server::open(const ServerConfig& config, engine::Service& service,
                                             Tenants& tenants, Descriptors& descriptors, Log& log) {
    std::unique_ptr<Server> server(new Server(config, service, tenants, descriptors, log));
    NEXAR_TRY_VOID(server->start());
    return server;
}

// Most descriptors are for sessions: a region, a connection, and a process take one each.
void Server::limit_unclosed() {
    constexpr size_t part = 4, users = 8;
    rlimit files{};
    if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return;
    const size_t most = std::min<rlim_t>(files.rlim_cur, SIZE_MAX) / part;
    config_.unclosed_max = std::min(config_.unclosed_max, most);
    config_.unclosed_of_user_max = std::min(config_.unclosed_of_user_max, most / users);
    config_.waiting_of_user_max = std::min(config_.waiting_of_user_max, most / users);
}

Result<void> Server::start() {
    limit_unclosed();
    const uint64_t sessions_max = tenants_->totals().limits.total(Resource::sessions);
    NEXAR_TRY(closer_, Releaser::open(sessions_max, config_.closings_wait));
    NEXAR_TRY(unmapper_, Releaser::open(unmapping_threads_max));
    NEXAR_TRY(waker_, CrowdWaker::open());
    NEXAR_TRY(page_, publish_page("nexar-daemon"));
    page().magic = NEXAR_SHM_MAGIC;
    page().version = NEXAR_LOCAL_VERSION;
    page().pid = static_cast<uint32_t>(::getpid());
    spare_.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (auto holes = Holes::open()) {
        holes_ = std::make_shared<const Holes>(std::move(*holes));
    } else {
        holes_unguarded_ = holes.error().text;
        log_->warn("holes_unguarded", {field("reason", holes_unguarded_)});  // [S18]
    }
    // A user who keeps a thread waiting has a session that counts meanwhile.
    NEXAR_TRY(mapper_, Mapper::open(sessions_max));
    const auto witnesses = check_witnesses();
    if (witnesses)
        unreturned_ = mapper_->unreturned();
    else
        log_->warn("memory_unwatched", {field("reason", witnesses.error().text)});  // [S19]
    descriptors_->watch(mapper_->ready_fd(), mapped_key);
    NEXAR_TRY(courier_, Courier::open(closer_, pause_at()));
    descriptors_->watch(courier_->ready_fd(), delivered_key);
    for (const ServerConfig::Socket& socket : config_.sockets) {
        NEXAR_TRY(Fd listener, listen_on(socket.path, socket.access));
        descriptors_->watch(listener.get(), listener_bit | listeners_.size());
        listeners_.push_back(std::move(listener));
        shut_out_.emplace_back(socket.path, socket.access.mode);
    }
    return {};
}

Server::~Server() {
    for (Session* session : order_) unwatch(*session);
    order_.clear();
    by_user_.clear();
    sessions_.clear();
    refuse_newcomers({Errc::daemon_lost, "the daemon stops", -1, -1, {}});
    if (courier_) {
        courier_->idle_within(last_sends_seconds);  // why their sessions ended
        for (Courier::Delivered& one : courier_->take(SIZE_MAX))
            closer_->release(descriptors_lane(one.tenant), {.descriptors = std::move(one.packet.fds)});
    }
    unwatch_listeners();
    if (mapper_) descriptors_->unwatch(mapper_->ready_fd(), mapped_key);
    if (courier_) descriptors_->unwatch(courier_->ready_fd(), delivered_key);
    for (size_t i = 0; i < listeners_.size(); ++i) {
        ::unlink(config_.sockets[i].path.c_str());
        closer_->release(0, std::move(listeners_[i]));  // with what waits to be accepted
    }
    if (page_.page) ::munmap(page_.page, page_bytes);
}

void Server::on_readable(Time now, uint64_t key) {
    end_withdrawn(now);
    if (key == mapped_key) return take_mapped(now);
    if (key == delivered_key) return take_delivered(now);
    if ((key & listener_bit) != 0) {
        accept_all(now, key ^ listener_bit);
        return sweep(now);
    }
    std::array<UserSockets::Ready, reads_per_turn_max> sockets;
    for (const UserSockets::Ready& ready : sockets_.ready(key, sockets)) on_descriptor(ready);
}

void Server::take_mapped(Time now) {
    for (Mapper::Mapped& mapped : mapper_->take()) {
        Row* row = find(mapped.session);
        if (row == nullptr) {
            if (mapped.answer) closer_->release(connections_lane(mapped.lane), std::move(mapped.answer));
            continue;
        }
        Session& session = *row->session;
        if (!mapped.unpinned.empty())
            log_->warn(&session.tenant(), now, "memory_unpinned",  // [S19]
                       {field("session", mapped.session), field("reason", mapped.unpinned)});
        session.on_mapped(now, std::move(mapped));
        turns_.warm(row->turn);
        update_busy(*row);
    }
    sweep(now);
}

void Server::take_delivered(Time now) {
    for (Courier::Delivered& one : courier_->take(reads_per_turn_max)) {
        Row* row = find(one.session);
        if (row == nullptr) {
            closer_->release(descriptors_lane(one.tenant), {.descriptors = std::move(one.packet.fds)});
            continue;
        }
        if (one.packet.kind == Packet::Kind::nothing_yet)
            row->session->connection()->to_look = false;
        else
            row->session->on_packet(now, std::move(one.packet));
        turns_.warm(row->turn);
        update_busy(*row);
    }
    sweep(now);
}

// Each arrival is seen once. It may be a doorbell, so the ring is looked at now, and what came is read later:
// doorbells when there are several.
void Server::on_descriptor(const UserSockets::Ready& ready) {
    Row* row = find(SessionId(ready.key / 2));
    if (row == nullptr) return;
    if (ready.key % 2 == 1) {
        row->session->on_process_ended();
    } else if (ready.ended || row->session->may_have_sent_messages() || ++row->unread == unread_max) {
        row->unread = 0;
        to_read_.push_back(row->session->id());
    }
    turns_.warm(row->turn);
}

void Server::read_sockets() {
    for (const SessionId id : std::exchange(to_read_, {}))
        if (Row* row = find(id)) courier_->read(row->session->connection());
}

Result<void> Server::watch(const Tenant& user, int fd, uint64_t key) {
    NEXAR_TRY(const auto added, sockets_.add(user.number, fd, key));
    if (added.first) descriptors_->watch(added.epoll, user.number);
    return {};
}

void Server::unwatch(const Tenant& user, int fd) {
    if (const Fd last = sockets_.remove(user.number, fd)) descriptors_->unwatch(last.get(), user.number);
}

void Server::unwatch(const Session& session) {
    unwatch(session.tenant(), session.connection()->fd.get());
    if (session.pidfd() >= 0) unwatch(session.tenant(), session.pidfd());
}

void Server::accept_all(Time now, size_t listener) {
    for (size_t i = 0; i < accepts_per_turn_max && !stopped_; ++i) {
        if (unclosed() > pause_at()) return pause_accepting(now, "too many descriptors are not closed yet");
        Fd connection(::accept4(listeners_[listener].get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (!connection) {
            const int why = errno;
            if (why == EMFILE || why == ENFILE ? !refuse_without_descriptors(listener)
                                               : why == ENOMEM || why == ENOBUFS)
                pause_accepting(now, std::strerror(why));
            return;
        }
        const TenantRef user = tenants_->of(config_.sockets[listener].label, uid_of(connection.get()));
        add(now, {std::make_shared<Connection>(std::move(connection), user->number, user), user, listener,
                  now + config_.place_patience});
        begin_handshakes(now, 1);
    }
}

void Server::add(Time now, Newcomer one) {
    const TenantRef user = one.tenant;
    const size_t listener = one.listener, most = waiting_max(*user);
    if (newcomers_.add(user->number, now, one, most)) return;
    refuse(now, std::move(one),
           {.code = Errc::table_full,
            .text = std::to_string(most) + " connections of this user wait for their handshake"});
    if (newcomers_.is_at_pace(user->number, now)) shut_out(listener, *user);
}

size_t Server::waiting_max(const Tenant& user) const {
    return std::min<uint64_t>(config_.waiting_of_user_max, user.limits().share(Resource::sessions));
}

void Server::begin_handshakes(Time now, size_t of_user_max) {
    newcomers_.ask(now, of_user_max, [&](Newcomer& one) { return begin_handshake(now, one); });
}

bool Server::begin_handshake(Time now, Newcomer& one) {
    if (unclosed_of(one.tenant->number) > unclosed_of_user_max()) {
        refuse(now, std::move(one),
               {.code = Errc::table_full,
                .text = "more than " + std::to_string(unclosed_of_user_max()) +
                        " connections of this user are not closed yet"});
        return true;
    }
    auto charge = one.tenant->charge(Resource::sessions);  // [N3]
    if (!charge) mapper_->look();                          // some that count may have been returned
    if (!charge && now < one.until) return false;
    const auto begun = charge ? begin_session(now, one, std::move(*charge)) : fail(charge.error());
    if (!begun) refuse(now, std::move(one), begun.error());
    return true;
}

void Server::refuse(Time now, Newcomer one, const Error& why) {
    Tenant& user = *one.tenant;
    log_->warn(&user, now, "session_refused",
               {field("fd", one.connection->fd.get()), field("reason", why.text)});
    refuse(std::move(one.connection), why);
    if (unclosed_of(user.number) > unclosed_of_user_max()) shut_out(one.listener, user);
}

void Server::refuse_newcomers(const Error& why) {
    for (Newcomer& one : newcomers_.take_all()) refuse(std::move(one.connection), why);
}

// Those of him that wait to be accepted still come.
void Server::shut_out(size_t listener, const Tenant& user) {
    loop::ShutOut& there = shut_out_[listener];
    if (there.users().contains(user.name.uid)) return;
    const auto done = there.add(user.name.uid);
    log_->warn("user_shut_out",  // not one of the user's lines, which may be used up [N11]
               {field("tenant", user.name.text()), field("unclosed_connections", unclosed_of(user.number)),
                field("handshakes_waiting", newcomers_.waiting(user.number)),
                field("reason", done ? "" : done.error().text)});
}

void Server::let_in() {
    for (size_t i = 0; i < shut_out_.size(); ++i)
        for (const uint32_t uid : std::set(shut_out_[i].users())) {
            const TenantRef user = tenants_->of(config_.sockets[i].label, uid);
            if (unclosed_of(user->number) > unclosed_of_user_max() / 2 ||
                newcomers_.waiting(user->number) > waiting_max(*user) / 2)
                continue;
            if (shut_out_[i].remove(uid)) log_->info("user_let_in", {field("tenant", user->name.text())});
        }
}

// Clients wait in the kernel's backlog meanwhile.
void Server::pause_accepting(Time now, const std::string& why) {
    log_->warn("accept_paused", {field("unclosed_descriptors", unclosed()), field("reason", why)});
    unwatch_listeners();
    accept_again_at_ = now + accept_pause;
}

void Server::accept_again(Time now) {
    if (stopped_ || now < accept_again_at_) return;
    accept_again_at_ = now + accept_pause;
    if (unclosed() > pause_at()) return;
    accept_again_at_ = never;
    for (size_t i = 0; i < listeners_.size(); ++i) descriptors_->watch(listeners_[i].get(), listener_bit | i);
}

// When the process is out of descriptors, a connection that is not accepted keeps the listener readable, and
// the loop spins. The spare descriptor makes room to accept and refuse it. False: there is none, because the
// last one's connection is not closed yet.
bool Server::refuse_without_descriptors(size_t listener) {
    spare_.reset();
    Fd connection(::accept4(listeners_[listener].get(), nullptr, nullptr, SOCK_CLOEXEC));
    const bool done = connection || errno == EAGAIN;
    if (connection) {
        const TenantRef tenant = tenants_->of(config_.sockets[listener].label, uid_of(connection.get()));
        refuse(std::make_shared<Connection>(std::move(connection), tenant->number, tenant),
               {Errc::table_full, "the daemon is out of descriptors", -1, -1, {}});
    }
    spare_.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    return done;
}

Result<void> Server::begin_session(Time now, Newcomer& one, ChargeRef charge) {
    const auto& [connection, tenant, listener, waited] = one;
    NEXAR_TRY(PeerProcess peer, peer_of(connection->fd.get()));
    const SessionId id(next_session_++);
    const SessionHost host{
        service_,        &robust_,
        page_.fd.get(),  config_.node,
        config_.session, config_.sabotage,
        waker_.get(),    {unmapper_, holes_, faults_, id.value, tenant->number, unreturned_},
        mapper_.get(),   courier_.get(),
        closer_,         &any_ended_};
    connection->session = id;
    NEXAR_TRY_VOID(watch(*tenant, connection->fd.get(), connection_key(id)));
    if (peer.pidfd) {
        const auto watched = watch(*tenant, peer.pidfd.get(), process_key(id));
        if (!watched) {
            unwatch(*tenant, connection->fd.get());
            return watched;
        }
    }
    const Time until = now + config_.handshake_timeout;
    auto session = std::make_unique<Session>(
        id, Client{connection, std::move(peer), tenant, std::move(charge)}, host, until);
    handshakes_.emplace_back(until, id);
    order_.push_back(session.get());
    by_user_.emplace(std::pair(tenant->number, id), session.get());
    const auto turn = turns_.add(*session, tenant->number);
    sessions_.emplace(id.value, Row{std::move(session), turn});
    if (sessions_.size() == 1) tick(now);  // without sessions it does not move
    return {};
}

void Server::refuse(ConnectionRef connection, const Error& why) {
    nexar_msg_refused refused{};
    refused.head = {NEXAR_LOCAL_MAGIC, NEXAR_MSG_REFUSED};
    refused.code = static_cast<int32_t>(why.code);
    std::memcpy(refused.text, why.text.data(), std::min(why.text.size(), sizeof refused.text - 1));
    const auto bytes = std::as_bytes(std::span<const nexar_msg_refused>(&refused, 1));
    courier_->send(connection, {bytes.begin(), bytes.end()});
    courier_->hang_up(std::move(connection), [] {});
}

size_t Server::unclosed() const {
    return courier_->to_hang_up() + closer_->descriptors() + newcomers_.waiting();
}

size_t Server::unclosed_of_user_max() const {
    constexpr size_t part = 16;
    const bool few_left = unclosed() > config_.unclosed_max / 2;
    return few_left ? config_.unclosed_of_user_max / part : config_.unclosed_of_user_max;
}

size_t Server::unclosed_of(uint64_t tenant) const {
    return courier_->to_hang_up(tenant) + closer_->descriptors(connections_lane(tenant));
}

size_t Server::poll(Time now) {
    end_withdrawn(now);
    const size_t taken =
        turns_.serve([](const Session& session) { return session.has_work(); },
                     [&](Session& session) { return take_one(now, session); }, config_.clock);
    end_faulted(now);
    publish_busy();
    forget_handshakes();
    read_sockets();
    return taken;
}

bool Server::take_one(Time now, Session& session) {
    if (session.drain(now, 1) == 0) return false;
    update_busy(*find(session.id()));
    return true;
}

Server::Row* Server::find(SessionId session) {
    const auto found = sessions_.find(session.value);
    return found == sessions_.end() ? nullptr : &found->second;
}

void Server::update_busy(Row& row) {
    SessionCore* core = row.session->core();
    const bool busy = core != nullptr && core->in_flight() != 0;
    if (busy == std::exchange(row.busy, busy)) return;
    busy ? ++busy_ : --busy_;
}

void Server::publish_busy() {
    if (shm::load_relaxed(page().busy_sessions) != busy_) shm::store_relaxed(page().busy_sessions, busy_);
}

// All have the same time, so the first one that is not over has the first deadline.
void Server::forget_handshakes() {
    const auto over = [this](SessionId id) {
        const Row* row = find(id);
        return row == nullptr || row->session->wake_at() == never;
    };
    while (!handshakes_.empty() && over(handshakes_.front().second)) handshakes_.pop_front();
}

bool Server::prepare_to_sleep() {
    shm::store_relaxed(page().sleep, ++sleep_);
    shm::store_release(page().sleeping, 1u);
    shm::fence();  // [S7]: before the rings are read
    bool has_work = false;
    for (const auto& [id, row] : sessions_) {
        if (!row.session->has_work()) continue;
        turns_.warm(row.turn);
        has_work = true;
    }
    if (has_work) on_woken();
    return !has_work;
}

void Server::on_woken() {
    shm::store_relaxed(page().sleeping, 0u);
}

bool Server::tick_is_due(Time now) const {
    return now >= last_tick_ + tick_interval || last_tick_ == Time{};
}

void Server::end_withdrawn(Time now) {
    if (tick_is_due(now)) end_all_given_up(now);
    end_faulted(now);
}

void Server::end_faulted(Time now) {
    note_faults();
    if (!faulted_.empty())
        for (const SessionId id : std::exchange(faulted_, {}))
            if (Row* row = find(id)) row->session->end_if_faulted(now);
    sweep(now);
}

void Server::note_faults() {
    if (!faults_->any()) return;  // as in all turns but a few
    for (const uint64_t owner : faults_->take()) faulted_.emplace_back(owner);
}

void Server::end_all_given_up(Time now) {
    for (Session* session : order_) session->end_if_given_up(now);
    sweep(now);
}

void Server::tick(Time now) {
    if (!tick_is_due(now)) return;
    last_tick_ = now;
    shm::store_release(page().tick_ns, static_cast<uint64_t>(now.time_since_epoch().count()));
    shm::fence();  // [S15]: either the daemon reads `given_up`, or the client reads the new tick
    end_all_given_up(now);
    mapper_->look();
    let_in();
    // So a socket that became full of doorbells, and takes no more, is read.
    for (auto& [id, row] : sessions_)
        if (std::exchange(row.unread, 0u) > 0) to_read_.push_back(row.session->id());
}

void Server::on_time(Time now) {
    tick(now);
    for (Session* session : order_) session->on_time(now);
    begin_handshakes(now, accepts_per_turn_max);
    sweep(now);
    accept_again(now);
}

Time Server::wake_at() const {
    const bool waits =
        std::ranges::any_of(shut_out_, [](const loop::ShutOut& each) { return !each.users().empty(); });
    const Time begin = std::min(accept_again_at_, newcomers_.next());
    if (sessions_.empty() && !waits && mapper_->unreturned()->empty()) return begin;
    const Time at = std::min(begin, last_tick_ + tick_interval);
    return handshakes_.empty() ? at : std::min(at, handshakes_.front().first);
}

// A session may end inside a call of its own or of the engine, so this function destroys it.
void Server::sweep(Time now) {
    while (std::exchange(any_ended_, false))
        std::erase_if(order_, [this, now](Session* session) {
            if (!session->ended()) return false;
            forget(*session, now);
            return true;
        });
}

void Server::forget(Session& session, Time now) {
    const SessionId id = session.id();
    const bool normal = session.why().code == Errc::closed || session.why().code == Errc::peer_lost;
    if (normal)
        log_->info(&session.tenant(), now, "session_ended",
                   {field("session", id), field("pid", session.pid()), field("reason", session.why().text)});
    else
        log_->warn(&session.tenant(), now, "session_closed",
                   {field("session", id), field("pid", session.pid()),
                    field("tenant", session.tenant().name.text()), field("reason", session.why().text)});
    unwatch(session);
    by_user_.erase({session.tenant().number, id});
    const Row& row = *find(id);
    turns_.remove(row.turn);
    if (row.busy) --busy_;
    sessions_.erase(id.value);
}

void Server::unwatch_listeners() {
    if (stopped_ || accept_again_at_ != never) return;
    for (size_t i = 0; i < listeners_.size(); ++i)
        descriptors_->unwatch(listeners_[i].get(), listener_bit | i);
}

void Server::stop(Time now, const std::string& reason) {
    if (stopped_) return;
    unwatch_listeners();
    stopped_ = true;
    const Error why{Errc::daemon_lost, reason, -1, -1, {}};
    refuse_newcomers(why);
    for (Session* session : order_) session->end(now, engine::SessionEnd::closed, why);
    sweep(now);
}

uint64_t Server::memory_bytes() const {
    uint64_t bytes = 0;
    for (Session* session : order_)
        if (session->core()) bytes += session->core()->region_bytes();
    return bytes;
}

std::vector<SessionUse> Server::sessions_of(const TenantName& tenant) const {
    std::vector<SessionUse> out;
    const TenantRef user = tenants_->find(tenant);
    if (!user) return out;
    for (auto at = by_user_.lower_bound({user->number, SessionId(0)});
         at != by_user_.end() && at->first.first == user->number; ++at) {
        Session* session = at->second;
        const SessionCore* core = session->core();
        out.push_back({session->pid(), core ? core->region_bytes() : 0, core ? core->in_flight() : 0});
    }
    return out;
}

size_t Server::regions() const {
    size_t count = 0;
    for (Session* session : order_)
        if (session->core()) count += session->core()->regions();
    return count;
}

// Null: the session has ended. Its process may submit the next operation now.
Server::Row* Server::row_of_news(SessionId session) {
    Row* row = find(session);
    if (row == nullptr || !row->session->ready()) return nullptr;
    turns_.warm(row->turn);
    return row;
}

void Server::complete(SessionId session, uint64_t ticket, const engine::Outcome& outcome) {
    Row* row = row_of_news(session);
    if (row == nullptr) return;
    note_faults();
    const bool faulted = std::ranges::find(faulted_, session) != faulted_.end();
    std::optional<engine::Outcome> instead;
    if (auto fault = faulted ? row->session->fault() : std::nullopt)
        (instead = outcome)->error = std::move(*fault);
    row->session->core()->complete(ticket, instead ? *instead : outcome);
    completed_ = true;
    update_busy(*row);
}

void Server::group_opened(SessionId session, uint64_t ticket, const Result<engine::GroupInfo>& info) {
    Row* row = row_of_news(session);
    if (row == nullptr) return;
    row->session->core()->group_opened(ticket, info);
    update_busy(*row);
}

void Server::stage_done(SessionId session, uint64_t ticket, uint32_t done) {
    if (Row* row = row_of_news(session)) row->session->core()->stage_done(ticket, done);
}

}  // namespace nexar::local
