// Starts the local ranks of a job and waits for their end: forwards their output line by line, its own input
// to rank 0 and signals to all of them, ends the others when one fails, and leaves no process behind. Linux
// only: signalfd. Thread: one.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/result.hpp"

namespace nexarctl {

struct Job {
    uint32_t ranks = 1;       // here
    uint32_t first_rank = 0;  // of them
    uint32_t world = 1;
    std::string group;  // empty: NEXAR_GROUP is not set
    std::string secret;
    // NEXAR_SOCKET of the ranks here, each socket of a block of them; empty: it stays as it is.
    std::vector<std::string> sockets;
    double timeout_s = 0;  // 0: none
    double grace_s = 5;    // from SIGTERM to SIGKILL
    double failure_delay_s =
        1;  // after one rank failed, before the others get SIGTERM: time to end by themselves
    bool keep_going = false;  // a failed rank does not end the others
    bool prefix = true;
    bool json = false;                     // each line of output is an object on standard output
    std::string output_dir;                // a file for each rank and stream; empty: this process's streams
    std::string master_address;            // MASTER_ADDR and MASTER_PORT; empty: they stay as they are
    uint16_t master_port = 0;              // in host order
    std::vector<std::string> environment;  // "NAME=value", before the caller's
    std::vector<std::string> command;
};
constexpr uint32_t ranks_here_max = 1024;
constexpr uint32_t world_max = 4096;

// 128 + signal for a killed process, as in shells.
int exit_code_of(int wait_status);

// 32 random bytes in hex.
std::string random_secret();

// Where output goes: 1 or 2, and bytes that are whole lines. False: it cannot be written any more.
using Output = std::function<bool(int fd, const std::string& lines)>;
bool write_all(int fd, const std::string& text);

// Runs the job to its end. The exit code: the first failing rank's, 124 after the timeout, 128 + signal when
// a signal asked to stop. An error: nothing runs. Takes over SIGINT, SIGTERM, SIGHUP, SIGCHLD, SIGCONT and
// SIGPIPE meanwhile.
nexar::Result<int> run_job(const Job& job, const Output& output);

}  // namespace nexarctl
