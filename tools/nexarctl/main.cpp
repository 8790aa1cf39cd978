// nexarctl: asks the daemon of this host, starts jobs, examines the machine. One subcommand per cmd_*.cpp.
#include "nexarctl/commands.hpp"
#include "nexarctl/options.hpp"

int main(int argc, char** argv) {
    return nexarctl::parse_and_run(argc, argv, nexarctl::commands());
}
