#include "nexarctl/commands.hpp"

#include <span>

namespace nexarctl {

std::span<const Entry> commands() {
    static constexpr Entry table[] = {
        {"status", "this node: identity, peers, sessions, memory", make_status},
        {"groups", "groups with ranks on this node, and where their ranks are", make_groups},
        {"ops", "operations in flight, and the ranks that have not arrived", make_ops},
        {"plan", "which algorithm an operation would use and what it would send; needs no daemon", make_plan},
        {"tune", "measure links and host, for the choice of algorithms; start it on all hosts", make_tune},
        {"token create", "make a token with which a node may join", make_token_create},
        {"token list", "tokens that have not expired", make_token_list},
        {"token revoke", "make a token invalid", make_token_revoke},
        {"cluster init", "make a new cluster with this node as its first", make_cluster_init},
        {"cluster join", "join a cluster with a token", make_cluster_join},
        {"cluster leave", "leave the cluster, as its node: a later join makes another node",
         make_cluster_leave},
        {"cluster show", "the cluster's identity and members", make_cluster_show},
        {"run", "start local ranks of a job: run -n N -- command...", make_run},
        {"dev", "the same on daemons of its own, for tests: dev -n N [--nodes M] -- command...", make_dev},
        {"doctor", "examine this machine and its daemon", make_doctor},
        {"config", "the daemon's effective configuration", make_config},
        {"check-config", "check a configuration file without a daemon", make_check_config},
    };
    return table;
}

}  // namespace nexarctl
