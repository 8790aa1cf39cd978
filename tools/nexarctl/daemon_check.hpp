// Whether a daemon takes sessions, before a job is started for it.
#pragma once

#include <string>

#include "nexarctl/client.hpp"

namespace nexarctl {

// What is wrong with the socket that the job's ranks will use; exit_ok: a daemon listens on it.
constexpr int session_timeout_ms = 5000;
std::string session_socket();  // of this environment
Reply check_session_socket(const std::string& path, int timeout_ms);

}  // namespace nexarctl
