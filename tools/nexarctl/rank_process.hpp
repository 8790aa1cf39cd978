// The process of one rank: its environment, its standard streams, and its start.
#pragma once

#include <csignal>
#include <cstdint>
#include <string>
#include <vector>

#include "core/result.hpp"
#include "nexarctl/descriptor.hpp"
#include "nexarctl/launcher.hpp"

namespace nexarctl {

// "NAME=value" of what `run` itself sets for one rank.
std::vector<std::string> environment_of(const Job& job, uint32_t local_rank);
// The same, then the job's --env, then the caller's variables that neither has.
std::vector<std::string> full_environment(const Job& job, uint32_t local_rank);
// What is wrong with one of the job's --env; empty: nothing. `own`: what an error says of a variable that is
// set for each rank in any case.
std::string environment_complaint(const Job& job, const std::string& own);

// For execve(): of these texts, which must stay.
std::vector<char*> pointers(std::vector<std::string>& texts);

// The file that takes one stream of a rank: DIR/rank-3.stdout.
std::string output_path(const Job& job, uint32_t local_rank, const char* stream);
// Makes the folder and all its files empty, before any rank starts.
nexar::Result<void> prepare_output(const Job& job);

struct Standard {
    Descriptor in, out, err;
};
struct Ends {
    Standard theirs;  // become 0, 1 and 2
    Standard ours;    // pipes, not blocking; none where theirs is a file
};
nexar::Result<Ends> open_standard(const Job& job, uint32_t local_rank);

struct Start {
    pid_t pid = -1;  // -1: fork() failed
    int why = 0;     // errno of the call that failed; 0: the command runs
};
Start start_process(const Job& job, uint32_t local_rank, const Standard& standard, const sigset_t& mask);

}  // namespace nexarctl
