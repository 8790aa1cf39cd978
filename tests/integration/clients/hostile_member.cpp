// A node with a valid certificate that speaks the real protocol and lies, by commands on standard input.
//
//   hostile_member --types                   all kinds of messages and link frames, one per line
//   hostile_member STATE_FOLDER INCARNATION  the member with this state, in this incarnation (a number)
//
// Commands, one per line; the answer is "done" or "error WHY", after the events of the command:
//   connect NAME ADDRESS             a QUIC connection without data; "connected NAME NODE" follows
//   preamble NAME PURPOSE [FIELD=N]* fields: "counter", "nonce", "version_min", "version_max", "features";
//                                    "bytes", its stated length; "tail", the bytes after the known fields
//   greet NAME JSON                  a message before the switch (Cap'n Proto's JSON, data as numbers)
//   hello NAME                       the honest hello
//   switch NAME                      from now on frames, with heartbeats
//   say NAME JSON                    a message in a frame
//   frame NAME CLASS KIND [FIELD=N]* a link frame (link_frames.hpp); "entries", "payload": how much of it
//   raw NAME CLASS HEX
//   learn JSON                       a message that later lies are made from
//   seed N                           of later lies
//   lie NAME KIND COUNT              lies of one kind, by the seed; KIND *: of any
//   each NAME KIND FIRST STEP        each field of a kind in turn with each extreme of its type, from the
//                                    FIRSTth, every STEPth; each is answered before the next
//   lie_frames NAME KIND COUNT [FIELD=N]*  the same for frames; the fields are those of an honest one
//   tcp NAME ADDRESS WHAT            a connection over TCP that belongs to NAME's, with WHAT on it
//                                    (tcp_member.hpp); "tcp WHAT END" says how it ended
//   close NAME
// Events: "connected", "preamble NAME COUNTER NONCE GENERATION", "greeted NAME JSON", "switched NAME",
// "message NAME JSON", "frame NAME KIND", "closed NAME WHY", "lied NEXT WHAT" (before each lie of `each`).
#include <poll.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <string>

#include "admission/certificates.hpp"
#include "connections/opening.hpp"
#include "core/random.hpp"
#include "link_frames.hpp"
#include "loop/loop.hpp"
#include "support/lies.hpp"
#include "support/longer_frames.hpp"
#include "tcp_member.hpp"
#include "transport/quic_port.hpp"
#include "wire/codec.hpp"

namespace nexar::hostile {
namespace {

using namespace std::chrono_literals;
using Fault = std::runtime_error;

constexpr Duration heartbeat_interval{100ms};
constexpr Duration room_wait{10s};
constexpr Duration resume_wait{2s};

template <class T>
T need(Result<T> result) {
    if (!result) throw Fault(result.error().text);
    return std::move(*result);
}

std::string read_file(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    if (!in) throw Fault("cannot read " + path);
    return {std::istreambuf_iterator<char>(in), {}};
}

void say(const std::string& line) {
    std::fwrite(line.data(), 1, line.size(), stdout);
    std::fputc('\n', stdout);
    std::fflush(stdout);
}

// The control log with one daemon, over all connections. Messages that were lost with a connection are not
// replayed.
struct ControlLog {
    uint64_t generation = 1, sent = 0, applied = 0;
};

// By the number of the union's member: whether a kind is outside the control log (wire::is_logged).
bool is_logged(Bytes message) {
    constexpr size_t kind_at = 16;  // behind segment table and root pointer
    if (message.size() < kind_at + sizeof(uint16_t)) return true;
    const auto kind = link::read_at<uint16_t>(message, kind_at);
    return kind > 5 && kind != 25 && kind != 26;
}

class Connection final : public quic::Receiver {
  public:
    Connection(std::string name, lies::Liar& liar) : name_(std::move(name)), liar_(&liar) {}

    quic::ConnId id;
    NodeId node;
    quic::Connection* quic = nullptr;  // null: not connected yet, or ended
    uint32_t generation = 0;
    Incarnation incarnation{};
    bool beats = false;
    bool is_ahead = false;  // of a later version: its frames are longer
    ControlLog* log = nullptr;
    bool resumed = false;  // the daemon has sent where its log is
    bool ack_due = false;
    uint64_t question = 0;  // nonce of a probe that waits for its reply, or 0

    // Preamble, greetings, switch; then frames, of which the messages are of interest.
    void on_bytes(Class cls, Bytes bytes) override {
        if (cls != Class::control) return;
        in_.insert(in_.end(), bytes.begin(), bytes.end());
        while (const size_t n = take()) in_.erase(in_.begin(), in_.begin() + static_cast<ptrdiff_t>(n));
    }

  private:
    size_t take() {
        if (!met_) return take_preamble();
        if (!switched_) return take_greeting();
        if (in_.size() < sizeof(link::FrameStart)) return 0;
        const auto start = link::read_at<link::FrameStart>(in_, 0);
        const size_t whole = start.length + link::length_bytes;
        if (in_.size() < whole) return 0;
        if (static_cast<link::FrameKind>(start.kind) == link::FrameKind::message)
            received("message ", {in_.begin() + sizeof start, in_.begin() + static_cast<ptrdiff_t>(whole)});
        else if (log && static_cast<link::FrameKind>(start.kind) == link::FrameKind::entry)
            take_entry(whole);
        else if (log && static_cast<link::FrameKind>(start.kind) == link::FrameKind::resume)
            take_resume();
        else
            say("frame " + name_ + " " + std::to_string(start.kind));
        return whole;
    }
    void take_entry(size_t whole) {
        log->applied = link::read_at<link::EntryFrame>(in_, 0).number;
        ack_due = true;
        received("message ",
                 {in_.begin() + sizeof(link::EntryFrame), in_.begin() + static_cast<ptrdiff_t>(whole)});
    }
    void take_resume() {
        const auto theirs = link::read_at<link::ResumeFrame>(in_, 0);
        if (theirs.log_generation > log->generation) *log = {theirs.log_generation, 0, 0};
        if (theirs.log_generation == log->generation) log->sent = theirs.applied;
        resumed = true;
    }
    size_t take_preamble() {
        connections::Preamble p;
        if (in_.size() < sizeof p) return 0;
        std::memcpy(static_cast<void*>(&p), in_.data(), sizeof p);
        met_ = true;
        generation = p.generation;
        incarnation = p.incarnation;
        say("preamble " + name_ + " " + std::to_string(p.incarnation.counter) + " " +
            std::to_string(p.incarnation.nonce) + " " + std::to_string(p.generation));
        return sizeof p;
    }
    size_t take_greeting() {
        if (in_.size() < sizeof(uint32_t)) return 0;
        const auto n = link::read_at<uint32_t>(in_, 0);
        if (in_.size() < sizeof n + n) return 0;
        if (n == 0) {
            switched_ = true;
            say("switched " + name_);
        } else {
            received("greeted ",
                     {in_.begin() + sizeof n, in_.begin() + static_cast<ptrdiff_t>(sizeof n + n)});
        }
        return sizeof n + n;
    }
    void received(const char* how, const lies::Encoded& message) {
        liar_->learn(message);
        if (const auto known = wire::decode(message))
            if (const auto* reply = std::get_if<wire::ProbeReply>(&*known); reply && reply->nonce == question)
                question = 0;
        say(how + name_ + " " + lies::to_text(message));
    }

    std::string name_;
    lies::Liar* liar_;
    std::vector<std::byte> in_;
    bool met_ = false, switched_ = false;
};

class Member {
  public:
    Member(const std::string& folder, uint64_t incarnation)
        : key_(Secret::take(read_file(folder + "/node.key"))),
          certificates_(read_file(folder + "/node.crt")),
          root_(read_file(folder + "/root.crt")),
          self_(need(admission::node_id_of_key(key_))),
          incarnation_{incarnation, incarnation * 7919 + 5},
          liar_(std::make_unique<lies::Liar>(1)),
          random_(1) {
        transport::QuicPort::Options options;
        options.listen = need(quic::Address::parse("0.0.0.0:0"));
        options.quic.listen = false;
        options.quic.connections_max = 100'000;
        port_ = need(transport::QuicPort::open(std::move(options), {certificates_, key_, root_},
                                               [this](const quic::PeerChain& chain, std::string_view) {
                                                   return admission::verify_member(chain, root_,
                                                                                   std::time(nullptr));
                                               }));
        say("self " + self_.hex() + " " + std::to_string(incarnation_.counter) + " " +
            std::to_string(incarnation_.nonce));
    }

    void run() {
        std::string input;
        for (;;) {
            turn();
            pollfd waits[] = {{STDIN_FILENO, POLLIN, 0}, {port_->fd(), POLLIN, 0}};
            poll(waits, 2, 5);
            if ((waits[0].revents & (POLLIN | POLLHUP)) == 0) continue;
            char part[65536];
            const ssize_t n = read(STDIN_FILENO, part, sizeof part);
            if (n <= 0) return;
            input.append(part, static_cast<size_t>(n));
            for (size_t end; (end = input.find('\n')) != std::string::npos; input.erase(0, end + 1))
                answer(input.substr(0, end));
        }
    }

  private:
    void answer(const std::string& line) {
        try {
            command(line);
            say("done");
        } catch (const std::exception& e) {
            say(std::string("error ") + e.what());
        }
    }

    void turn() {
        const Time now = loop::Loop::now();
        port_->flush(now, 64);
        port_->on_readable(now);
        port_->on_time(now);
        while (auto event = port_->poll_event()) on_event(*event);
        for (auto& [name, c] : connections_)
            if (c->quic && std::exchange(c->ack_due, false)) acknowledge(*c);
        if (now < next_beat_) return;
        next_beat_ = now + heartbeat_interval;
        for (auto& [name, c] : connections_)
            if (c->beats && c->quic && c->quic->room(Class::control) > 4096)
                write_message(*c, wire::encode(wire::Heartbeat{}));
    }
    void on_event(const quic::Event& event) {
        for (auto& [name, c] : connections_) {
            if (c->id != event.conn) continue;
            if (event.kind == quic::Event::Kind::connected) {
                c->quic = port_->endpoint().find(event.conn);
                c->node = event.peer;
                c->log = &logs_[event.peer];
                c->quic->set_receiver(c.get());
                say("connected " + name + " " + event.peer.hex());
            } else if (event.kind == quic::Event::Kind::closed) {
                c->quic = nullptr;
                say("closed " + name + " " + event.close.reason);
            }
        }
    }

    void write(Connection& c, Class cls, Bytes bytes) {
        const Time until = loop::Loop::now() + room_wait;
        while (c.quic && c.quic->room(cls) < bytes.size() && loop::Loop::now() < until) turn();
        if (!c.quic) throw Fault("the connection has ended");
        if (c.quic->room(cls) < bytes.size()) throw Fault("no room");
        c.quic->write(cls, bytes);
    }
    static std::vector<std::byte> as_sent(const Connection& c, Bytes frame) {
        return c.is_ahead ? test::longer(frame) : std::vector<std::byte>(frame.begin(), frame.end());
    }
    void acknowledge(Connection& c) {
        Frame::Values values = honest_start(c);
        values["applied"] = c.log->applied;
        const auto frame = as_sent(c, Frame(link::FrameKind::applied, values, {}).bytes());
        if (c.quic->room(Class::control) >= frame.size()) c.quic->write(Class::control, frame);
    }
    // Waits until the daemon has begun the log.
    void write_message(Connection& c, Bytes message) {
        const bool logged = is_logged(message) && c.log;
        const Time until = loop::Loop::now() + resume_wait;
        while (logged && c.quic && !c.resumed && loop::Loop::now() < until) turn();
        Frame::Values honest = honest_start(c);
        if (logged) honest["number"] = ++c.log->sent;
        if (logged) honest["entry_applied"] = c.log->applied;
        const Frame frame(logged ? link::FrameKind::entry : link::FrameKind::message, honest,
                          {{"payload", message.size()}});
        std::vector<std::byte> bytes = frame.bytes();
        bytes.resize(logged ? sizeof(link::EntryFrame) : sizeof(link::FrameStart));
        bytes.insert(bytes.end(), message.begin(), message.end());
        const uint64_t length = bytes.size() - link::length_bytes;
        std::memcpy(bytes.data(), &length, sizeof length);
        write(c, Class::control, as_sent(c, bytes));
    }
    Frame::Values honest_start(const Connection& c) const {
        return {{"generation", c.generation}, {"incarnation", incarnation_.nonce}};
    }
    void greet(Connection& c, Bytes message) {
        const auto n = static_cast<uint32_t>(message.size());
        write(c, Class::control, std::as_bytes(std::span(&n, 1)));
        write(c, Class::control, message);
    }
    lies::Encoded hello() const {
        wire::Hello h;
        h.node = self_;
        h.incarnation = incarnation_;
        h.cluster = admission::cluster_id_of(need(admission::key_hash_of_certificate(root_)));
        h.self = {self_, "hostile", {}};
        h.bulk_port = 9;
        return wire::encode(wire::Message(h));
    }

    Connection& named(std::istringstream& in) {
        std::string name;
        in >> name;
        const auto at = connections_.find(name);
        if (at == connections_.end()) throw Fault("no connection " + name);
        return *at->second;
    }
    static std::string rest(std::istringstream& in) {
        std::string text;
        std::getline(in >> std::ws, text);
        return text;
    }
    static Frame::Values values(std::istringstream& in) {
        Frame::Values out;
        for (std::string word; in >> word;) {
            const size_t at = word.find('=');
            if (at == std::string::npos) throw Fault(word + " is not FIELD=N");
            out[word.substr(0, at)] = std::stoull(word.substr(at + 1), nullptr, 0);
        }
        return out;
    }

    void command(const std::string& line) {
        std::istringstream in(line);
        std::string what;
        in >> what;
        if (what == "connect") return connect(in);
        if (what == "seed") return reseed(in);
        if (what == "learn") return liar_->learn(lies::from_text(rest(in)));
        Connection& c = named(in);
        if (what == "tcp")
            over_tcp(c, in);
        else if (what == "preamble")
            preamble(c, in);
        else if (what == "greet")
            greet(c, lies::from_text(rest(in)));
        else if (what == "hello")
            greet(c, hello());
        else if (what == "switch")
            switch_over(c);
        else if (what == "say")
            write_message(c, lies::from_text(rest(in)));
        else if (what == "frame")
            send_frame(c, in);
        else if (what == "raw")
            send_raw(c, in);
        else if (what == "lie")
            lie(c, in);
        else if (what == "each")
            each(c, in);
        else if (what == "lie_frames")
            lie_frames(c, in);
        else if (what == "close" && c.quic)
            c.quic->close(16, "bye");
        else if (what != "close")
            throw Fault("no command " + what);
    }
    void connect(std::istringstream& in) {
        std::string name, address;
        in >> name >> address;
        auto c = std::make_unique<Connection>(name, *liar_);
        c->id =
            need(port_->connect(loop::Loop::now(), need(quic::Address::parse(address)), quic::alpn_nexar));
        connections_[name] = std::move(c);
    }
    void over_tcp(const Connection& c, std::istringstream& in) {
        std::string address, what;
        in >> address >> what;
        if (!c.quic) throw Fault("the connection has ended");
        TcpMember::Peer peer{c.node, c.incarnation, {}};
        const auto key = need(c.quic->export_keying_material(tcp::attach_key_label, {}, peer.key.size()));
        std::ranges::copy(key, peer.key.begin());
        TcpMember member({certificates_, std::string(key_.text()), self_, incarnation_}, address);
        say("tcp " + what + " " + act(member, peer, what));
    }
    void reseed(std::istringstream& in) {
        uint64_t seed = 0;
        in >> seed;
        random_ = Random(seed);
        liar_->reseed(seed);
    }
    void preamble(Connection& c, std::istringstream& in) {
        connections::Preamble p;
        p.incarnation = incarnation_;
        unsigned purpose = 0;
        in >> purpose;
        p.purpose = static_cast<connections::Purpose>(purpose);
        if (p.purpose != connections::Purpose::control) c.log = nullptr;  // bulk connections carry none
        size_t tail = 0;
        for (const auto& [field, value] : values(in)) {
            if (field == "counter")
                p.incarnation.counter = value;
            else if (field == "nonce")
                p.incarnation.nonce = value;
            else if (field == "version_min")
                p.capabilities.version_min = static_cast<uint16_t>(value);
            else if (field == "version_max")
                p.capabilities.version_max = static_cast<uint16_t>(value);
            else if (field == "features")
                p.capabilities.features = value;
            else if (field == "bytes")
                p.bytes = static_cast<uint16_t>(value);
            else if (field == "tail")
                tail = value;
            else
                throw Fault("a preamble has no field " + field);
        }
        c.is_ahead = p.capabilities.version_max > protocol_version_max;
        write(c, Class::control, connections::to_bytes(p));
        write(c, Class::control, std::vector<std::byte>(tail, std::byte{0xEE}));
    }
    void switch_over(Connection& c) {
        const uint32_t zero = 0;
        write(c, Class::control, std::as_bytes(std::span(&zero, 1)));
        c.beats = true;
        if (!c.log) return;
        Frame::Values values = honest_start(c);
        values["log_generation"] = c.log->generation;
        values["resume_applied"] = c.log->applied;
        write(c, Class::control, as_sent(c, Frame(link::FrameKind::resume, values, {}).bytes()));
    }
    void send_frame(Connection& c, std::istringstream& in) {
        unsigned cls = 0, kind = 0;
        in >> cls >> kind;
        const Frame frame(static_cast<link::FrameKind>(kind), honest_start(c), values(in));
        write(c, static_cast<Class>(cls), frame.bytes());
    }
    void send_raw(Connection& c, std::istringstream& in) {
        unsigned cls = 0;
        std::string hex;
        in >> cls >> hex;
        std::vector<std::byte> bytes;
        for (size_t i = 0; i + 1 < hex.size(); i += 2)
            bytes.push_back(static_cast<std::byte>(std::stoul(hex.substr(i, 2), nullptr, 16)));
        write(c, static_cast<Class>(cls), bytes);
    }

    static size_t number_of(const std::string& kind) {
        const std::vector<std::string> all = lies::kinds();
        const auto chosen = std::find(all.begin(), all.end(), kind);
        if (chosen == all.end()) throw Fault("no kind " + kind);
        return static_cast<size_t>(chosen - all.begin());
    }
    void lie(Connection& c, std::istringstream& in) {
        std::string kind;
        size_t count = 0;
        in >> kind >> count;
        const size_t all = lies::kinds().size();
        for (size_t i = 0; i < count; ++i) {
            const lies::Lie lied = liar_->lie(kind == "*" ? random_.below(all) : number_of(kind));
            write_message(c, lied.message);
            turn();
            if (!c.quic) throw Fault("ended by " + lied.what);
        }
    }
    void each(Connection& c, std::istringstream& in) {
        std::string kind;
        size_t next = 0, step = 1;
        in >> kind >> next >> step;
        const auto made = liar_->each_field(number_of(kind));
        for (; next < made.size() && c.quic; next += step) {
            say("lied " + std::to_string(next + step) + " " + made[next].what);
            write_message(c, made[next].message);
            await_answer(c);
        }
        if (!c.quic) throw Fault("ended");
    }
    // Sends a question after the lie: when the daemon answers, it has processed both, or it ends the
    // connection.
    void await_answer(Connection& c) {
        wire::ProbeRequest question;
        question.nonce = c.question = ++questions_;
        question.target = c.node;
        write_message(c, wire::encode(question));
        const Time until = loop::Loop::now() + room_wait;
        while (c.quic && c.question != 0) {
            if (loop::Loop::now() > until) throw Fault("no answer");
            pollfd wait{port_->fd(), POLLIN, 0};
            poll(&wait, 1, 1);
            turn();
        }
    }
    void lie_frames(Connection& c, std::istringstream& in) {
        unsigned number = 0;
        size_t count = 0;
        in >> number >> count;
        Frame::Values honest = values(in);
        honest.merge(honest_start(c));
        const auto kind = static_cast<link::FrameKind>(number);
        for (size_t i = 0; i < count; ++i) {
            const FrameLie lied = hostile::lie(kind, honest, random_);
            const bool data = kind == link::FrameKind::data;
            const auto cls = random_.one_in(12) ? random_.below(4) : data ? 2 + random_.below(2) : 0;
            write(c, static_cast<Class>(cls), lied.frame.bytes());
            turn();
            if (!c.quic) throw Fault("ended by " + lied.what);
        }
    }

    Secret key_;
    std::string certificates_, root_;
    NodeId self_;
    Incarnation incarnation_;
    std::unique_ptr<lies::Liar> liar_;
    Random random_;
    std::unique_ptr<transport::QuicPort> port_;
    std::map<NodeId, ControlLog> logs_;
    std::map<std::string, std::unique_ptr<Connection>> connections_;
    Time next_beat_{};
    uint64_t questions_ = 1u << 20;
};

int types() {
    if (!tables_are_whole()) {
        std::fprintf(stderr, "hostile_member: link_frames.hpp does not name every field of link/frame.hpp\n");
        return 1;
    }
    for (const std::string& kind : lies::kinds()) say("message " + kind);
    for (const link::FrameKind kind : frame_kinds())
        say("frame " + std::to_string(static_cast<unsigned>(kind)));
    return 0;
}

}  // namespace
}  // namespace nexar::hostile

int main(int argc, char** argv) {
    std::signal(SIGPIPE, SIG_IGN);  // daemons end connections while it writes
    try {
        if (argc == 2 && std::string(argv[1]) == "--types") return nexar::hostile::types();
        if (argc == 3) {
            nexar::hostile::Member(argv[1], std::stoull(argv[2])).run();
            return 0;
        }
    } catch (const std::exception& e) {
        std::fprintf(stderr, "hostile_member: %s\n", e.what());
        return 1;
    }
    std::fprintf(stderr, "usage: hostile_member --types | STATE_FOLDER INCARNATION\n");
    return 2;
}
