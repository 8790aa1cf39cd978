// What the admin server, and a status socket's, does with callers of every kind.
#include "control/server.hpp"

#include <grp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <deque>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "server_world.hpp"
#include "support/stuck_socket.hpp"

using namespace nexar;
using namespace nexar::control;
using namespace nexar::test;

TEST_CASE("a question is answered on one line, and the connection can ask again") {
    World world;
    Client client(world.config.path);

    client.send(echo);
    REQUIRE(world.until([&] { return client.has_line(); }));
    REQUIRE(client.line() == json{{"ok", true}, {"result", {{"a", 1}}}});

    client.send("{\"command\": \"refuse\"}\n");
    REQUIRE(world.until([&] { return client.has_line(); }));
    const json refused = client.line();
    REQUIRE(refused["ok"] == false);
    REQUIRE(refused["error"] == json{{"code", -105}, {"name", "PERMISSION"}, {"text", "not you"}});
}

TEST_CASE("the facade learns from the kernel who asks", "[C4]") {
    World world;
    Client client(world.config.path);
    client.send("{\"command\": \"status\"}\n");
    REQUIRE(world.until([&] { return !world.facade.open.empty(); }));

    const Caller& caller = world.facade.open[0].caller;
    REQUIRE(caller.uid == ::getuid());
    REQUIRE(caller.pid == uint32_t(::getpid()));
    REQUIRE(caller.may_change);
}

TEST_CASE("garbage gets an error and the next line is a new start", "[C3]") {
    World world;
    Client client(world.config.path);
    client.send(std::string("\0\xff{{{[[[\n\n", 11));
    client.send("GET / HTTP/1.1\r\n");
    client.send(echo);
    REQUIRE(world.until([&] {
        client.receive();
        return std::count(client.text.begin(), client.text.end(), '\n') >= 4;
    }));
    for (int i = 0; i < 3; ++i) REQUIRE(client.line()["error"]["name"] == "PROTOCOL_ERROR");
    REQUIRE(client.line()["ok"] == true);
}

TEST_CASE("a request in pieces of one byte is one request") {
    World world;
    Client client(world.config.path);
    for (const char* c = echo; *c != 0; ++c) {
        REQUIRE(client.send(std::string_view(c, 1)) == 1);
        world.turn(1);
    }
    REQUIRE(world.until([&] { return client.has_line(); }));
    REQUIRE(client.line()["ok"] == true);
}

TEST_CASE("an endless line is refused at its limit, and takes no more memory than that", "[C2]") {
    World world;
    Client client(world.config.path);
    const std::string piece(8192, 'x');
    bool answered = false;
    size_t taken = 0;
    for (int i = 0; i < 4096 && !answered; ++i) {
        const ssize_t sent = client.send(piece);
        if (sent > 0) taken += size_t(sent);
        world.turn(1);
        answered = client.has_line();
    }
    REQUIRE(answered);
    REQUIRE(client.line()["error"]["text"].get<std::string>().find("65536 bytes") != std::string::npos);
    REQUIRE(world.until([&] {
        client.receive();
        return client.closed;
    }));
    REQUIRE(world.server->connections() == 0);
    REQUIRE(taken < 1'000'000);  // the limit, and what the kernel buffers
}

TEST_CASE("a caller that ends its half still gets its answer; half a line gets an error") {
    World world;
    Client whole(world.config.path), half(world.config.path);
    whole.send("{\"command\": \"later\"}\n");
    whole.end();
    half.send("{\"command\": ");
    half.end();
    REQUIRE(world.until([&] { return world.facade.open.size() == 1 && half.has_line(); }));
    REQUIRE(half.line()["error"]["name"] == "PROTOCOL_ERROR");

    world.facade.open[0].answer(std::string("7"));
    REQUIRE(world.until([&] { return whole.has_line(); }));
    REQUIRE(whole.line()["result"] == 7);
    REQUIRE(world.until([&] { return world.server->connections() == 0; }));
}

TEST_CASE("a caller that hung up before the answer harms nobody") {
    World world;
    auto client = std::make_unique<Client>(world.config.path);
    client->send("{\"command\": \"later\"}\n");
    REQUIRE(world.until([&] { return world.facade.open.size() == 1; }));
    client->hang_up();
    world.turn(5);

    world.facade.open[0].answer(std::string("1"));
    REQUIRE(world.until([&] { return world.server->connections() == 0; }));
    world.facade.open[0].answer(std::string("2"));  // a second call does nothing
}

TEST_CASE("only the first answer to a question counts, and none comes after the server's end", "[C5]") {
    World world;
    Client client(world.config.path);
    client.send("{\"command\": \"one\"}\n");
    REQUIRE(world.until([&] { return world.facade.open.size() == 1; }));
    world.facade.open[0].answer(std::string("1"));
    world.facade.open[0].answer(std::string("11"));
    client.send("{\"command\": \"two\"}\n");
    REQUIRE(world.until([&] { return world.facade.open.size() == 2; }));
    world.facade.open[0].answer(std::string("111"));
    world.facade.open[1].answer(std::string("2"));
    REQUIRE(world.until(
        [&] { return client.has_line() && std::count(client.text.begin(), client.text.end(), '\n') == 2; }));
    REQUIRE(client.line()["result"] == 1);
    REQUIRE(client.line()["result"] == 2);

    client.send("{\"command\": \"three\"}\n");
    REQUIRE(world.until([&] { return world.facade.open.size() == 3; }));
    world.server.reset();
    world.facade.open[2].answer(std::string("3"));
    client.receive_to_end();
    REQUIRE(client.text.empty());
}

TEST_CASE("a slow reader gets its large answer in its own time while others are served", "[C1]") {
    World world;
    Client slow(world.config.path), quick(world.config.path);
    slow.send("{\"command\": \"huge\", \"arguments\": {\"bytes\": 4000000}}\n");
    world.turn(3);
    for (int i = 0; i < 20; ++i) {
        slow.receive(1000);
        quick.send(echo);
        REQUIRE(world.until([&] { return quick.has_line(); }));
        REQUIRE(quick.line()["ok"] == true);
    }
    REQUIRE(slow.text.size() < 100'000);

    REQUIRE(world.until([&] { return slow.has_line(); }));
    REQUIRE(slow.line()["result"].get<std::string>().size() == 4'000'000);
}

TEST_CASE("a caller that never reads is closed at the write deadline", "[C2]") {
    World world;
    Client deaf(world.config.path);
    deaf.send("{\"command\": \"huge\", \"arguments\": {\"bytes\": 4000000}}\n");
    world.turn(3);
    REQUIRE(world.server->connections() == 1);

    world.skipped = world.config.write_deadline + 1s;
    REQUIRE(world.until([&] { return world.server->connections() == 0; }));
}

TEST_CASE("an answer beyond the limit is an error that says so") {
    World world;
    Client client(world.config.path);
    client.send("{\"command\": \"huge\", \"arguments\": {\"bytes\": 9000000}}\n");
    REQUIRE(world.until([&] { return client.has_line(); }));
    REQUIRE(client.line()["error"]["text"].get<std::string>().find("9000002 bytes") != std::string::npos);
}

TEST_CASE("silence is closed at the request deadline, a mute facade is reported at the answer deadline",
          "[C2]") {
    World world;
    Client silent(world.config.path), waiting(world.config.path);
    waiting.send("{\"command\": \"later\"}\n");
    REQUIRE(world.until([&] { return world.facade.open.size() == 1 && world.server->connections() == 2; }));

    world.skipped = world.config.request_deadline + 1s;
    REQUIRE(world.until([&] { return world.server->connections() == 1; }));
    world.skipped = world.config.answer_deadline + 1s;
    REQUIRE(world.until([&] { return waiting.has_line(); }));
    REQUIRE(waiting.line()["error"]["name"] == "TIMED_OUT");
    REQUIRE(world.until([&] { return world.server->connections() == 0; }));
}

TEST_CASE("connections are limited; a later one gets an error, and gets in when another leaves", "[C2]") {
    World world;
    std::vector<std::unique_ptr<Client>> clients;
    for (size_t i = 0; i < world.config.connections_max; ++i)
        clients.push_back(std::make_unique<Client>(world.config.path));
    REQUIRE(world.until([&] { return world.server->connections() == world.config.connections_max; }));

    Client late(world.config.path);
    REQUIRE(world.until([&] { return late.has_line(); }));
    REQUIRE(late.line()["error"]["name"] == "TABLE_FULL");

    clients.pop_back();
    REQUIRE(world.until([&] { return world.server->connections() == world.config.connections_max - 1; }));
    Client next(world.config.path);
    next.send(echo);
    REQUIRE(world.until([&] { return next.has_line(); }));
    REQUIRE(next.line()["ok"] == true);
}

TEST_CASE("hundreds of requests sent at once are all answered, in order, a few per turn", "[C1][C5]") {
    World world;
    Client client(world.config.path);
    std::string all;
    for (int i = 0; i < 500; ++i)
        all += "{\"command\": \"echo\", \"arguments\": {\"i\": " + std::to_string(i) + "}}\n";
    REQUIRE(client.send(all) == ssize_t(all.size()));
    REQUIRE(world.until([&] {
        client.receive();
        return std::count(client.text.begin(), client.text.end(), '\n') == 500;
    }));
    for (int i = 0; i < 500; ++i) REQUIRE(client.line()["result"]["i"] == i);
}

TEST_CASE("the socket has its mode, replaces a stale one, and not one on which somebody listens") {
    World world;
    struct stat status{};
    REQUIRE(::stat(world.config.path.c_str(), &status) == 0);
    REQUIRE((status.st_mode & 0777) == 0660);

    const auto second = Server::open(world.config, world.loop, world.facade, world.log);
    REQUIRE(!second);
    REQUIRE(second.error().code == Errc::bad_state);
    REQUIRE(second.error().text.contains(world.config.path));

    // A stale one: bound once, its listener gone without removing it.
    const std::string stale = world.folder + "/stale.sock";
    const auto left = listen_on(stale, 0600, "");
    REQUIRE(left);
    ::close(left->fd);
    ServerConfig again = world.config;
    again.path = stale;
    REQUIRE(Server::open(again, world.loop, world.facade, world.log));
    REQUIRE(::access(stale.c_str(), F_OK) != 0);  // the server took its socket away at its end
}

TEST_CASE("what cannot be listened on is an error that names it") {
    World world;
    ServerConfig config = world.config;
    config.path = world.folder + "/" + std::string(120, 'x');
    REQUIRE(Server::open(config, world.loop, world.facade, world.log).error().code == Errc::bad_config);
    config.path = world.folder;
    REQUIRE(Server::open(config, world.loop, world.facade, world.log).error().text.contains(config.path));
    config.path = world.folder + "/other.sock";
    config.group = "no-such-group-here";
    const auto group = Server::open(config, world.loop, world.facade, world.log);
    REQUIRE(group.error().text.contains("no-such-group-here"));
}

TEST_CASE("[N23] with too few descriptors a server is an error that says so") {
    ServerConfig config;
    loop::Loop loop;
    FakeFacade facade;
    Log log{[](Level, const std::string&) {}};
    config.path = std::filesystem::temp_directory_path() / ("nexar-few-" + std::to_string(::getpid()));
    rlimit before{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
    rlim_t left = 0;
    // Threads of earlier servers may close descriptors meanwhile: then it begins anew.
    for (int tries = 0;; ++left) {
        REQUIRE(left < 64);
        const int next = loop::Fd(::dup(0)).get();  // the number that a new one gets
        REQUIRE(next >= 0);
        const rlimit few{static_cast<rlim_t>(next) + left, before.rlim_max};
        REQUIRE(::setrlimit(RLIMIT_NOFILE, &few) == 0);
        const auto server = Server::open(config, loop, facade, log);
        REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
        if (server && (left > 4 || ++tries == 100)) break;
        if (server) {
            left = 0;
            continue;
        }
        CHECK(server.error().text.contains("Too many open files"));
    }
    CHECK(left > 4);
}

TEST_CASE("[S16] a caller's descriptors, read and unread, are closed elsewhere", "[control]") {
    World world;
    std::vector<test::StuckSocket> stuck(3);
    std::deque<Client> clients;
    for (auto& one : stuck) {
        Client& client = clients.emplace_back(world.config.path);
        test::pass_descriptor(client.fd(), one.take(), "{");
    }
    clients[2].hang_up();
    for (Client* client : {&clients[0], &clients[1]})
        CHECK(world.until([&] { return client->receive(), client->closed; }));

    Client honest(world.config.path);
    honest.send("{\"command\": \"echo\", \"arguments\": 1}\n");
    CHECK(world.until([&] { return honest.has_line(); }));
}

TEST_CASE("on a status socket everybody only looks, and at what is his", "[U12][C8]") {
    World world(ServerConfig::of_status("", "pods"));
    struct stat status{};
    REQUIRE(::stat(world.config.path.c_str(), &status) == 0);
    REQUIRE((status.st_mode & 0777) == 0666);
    Client client(world.config.path);
    client.send("{\"command\": \"status\"}\n");
    REQUIRE(world.until([&] { return !world.facade.open.empty(); }));

    const Caller& caller = world.facade.open[0].caller;
    REQUIRE(caller.uid == ::getuid());
    REQUIRE(caller.status_label == "pods");
    REQUIRE_FALSE(caller.may_change);  // also root
}

TEST_CASE("a user's connections to a status socket are limited before those of all are", "[U12][C8]") {
    World world(ServerConfig::of_status("", ""));
    std::vector<std::unique_ptr<Client>> clients;
    for (size_t i = 0; i < world.config.connections_per_user_max; ++i)
        clients.push_back(std::make_unique<Client>(world.config.path));
    REQUIRE(
        world.until([&] { return world.server->connections() == world.config.connections_per_user_max; }));

    Client late(world.config.path);
    REQUIRE(world.until([&] { return late.has_line(); }));
    const json refused = late.line();
    REQUIRE(refused["error"]["name"] == "TABLE_FULL");
    REQUIRE(refused["error"]["text"].get<std::string>().find("of user " + std::to_string(::getuid())) !=
            std::string::npos);
    clients.pop_back();
    REQUIRE(world.until(
        [&] { return world.server->connections() == world.config.connections_per_user_max - 1; }));
}

TEST_CASE("requests beyond a user's pace wait, and are answered in order", "[U12][C8]") {
    ServerConfig config = ServerConfig::of_status("", "");
    config.request_interval = 20ms;
    config.requests_at_once_max = 2;
    World world(config);
    Client client(world.config.path);
    const Time begun = loop::Loop::now();
    std::string all;
    for (int i = 0; i < 6; ++i)
        all += "{\"command\": \"echo\", \"arguments\": {\"i\": " + std::to_string(i) + "}}\n";
    client.send(all);
    REQUIRE(world.until([&] {
        client.receive();
        return std::count(client.text.begin(), client.text.end(), '\n') == 6;
    }));
    REQUIRE(loop::Loop::now() - begun >= 4 * 20ms);
    for (int i = 0; i < 6; ++i) REQUIRE(client.line()["result"]["i"] == i);
}

TEST_CASE("a status socket takes short requests only, and no silence", "[U12][C8]") {
    World world(ServerConfig::of_status("", ""));
    Client endless(world.config.path), silent(world.config.path);
    endless.send(std::string(5000, 'x'));
    REQUIRE(world.until([&] { return endless.has_line(); }));
    REQUIRE(endless.line()["error"]["text"].get<std::string>().find("4096 bytes") != std::string::npos);
    REQUIRE(world.until([&] { return world.server->connections() == 1; }));
    world.skipped = world.config.request_deadline + 1s;
    REQUIRE(world.until([&] { return world.server->connections() == 0; }));
}

namespace {

// Connects as another user and waits for the signal to end.
pid_t connect_as(const std::string& path, uint32_t uid, uint32_t gid, std::vector<gid_t> groups, int until) {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child > 0) return child;
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
    const char* const request = "{\"command\": \"who\"}\n";
    char end;
    if (::setgroups(groups.size(), groups.data()) != 0 || ::setgid(gid) != 0 || ::setuid(uid) != 0)
        ::_exit(1);
    if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) ::_exit(2);
    if (::write(fd, request, std::strlen(request)) < 0 || ::read(until, &end, 1) < 0) ::_exit(3);
    ::_exit(0);
}

}  // namespace

TEST_CASE("[S16] a user whose connections cannot be closed cannot connect until they are, and others can",
          "[control]") {
    if (::getuid() != 0) SKIP("needs root: another user connects");
    ServerConfig config = ServerConfig::of_status("", "");
    config.unclosed_of_user_max = 4;
    config.closings_wait = true;
    World world(config);
    ::chmod(world.folder.c_str(), 0755);
    test::StuckSocket stuck;
    int report[2];
    REQUIRE(::pipe2(report, O_CLOEXEC | O_NONBLOCK) == 0);
    const loop::Fd news(report[0]);
    const pid_t nobody = ::fork();
    REQUIRE(nobody >= 0);
    if (nobody == 0) {  // its copies end with it
        if (::setresuid(65534, 65534, 65534) != 0) ::_exit(1);
        const Client passes(world.config.path);
        test::pass_descriptor(passes.fd(), stuck.take(), "{");
        stuck.let_go();  // this process's copy of the other end
        const auto connects = [&] { return Client::connects(world.config.path); };
        while (connects()) ::usleep(1000);  // sleep: between two looks
        if (errno != EACCES || ::write(report[1], "r", 1) != 1) ::_exit(2);
        while (!connects()) ::usleep(1000);  // sleep: between two looks
        ::_exit(0);
    }
    static_cast<void>(stuck.take());
    char word = 0;
    REQUIRE(world.until([&] { return ::read(news.get(), &word, 1) == 1; }));
    CHECK(word == 'r');
    Client other(world.config.path);
    other.send(echo);
    CHECK(world.until([&] { return other.has_line(); }));

    stuck.let_go();
    int code = -1;
    REQUIRE(world.until([&] {
        world.skipped += 1s;
        return ::waitpid(nobody, &code, WNOHANG) == nobody;
    }));
    ::close(report[1]);
    CHECK(code == 0);
}

TEST_CASE("members of the group may change things, other users may only look", "[C4]") {
    if (::getuid() != 0) SKIP("only root can become other users");
    ServerConfig config;
    config.mode = 0666;  // an administrator's choice; by default others cannot even connect
    config.group = "daemon";
    World world(config);
    ::chmod(world.folder.c_str(), 0755);
    const uint32_t group = ::getgrnam("daemon")->gr_gid;
    struct stat status{};
    REQUIRE(::stat(world.config.path.c_str(), &status) == 0);
    REQUIRE(status.st_gid == group);

    const auto ask = [&](uint32_t gid, const std::vector<gid_t>& groups) {
        int pipe[2];
        REQUIRE(::pipe(pipe) == 0);
        const size_t before = world.facade.open.size();
        const pid_t child = connect_as(world.config.path, 65534, gid, groups, pipe[0]);
        const bool asked = world.until([&] { return world.facade.open.size() > before; });
        REQUIRE(::write(pipe[1], "x", 1) == 1);
        int code = 0;
        ::waitpid(child, &code, 0);
        ::close(pipe[0]);
        ::close(pipe[1]);
        REQUIRE(code == 0);
        REQUIRE(asked);
        REQUIRE(world.facade.open.back().caller.uid == 65534);
        return world.facade.open.back().caller.may_change;
    };
    REQUIRE_FALSE(ask(65534, {}));
    REQUIRE_FALSE(ask(65534, {100, 101}));
    REQUIRE(ask(group, {}));
    REQUIRE(ask(65534, {100, group}));
    std::vector<gid_t> many(200);
    for (size_t i = 0; i < many.size(); ++i) many[i] = gid_t(20000 + i);
    REQUIRE_FALSE(ask(65534, many));
    many.back() = group;
    REQUIRE(ask(65534, many));
}
