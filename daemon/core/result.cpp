#include "core/result.hpp"

namespace nexar {

std::string_view name_of(Errc code) {
    switch (code) {
#define NEXAR_NAME(value, name) \
    case Errc::value:           \
        return name;
        NEXAR_NAME(ok, "OK")
        NEXAR_NAME(pending, "PENDING")
        NEXAR_NAME(call, "CALL")
        NEXAR_NAME(invalid_argument, "INVALID_ARGUMENT")
        NEXAR_NAME(bad_state, "BAD_STATE")
        NEXAR_NAME(unsupported, "UNSUPPORTED")
        NEXAR_NAME(not_found, "NOT_FOUND")
        NEXAR_NAME(permission, "PERMISSION")
        NEXAR_NAME(closed, "CLOSED")
        NEXAR_NAME(bad_handle, "BAD_HANDLE")
        NEXAR_NAME(retry, "RETRY")
        NEXAR_NAME(table_full, "TABLE_FULL")
        NEXAR_NAME(no_memory, "NO_MEMORY")
        NEXAR_NAME(interrupted, "INTERRUPTED")
        NEXAR_NAME(not_sent, "NOT_SENT")
        NEXAR_NAME(device_no_memory, "DEVICE_NO_MEMORY")
        NEXAR_NAME(operation, "OPERATION")
        NEXAR_NAME(timed_out, "TIMED_OUT")
        NEXAR_NAME(cancelled, "CANCELLED")
        NEXAR_NAME(aborted, "ABORTED")
        NEXAR_NAME(mismatch, "MISMATCH")
        NEXAR_NAME(maybe_executed, "MAYBE_EXECUTED")
        NEXAR_NAME(no_such_function, "NO_SUCH_FUNCTION")
        NEXAR_NAME(handler_failed, "HANDLER_FAILED")
        NEXAR_NAME(device_failed, "DEVICE_FAILED")
        NEXAR_NAME(open, "OPEN")
        NEXAR_NAME(rank_clash, "RANK_CLASH")
        NEXAR_NAME(group_incomplete, "GROUP_INCOMPLETE")
        NEXAR_NAME(options_differ, "OPTIONS_DIFFER")
        NEXAR_NAME(join_refused, "JOIN_REFUSED")
        NEXAR_NAME(recoverable, "RECOVERABLE")
        NEXAR_NAME(group_changed, "GROUP_CHANGED")
        NEXAR_NAME(no_quorum, "NO_QUORUM")
        NEXAR_NAME(recovery_timed_out, "RECOVERY_TIMED_OUT")
        NEXAR_NAME(recovery_misused, "RECOVERY_MISUSED")
        NEXAR_NAME(checkpoint_timed_out, "CHECKPOINT_TIMED_OUT")
        NEXAR_NAME(group, "GROUP")
        NEXAR_NAME(peer_lost, "PEER_LOST")
        NEXAR_NAME(link_lost, "LINK_LOST")
        NEXAR_NAME(below_minimum, "BELOW_MINIMUM")
        NEXAR_NAME(expelled, "EXPELLED")
        NEXAR_NAME(session, "SESSION")
        NEXAR_NAME(daemon_lost, "DAEMON_LOST")
        NEXAR_NAME(daemon_unresponsive, "DAEMON_UNRESPONSIVE")
        NEXAR_NAME(session_refused, "SESSION_REFUSED")
        NEXAR_NAME(protocol_error, "PROTOCOL_ERROR")
        NEXAR_NAME(system, "SYSTEM")
        NEXAR_NAME(io, "IO")
        NEXAR_NAME(bad_config, "BAD_CONFIG")
        NEXAR_NAME(bad_certificate, "BAD_CERTIFICATE")
        NEXAR_NAME(bad_token, "BAD_TOKEN")
#undef NEXAR_NAME
    }
    return "UNKNOWN";
}

std::optional<Errc> failure_from(int32_t number) {
    const auto code = static_cast<Errc>(number);
    if (number > static_cast<int32_t>(Errc::call)) return {};
    if (name_of(code) != "UNKNOWN") return code;
    const auto general = static_cast<Errc>(number / 100 * 100);
    if (name_of(general) == "UNKNOWN") return {};
    return general;
}

}  // namespace nexar
