// See session.hpp. Transitions:
//   expects_hello -> expects_attach   HELLO with a version that both have; WELCOME was sent
//   expects_attach -> mapping         ATTACH with a control segment
//   mapping -> ready                  the segment is mapped and sealed [S19]; READY was sent
//   any -> ended                      end(): by the client, its process's end, a protocol error, a deadline
#include "local/session.hpp"

#include <fcntl.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "local/pins.hpp"

namespace nexar::local {

using engine::SessionEnd;

namespace {

template <class T>
Result<T> body_of(const Packet& packet, size_t descriptors) {
    if (packet.size != sizeof(T))
        return fail(Errc::protocol_error, "a message has " + std::to_string(packet.size) + " bytes, not " +
                                              std::to_string(sizeof(T)));
    if (packet.fds.size() != descriptors && packet.out_of_descriptors && descriptors > 0)
        return fail(Errc::no_memory, "the daemon is out of descriptors");
    if (packet.fds.size() != descriptors)
        return fail(Errc::protocol_error, "a message brings " + std::to_string(packet.fds.size()) +
                                              " descriptors, not " + std::to_string(descriptors));
    T out;
    std::memcpy(&out, packet.bytes, sizeof out);
    return out;
}

template <class T>
std::vector<std::byte> packet_of(T body, uint32_t type) {
    auto& head = reinterpret_cast<nexar_msg_head&>(body);
    head.magic = NEXAR_LOCAL_MAGIC;
    head.type = type;
    const auto bytes = std::as_bytes(std::span<const T>(&body, 1));
    return {bytes.begin(), bytes.end()};
}

Result<Fd> copy_of_descriptor(int fd) {
    Fd out(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (!out) return fail(Errc::no_memory, "the daemon is out of descriptors");
    return out;
}

std::vector<Fd> list(Fd one) {
    std::vector<Fd> out;
    out.push_back(std::move(one));
    return out;
}

// Of other sockets sendmsg() may wait for a lock that another thread of the client holds, also with
// MSG_DONTWAIT. At the other end of a socketpair is its own maker: what the daemon sends there reaches nobody
// for whom the daemon is somebody else than for this client.
bool is_socket_to(uint32_t uid, int fd) {
    int domain = 0;
    socklen_t size = sizeof domain;
    return ::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_UNIX &&
           uid_of(fd) == uid;
}

// What the daemon sent there counts until it was read, or the other end is closed.
bool has_unread(int connection) {
    int bytes = 0;
    return ::ioctl(connection, SIOCOUTQ, &bytes) == 0 && bytes > 0;
}

Error goodbye() {
    return Error{Errc::closed, "the application closed its session", -1, -1, {}};
}

Error protocol_error(std::string text) {
    return Error{Errc::protocol_error, std::move(text), -1, -1, {}};
}

}  // namespace

Session::Session(SessionId id, Client client, const SessionHost& host, Time handshake_until)
    : id_(id), client_(std::move(client)), host_(host), handshake_until_(handshake_until) {}

// The client sees the end of the connection at once, whatever its closing waits for. The session counts until
// it is closed, and until the client has read what came there: descriptors in flight are the daemon's.
Session::~Session() {
    take_back();
    if (wish_answer_) host_.closer->release(connections_lane(lane()), std::move(wish_answer_));
    if (alive_number_) host_.mapper->unreturned()->gone().keep(*alive_number_, client_.charge);
    auto close = [unreturned = host_.mapper->unreturned(), closer = host_.closer,
                  number = connections_lane(lane()), connection = client_.connection,
                  charge = std::move(client_.charge)]() mutable {
        // The question may be asked in another user's lane, so it closes nothing: that is a call as well.
        unreturned->add(
            [closer, number, held = std::move(connection), counted = std::move(charge)]() mutable {
                if (has_unread(held->fd.get())) return false;
                closer->release(number, {.until = std::move(counted),
                                         .connection = [last = std::move(held)]() mutable { last.reset(); }});
                return true;
            });
    };
    host_.courier->hang_up(std::move(client_.connection), std::move(close));
}

void Session::on_packet(Time now, Packet packet) {
    if (packet.kind == Packet::Kind::closed) {
        if (ended_) return;
        return end_with_rest(now, process_ended_ ? Error{Errc::peer_lost, "the process ended", -1, -1, {}}
                                                 : Error{Errc::closed, "the connection ended", -1, -1, {}});
    }
    handle(now, packet);
    if (!ended_ && !ending_) host_.courier->resume(client_.connection);
}

// Descriptors that the packet's message had no use for: anything [S16].
void Session::handle(Time now, Packet& packet) {
    if (ended_ || ending_) {
        // it came too late
    } else if (packet.kind == Packet::Kind::bad) {
        end(now, SessionEnd::crashed, protocol_error(packet.problem));
    } else {
        on_message(now, packet);
    }
    if (packet.fds.empty()) return;
    host_.closer->release(descriptors_lane(lane()),
                          {.descriptors = std::move(packet.fds), .until = client_.charge});
}

void Session::on_message(Time now, Packet& packet) {
    nexar_msg_head head{};
    if (packet.size >= sizeof head) std::memcpy(&head, packet.bytes, sizeof head);
    if (head.magic != NEXAR_LOCAL_MAGIC)
        return end(now, SessionEnd::crashed, protocol_error("a message is not one of nexar's"));

    Result<void> done;
    if (state_ == State::expects_hello && head.type == NEXAR_MSG_HELLO)
        done = on_hello(packet);
    else if (state_ == State::expects_attach && head.type == NEXAR_MSG_ATTACH)
        done = on_attach(packet);
    else if ((state_ == State::expects_attach || state_ == State::ready) && head.type == NEXAR_MSG_LEND)
        done = on_lend(packet);
    else if (state_ == State::ready)
        done = on_ready_packet(now, head.type, packet);
    else
        done = fail(protocol_error("message type " + std::to_string(head.type) + " is out of order"));
    if (!done) end(now, SessionEnd::crashed, done.error());
}

Result<void> Session::on_hello(const Packet& packet) {
    NEXAR_TRY(auto hello, body_of<nexar_msg_hello>(packet, 0));
    const uint32_t version = std::min<uint32_t>(hello.version_max, NEXAR_LOCAL_VERSION);
    if (version < hello.version_min || version < NEXAR_LOCAL_VERSION_MIN)
        return fail(Errc::session_refused, "the library has versions " + std::to_string(hello.version_min) +
                                               " to " + std::to_string(hello.version_max) + ", the daemon " +
                                               std::to_string(NEXAR_LOCAL_VERSION_MIN) + " to " +
                                               std::to_string(NEXAR_LOCAL_VERSION));
    NEXAR_TRY(alive_, host_.robust->add());

    nexar_msg_welcome welcome{};
    welcome.version = version;
    welcome.session = id_.value;
    welcome.region_bytes_max = host_.limits.region_bytes_max;
    welcome.session_bytes_max = host_.limits.session_bytes_max;
    std::memcpy(welcome.node, host_.node.bytes.data(), sizeof welcome.node);
    NEXAR_TRY(Fd page, copy_of_descriptor(host_.daemon_page_fd));
    std::vector<Fd> pages = list(std::move(page));
    pages.push_back(alive_->take_fd());
    if (const auto watched = host_.mapper->unreturned()->gone().watch(pages.back().get()))
        alive_number_ = *watched;
    host_.courier->send(client_.connection, packet_of(welcome, NEXAR_MSG_WELCOME), std::move(pages));
    state_ = State::expects_attach;
    return {};
}

// The reason of a refusal comes with the message that was to use it. The descriptor is the client's, so it is
// closed as those are; nothing waits for it here, whatever it is.
Result<void> Session::on_lend(Packet& packet) {
    const bool lacks_descriptor = packet.out_of_descriptors && packet.fds.empty();
    NEXAR_TRY(const auto wish, body_of<nexar_msg_lend>(packet, lacks_descriptor ? 0 : 1));
    take_back();
    not_lent_.reset();
    if (lacks_descriptor) {
        not_lent_ = Error{Errc::no_memory, "the daemon is out of descriptors", -1, -1, {}};
        return {};
    }
    if (lending_ || !is_socket_to(client_.process.uid, packet.fds[0].get())) {
        not_lent_ = Error{Errc::invalid_argument,
                          lending_ ? "the last wish of this session was not answered yet"
                                   : "the descriptor takes no memfd: it is to be of a socketpair",
                          -1,
                          -1,
                          {}};
        return {};
    }
    lending_ = true;
    Fd answer = std::move(packet.fds[0]);
    packet.fds.clear();
    if (const auto allowed = check_wish(wish); !allowed)
        refuse_loan(std::move(answer), allowed.error());
    else
        lend(wish.bytes, std::move(answer), true);
    return {};
}

Result<void> Session::check_wish(const nexar_msg_lend& wish) const {
    if (wish.reserved != 0) return fail(Errc::invalid_argument, "a reserved field of the wish is not 0");
    const uint64_t bytes_max = host_.limits.region_bytes_max;
    if (wish.bytes == 0 || wish.bytes > bytes_max)
        return fail(Errc::no_memory, "memory may have 1 to " + std::to_string(bytes_max) + " bytes, not " +
                                         std::to_string(wish.bytes));
    return {};
}

// What was returned a moment ago may count still, so a wish for which nothing is left waits for a look at
// that.
void Session::lend(uint64_t bytes, Fd answer, bool waits) {
    if (!host_.mapper->may_lend(lane()))
        return refuse_loan(std::move(answer),
                           {Errc::no_memory, "too much memory of this user waits to be mapped", -1, -1, {}});
    auto charges = SessionCore::charge(*client_.tenant, bytes, pipes_for(bytes));
    if (!charges && !waits) return refuse_loan(std::move(answer), std::move(charges.error()));
    if (!charges) {
        wish_ = bytes;
        wish_answer_ = std::move(answer);
        return host_.mapper->look_for(id_, *host_.mapping.unmapper, lane());
    }
    host_.mapper->make({.session = id_,
                        .name = state_ == State::ready ? "nexar-memory" : "nexar-control",
                        .bytes = bytes,
                        .host = host_.mapping,
                        .charges = std::move(*charges),
                        .answer = std::move(answer),
                        .turn = client_.charge});
}

// The answer says so: somebody else may have the other end, so its end would not be seen.
void Session::refuse_loan(Fd answer, Error why) {
    lending_ = false;
    not_lent_ = std::move(why);
    host_.courier->send_last(lane(), std::move(answer), packet_of(nexar_msg_head{}, NEXAR_MSG_LEND), {});
}

// An answer that does not reach the client's socket is the end of that socket, too.
void Session::on_made(Mapper::Mapped made) {
    if (!made.mapping) return refuse_loan(std::move(made.answer), std::move(made.mapping.error()));
    lending_ = false;
    lent_ = Mapping::Lent{std::move(made.memfd), {}, std::move(*made.mapping)};
    host_.courier->send_last(lane(), std::move(made.answer), packet_of(nexar_msg_head{}, NEXAR_MSG_LEND),
                             list(std::move(made.copy)));
    if (ended_) take_back();
}

void Session::take_back() {
    if (lent_) host_.mapper->take_back(lane(), std::move(*lent_), client_.charge);
    lent_.reset();
}

Result<void> Session::on_attach(Packet& packet) {
    NEXAR_TRY(auto attach, body_of<nexar_msg_attach>(packet, packet.fds.empty() ? 0 : 1));
    if (!nexar_shm_slots_valid(attach.slots) || attach.control_bytes != nexar_shm_control_bytes(attach.slots))
        return fail(Errc::invalid_argument, "a control segment of " + std::to_string(attach.slots) +
                                                " slots and " + std::to_string(attach.control_bytes) +
                                                " bytes is not possible");
    slots_ = attach.slots;
    NEXAR_TRY(auto wanted, memory_of(packet, attach.control_bytes));
    host_.mapper->map(std::move(wanted));
    state_ = State::mapping;
    return {};
}

// The memfd of the message, or what was lent before it.
Result<Mapper::Wanted> Session::memory_of(Packet& packet, uint64_t bytes) {
    Mapper::Wanted out;
    out.session = id_;
    out.turn = client_.charge;
    out.bytes = out.bytes_max = bytes;
    out.host = host_.mapping;
    if (!packet.fds.empty()) {
        if (!host_.limits.memfds_in_place)
            return fail(Errc::permission,
                        "this daemon uses no memory that its clients make (memfds_in_place in its "
                        "configuration); it lends memory");
        out.memfd = std::move(packet.fds[0]);
        packet.fds.clear();
        return out;
    }
    if (packet.out_of_descriptors) return fail(Errc::no_memory, "the daemon is out of descriptors");
    if (!lent_ && not_lent_) return fail(*not_lent_);
    if (lending_)
        return fail(Errc::no_memory,
                    "the memory is not made yet: other memory of this user keeps the daemon waiting");
    if (!lent_ || lent_->mapping->bytes().size() != bytes)
        return fail(Errc::invalid_argument, "no memory of " + std::to_string(bytes) + " bytes was lent");
    out.memfd = std::move(lent_->memfd);
    out.lent = std::move(lent_->mapping);
    lent_.reset();
    return out;
}

Result<void> Session::attach(const Result<std::shared_ptr<Mapping>>& control) {
    if (!control) return fail(control.error());
    control_ = *control;
    NEXAR_TRY(auto view, shm::ControlView::over(control_->bytes(), slots_));
    const SessionIdentity identity{id_, client_.tenant, pid(), host_.node};
    Waker& waker = *this;
    core_ = std::make_unique<SessionCore>(identity, view, *host_.service, waker, host_.limits);
    core_->sabotage = host_.sabotage;
    host_.courier->send(client_.connection, packet_of(nexar_msg_head{}, NEXAR_MSG_READY));
    client_.connection->takes_doorbells = true;
    state_ = State::ready;
    return {};
}

// Memory that cannot be mapped is an error in the slot of a region, and ends a session that has no other.
void Session::on_mapped(Time now, Mapper::Mapped mapped) {
    if (mapped.looked) return lend(wish_, std::move(wish_answer_), false);
    if (mapped.answer) return on_made(std::move(mapped));
    if (ended_) return;
    if (state_ == State::mapping) {
        const auto attached = attach(mapped.mapping);
        if (!attached) end(now, SessionEnd::crashed, attached.error());
        return;
    }
    if (!mapped.mapping) return core_->end_region(mapped.region, fail(mapped.mapping.error()));
    const std::shared_ptr<Mapping>& mapping = *mapped.mapping;
    const auto bytes = mapping->bytes();
    core_->end_region(mapped.region, RegionMemory{bytes.data(), bytes.size(), mapping->backing(), mapping,
                                                  mapping->charges()});
}

Result<void> Session::on_ready_packet(Time now, uint32_t type, Packet& packet) {
    switch (type) {
        case NEXAR_MSG_BELL: {
            NEXAR_TRY_VOID(body_of<nexar_msg_head>(packet, 0));
            return {};  // it came before READY went; its arrival has woken the loop
        }
        case NEXAR_MSG_GOODBYE: {
            NEXAR_TRY_VOID(body_of<nexar_msg_head>(packet, 0));
            goodbye_received_ = true;
            end_with_rest(now, goodbye());
            return {};
        }
        case NEXAR_MSG_REGION_ADD:
            return on_region_add(packet);
        default:
            return fail(protocol_error("message type " + std::to_string(type) + " is unknown"));
    }
}

// A region that is refused is an error in its slot; only a malformed message ends the session.
Result<void> Session::on_region_add(Packet& packet) {
    const bool brings_one = !packet.fds.empty();
    NEXAR_TRY(auto add, body_of<nexar_msg_region_add>(packet, brings_one ? 1 : 0));
    auto charged = lent_ && !brings_one ? *lent_->mapping->charges() : SessionCore::Charges();
    auto charges = core_->begin_region(add.slot, add.generation, add.region, add.bytes, pipes_for(add.bytes),
                                       std::move(charged));
    if (charges.empty()) return {};
    auto wanted = region_memory(add, packet);
    if (!wanted) {
        core_->end_region(add.region, fail(wanted.error()));
        return {};
    }
    wanted->charges = std::move(charges);
    host_.mapper->map(std::move(*wanted));
    return {};
}

Result<Mapper::Wanted> Session::region_memory(const nexar_msg_region_add& add, Packet& packet) {
    if (add.kind != NEXAR_MEMORY_MEMFD && add.kind != NEXAR_MEMORY_LENT)
        return fail(Errc::unsupported, "the kind of memory is " + std::to_string(add.kind) +
                                           "; allowed: " + std::to_string(NEXAR_MEMORY_MEMFD) +
                                           " (memfd) and " + std::to_string(NEXAR_MEMORY_LENT) + " (lent)");
    if (add.reserved != 0) return fail(Errc::invalid_argument, "a reserved field of the region is not 0");
    const bool lent = add.kind == NEXAR_MEMORY_LENT;
    if (!lent && packet.fds.empty() && packet.out_of_descriptors)
        return fail(Errc::no_memory, "the daemon is out of descriptors");
    if (lent != packet.fds.empty() || (lent && add.offset != 0))
        return fail(Errc::invalid_argument,
                    "a memfd comes with its message; lent memory without, at offset 0");
    NEXAR_TRY(auto wanted, memory_of(packet, add.bytes));
    wanted.region = add.region;
    wanted.offset = add.offset;
    return wanted;
}

void Session::end_if_given_up(Time now) {
    if (!ready() || !core_->was_given_up()) return;
    end(now, SessionEnd::given_up,
        {Errc::daemon_unresponsive,
         "the process gave its session up, because its daemon did not run",
         -1,
         -1,
         {}});
}

size_t Session::drain(Time now, size_t entries_max) {
    end_if_given_up(now);
    if (!ready()) return 0;
    if (ending_) return take_rest(now, entries_max);
    const size_t taken = core_->drain(now, entries_max);
    if (core_->broken()) end(now, SessionEnd::crashed, *core_->broken());
    return taken;
}

// Ends when the entries are handled that were submitted before: each was published whole. What is more than
// a turn's share of them waits for drain(), as any entry [N12].
void Session::end_with_rest(Time now, Error crash) {
    if (ending_) return;
    end_if_given_up(now);
    if (!ready()) return end_by_client(now, std::move(crash));
    ending_ = std::move(crash);
    rest_ = nexar_shm_submission_entries(core_->slots()) + Intake::ahead_max;
    take_rest(now, rest_at_once_max);
}

// Bounded by what the ring and the intake hold, in case a process that inherited the segment still writes.
size_t Session::take_rest(Time now, size_t entries_max) {
    const size_t asked = std::min(rest_, entries_max);
    const size_t taken = core_->drain(now, asked);
    rest_ -= taken;
    if (taken < asked || rest_ == 0) end_by_client(now, std::move(*ending_));
    return taken;
}

// The end counts as a crash unless the client has announced it.
void Session::end_by_client(Time now, Error crash) {
    const bool orderly = ready() && (goodbye_received_ || core_->has_goodbye());
    end(now, orderly ? SessionEnd::closed : SessionEnd::crashed, orderly ? goodbye() : std::move(crash));
}

// GOODBYE may be behind doorbells.
void Session::on_process_ended() {
    if (std::exchange(process_ended_, true)) return;
    host_.courier->read_to_end(client_.connection);
}

void Session::on_time(Time now) {
    if (ended_) return;
    if (state_ != State::ready && now >= handshake_until_)
        return end(now, SessionEnd::crashed, {Errc::timed_out, "the handshake took too long", -1, -1, {}});
}

void Session::end_if_faulted(Time now) {
    if (ended_) return;
    if (auto error = fault()) end(now, SessionEnd::given_up, std::move(*error));
}

std::optional<Error> Session::fault() const {
    const auto faulted = [](const Region& region) {
        return static_cast<const Mapping*>(region.memory.mapping.get())->faulted();
    };
    if (!(control_ && control_->faulted()) && !(core_ && core_->any_region(faulted))) return {};
    return protocol_error(
        "shared memory of this session has no page where the daemon needed one: its process took the page "
        "away, or never made it");
}

void Session::end(Time now, SessionEnd how, Error why) {
    if (ended_) return;
    const bool was_ready = state_ == State::ready && core_;
    ended_ = why;
    *host_.any_ended = true;
    if (core_) core_->break_off(why);
    nexar_msg_refused refused{};
    refused.code = static_cast<int32_t>(why.code);
    std::memcpy(refused.text, why.text.data(), std::min(why.text.size(), sizeof refused.text - 1));
    host_.courier->send(client_.connection, packet_of(refused, NEXAR_MSG_REFUSED));
    if (alive_) alive_->stop(*host_.waker, client_.tenant->number);  // wakes every sleeper of the client
    if (was_ready) host_.service->session_ended(now, id_, how, why.text);
}

void Session::wake_all(uint32_t* word) {
    host_.waker->wake_all(client_.tenant->number, word, control_);
}

void Session::ring_doorbell() {
    host_.courier->ring(client_.connection);
}

}  // namespace nexar::local
