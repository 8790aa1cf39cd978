// Node's answers on a status socket: to every user of the host, about what is his own
// (docs/protocol/control.md [C8]).
#include <algorithm>

#include "node/node.hpp"
#include "node/own_report.hpp"

namespace nexar::node {

void Node::ask_own(const control::Caller& caller, const std::string& command, const std::string& arguments,
                   control::Answer answer) {
    const TenantName own{*caller.status_label, caller.uid};
    Question question{command, arguments, own, caller.uid, caller.connection, answer, {}};
    if (command == "groups" || command == "ops") return query_forming(std::move(question));
    if (command == "plan") return questions_.add(std::move(question));
    if (command != "status")
        return answer(fail(Errc::permission, "'" + command + "' is answered on the admin socket, " +
                                                 config_.admin_socket +
                                                 "; a status socket answers status, groups, ops and plan, "
                                                 "about what user " +
                                                 std::to_string(caller.uid) + " has here"));
    if (auto none = report::no_arguments(arguments); !none) return answer(fail(none.error()));
    questions_.add(std::move(question));
}

report::OwnStatus Node::own_status(const TenantName& own, Time now) const {
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
        s.use = report::use_of(member_->tenants(), own);
        for (const local::SessionUse& use : member_->server().sessions_of(own))
            s.sessions.push_back({use.pid, use.memory_bytes, use.ops_in_flight});
        s.groups = member_->engine().groups(own);
        if (const TenantRef tenant = member_->tenants().find(own)) s.ops_in_flight = tenant->collectives;
    }
    return s;
}

}  // namespace nexar::node
