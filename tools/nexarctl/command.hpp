// What a subcommand is, and how it ends.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace nexarctl {

// Exit codes. `run` ends with its job's.
constexpr int exit_ok = 0;
constexpr int exit_failed = 1;  // the daemon refused, or a check failed
constexpr int exit_usage = 2;
constexpr int exit_no_daemon = 3;
constexpr int exit_no_answer = 4;  // a daemon listens and does not answer

class Options;

struct Context {
    std::string socket;         // the daemon's admin socket
    std::string status_socket;  // where those who may not use that one see what they have
    bool json = false;
    std::vector<std::string> rest;   // everything after "--"
    std::vector<std::string> given;  // options of the subcommand on the command line, as "--nodes"
};

class Command {
  public:
    virtual ~Command() = default;
    virtual void declare(Options&) {}
    virtual int run(const Context& context) = 0;
    virtual bool takes_rest() const { return false; }
};

struct Entry {
    const char* name;  // "status", or "token create": two words nest
    const char* help;
    std::unique_ptr<Command> (*make)();
};

}  // namespace nexarctl
