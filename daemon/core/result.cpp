#include "core/result.hpp"

namespace nexar {

std::string_view name_of(Errc code) {
    switch (code) {
        case Errc::ok:
            return "OK";
        case Errc::pending:
            return "PENDING";
        case Errc::invalid_argument:
            return "INVALID_ARGUMENT";
        case Errc::bad_state:
            return "BAD_STATE";
        case Errc::unsupported:
            return "UNSUPPORTED";
        case Errc::not_found:
            return "NOT_FOUND";
        case Errc::permission:
            return "PERMISSION";
        case Errc::closed:
            return "CLOSED";
        case Errc::bad_handle:
            return "BAD_HANDLE";
        case Errc::table_full:
            return "TABLE_FULL";
        case Errc::timed_out:
            return "TIMED_OUT";
        case Errc::interrupted:
            return "INTERRUPTED";
        case Errc::no_memory:
            return "NO_MEMORY";
        case Errc::cancelled:
            return "CANCELLED";
        case Errc::mismatch:
            return "MISMATCH";
        case Errc::rank_clash:
            return "RANK_CLASH";
        case Errc::group_incomplete:
            return "GROUP_INCOMPLETE";
        case Errc::peer_lost:
            return "PEER_LOST";
        case Errc::link_lost:
            return "LINK_LOST";
        case Errc::aborted:
            return "ABORTED";
        case Errc::daemon_lost:
            return "DAEMON_LOST";
        case Errc::daemon_unresponsive:
            return "DAEMON_UNRESPONSIVE";
        case Errc::session_refused:
            return "SESSION_REFUSED";
        case Errc::protocol_error:
            return "PROTOCOL_ERROR";
        case Errc::io:
            return "IO";
        case Errc::bad_config:
            return "BAD_CONFIG";
        case Errc::bad_certificate:
            return "BAD_CERTIFICATE";
        case Errc::bad_token:
            return "BAD_TOKEN";
    }
    return "UNKNOWN";
}

}  // namespace nexar
