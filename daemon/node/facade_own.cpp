// Node's answers on a status socket: to every user of the host, about what is his own
// (docs/protocol/control.md [C8]).
#include <algorithm>

#include "node/node.hpp"
#include "node/own_report.hpp"

namespace nexar::node {

void Node::ask_own(const control::Caller& caller, const std::string& command, const std::string& arguments,
                   control::Answer answer) {
    const TenantName own{*caller.status_label, caller.uid};
    if (command == "groups" || command == "ops")
        return query_forming(command, arguments, own, std::move(answer));
    if (command == "plan") return answer(query_group(command, arguments, own));
    if (command != "status")
        return answer(fail(Errc::permission, "'" + command + "' is answered on the admin socket, " +
                                                 config_.admin_socket +
                                                 "; a status socket answers status, groups, ops and plan, "
                                                 "about what user " +
                                                 std::to_string(caller.uid) + " has here"));
    if (auto none = report::no_arguments(arguments); !none) return answer(fail(none.error()));
    answer(own_status(own, loop::Loop::now()));
}

std::string Node::own_status(const TenantName& own, Time now) const {
    report::OwnStatus s;
    s.tenant = own;
    s.host = host_name();
    s.version = NEXAR_VERSION;
    s.state = state_name();
    s.uptime = now - began_;
    s.peers = peers(now);
    if (identity_) s.cluster_name = identity_->cluster_name();
    if (member_) {
        s.node = member_->self();
        s.tenants = &member_->tenants();
        for (const local::SessionUse& use : member_->server().sessions_of(own))
            s.sessions.push_back({use.pid, use.memory_bytes, use.ops_in_flight});
        const auto snapshot = member_->engine().snapshot(now, {own, {}});
        s.groups = snapshot.groups.size() + snapshot.omitted_groups;
        s.ops_in_flight = snapshot.ops.size() + snapshot.omitted_ops;
    }
    return report::own_status(s);
}

}  // namespace nexar::node
