// The table of subcommands.
#pragma once

#include <memory>
#include <span>

#include "nexarctl/command.hpp"

namespace nexarctl {

std::span<const Entry> commands();

std::unique_ptr<Command> make_status();
std::unique_ptr<Command> make_groups();
std::unique_ptr<Command> make_ops();
std::unique_ptr<Command> make_plan();
std::unique_ptr<Command> make_tune();
std::unique_ptr<Command> make_token_create();
std::unique_ptr<Command> make_token_list();
std::unique_ptr<Command> make_token_revoke();
std::unique_ptr<Command> make_cluster_init();
std::unique_ptr<Command> make_cluster_join();
std::unique_ptr<Command> make_cluster_leave();
std::unique_ptr<Command> make_cluster_show();
std::unique_ptr<Command> make_run();
std::unique_ptr<Command> make_dev();
std::unique_ptr<Command> make_doctor();
std::unique_ptr<Command> make_config();
std::unique_ptr<Command> make_check_config();

}  // namespace nexarctl
