// [N12] The server's turns: users with different numbers of sessions. The clients are written by hand, and
// submit entries that the daemon takes and that have no effect: cancels of nothing.
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include <deque>

#include "by_hand.hpp"
#include "shm/control.hpp"
#include "shm/ring.hpp"
#include "still_server.hpp"

using namespace nexar;
using namespace nexar::test;

namespace {

constexpr uint32_t slots = 16;
constexpr Time now = StillServer::now;

class Client {
  public:
    Client(StillServer& server, const std::string& path) : socket_(dial(path)) {
        REQUIRE(server.take(60'000));  // the listener
        REQUIRE(say(socket_, hello()));
        while (receive_type_now(socket_) != NEXAR_MSG_WELCOME) REQUIRE(server.take(60'000));
        const nexar_msg_attach wish = attach(slots);
        const local::Fd control = memfd(wish.control_bytes);
        bytes_ = wish.control_bytes;
        memory_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, control.get(), 0);
        REQUIRE(memory_ != MAP_FAILED);
        REQUIRE(say(socket_, wish, {control.get()}));
        while (receive_type_now(socket_) != NEXAR_MSG_READY) REQUIRE(server.take(60'000));
    }
    ~Client() { ::munmap(memory_, bytes_); }
    Client(const Client&) = delete;
    Client& operator=(const Client&) = delete;

    void submit(size_t entries) {
        for (size_t i = 0; i < entries; ++i)
            REQUIRE(shm::SubmissionProducer(view()).try_push({0, 1, NEXAR_ENTRY_CANCEL}));
    }
    void ring() { REQUIRE(say(socket_, nexar_msg_head{NEXAR_LOCAL_MAGIC, NEXAR_MSG_BELL})); }
    void leave() { REQUIRE(say(socket_, nexar_msg_head{NEXAR_LOCAL_MAGIC, NEXAR_MSG_GOODBYE})); }
    // The daemon has not read all that this client has sent.
    bool has_unread() {
        int bytes = 0;
        REQUIRE(::ioctl(socket_.get(), SIOCOUTQ, &bytes) == 0);
        return bytes > 0;
    }
    uint32_t taken() { return view().header().submit_head; }

  private:
    shm::ControlView view() {
        auto view = shm::ControlView::over({static_cast<std::byte*>(memory_), bytes_}, slots);
        REQUIRE(view);
        return *view;
    }
    local::Fd socket_;
    uint64_t bytes_ = 0;
    void* memory_ = nullptr;
};

}  // namespace

TEST_CASE("a user with many sessions takes no more of a turn of the loop than one with a single session",
          "[N12][H9]") {
    StillServer server({"many", "single"});
    std::deque<Client> many;
    for (int i = 0; i < 40; ++i) many.emplace_back(server, server.path_of("many"));
    Client single(server, server.path_of("single"));
    for (Client& client : many) client.submit(30);
    single.submit(24);
    for (int turn = 0; turn < 3; ++turn) CHECK(server->poll(now) == 16);
    CHECK(single.taken() == 24);

    size_t rest = 40 * 30 - 24;
    while (rest > 0) {
        const size_t taken = server->poll(now);
        REQUIRE(taken > 0);
        rest -= taken;
    }
    CHECK(server->prepare_to_sleep());
}

TEST_CASE("an entry in a ring that was idle for long is seen before the loop sleeps", "[N12][S7]") {
    StillServer server({"other"});
    std::deque<Client> idle;
    for (int i = 0; i < 40; ++i) idle.emplace_back(server, server.path);
    Client other(server, server.path_of("other"));
    for (int turn = 0; turn < 5000; ++turn) REQUIRE(server->poll(now) == 0);
    for (Client* client : {&idle.front(), &idle.back(), &other}) {
        REQUIRE(server->prepare_to_sleep());
        server->on_woken();
        client->submit(1);
        CHECK_FALSE(server->prepare_to_sleep());
        CHECK(server->poll(now) == 1);
        CHECK(client->taken() == 1);
    }
}

TEST_CASE(
    "sessions of one user that all ring are read a few in a turn, and another user's is read in it, too",
    "[N12]") {
    StillServer server({"many", "single"});
    std::deque<Client> many;
    for (int i = 0; i < 40; ++i) many.emplace_back(server, server.path_of("many"));
    Client single(server, server.path_of("single"));
    for (Client& client : many) client.ring();
    single.ring();
    const auto unread = [&] {
        return std::count_if(many.begin(), many.end(), [](Client& client) { return client.has_unread(); });
    };
    REQUIRE(unread() == 40);
    REQUIRE(server.take(60'000));
    CHECK_FALSE(single.has_unread());
    CHECK(unread() == 32);
    for (int turn = 0; turn < 4; ++turn) REQUIRE(server.take(60'000));
    CHECK(unread() == 0);

    single.leave();
    for (Client& client : many) client.leave();
    while (server->sessions() > 0) {
        REQUIRE(server.take(60'000));
        server->poll(now);
    }
    CHECK_FALSE(server.take(0));
}

TEST_CASE("a turn that has completed an operation is known as one, once", "[K36]") {
    StillServer server;
    Client client(server, server.path);
    const SessionId session(1), gone(2);
    CHECK_FALSE(server->take_completed());
    server->complete(gone, 1, {});
    CHECK_FALSE(server->take_completed());
    server->complete(session, 1, {});
    CHECK(server->take_completed());
    CHECK_FALSE(server->take_completed());
}
