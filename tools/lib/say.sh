# shellcheck shell=bash
# What the tools print. Progress goes to stderr, so that stdout stays for results.

# fail TEXT...: one line with what failed and what to do; ends the program.
fail() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit 1
}

# The steps of a set-up: `step TEXT` prints [2/5] TEXT. The caller that plans the steps sets step_total.
step_number=0
step_total=0
step() {
    step_number=$((step_number + 1))
    printf '[%d/%d] %s\n' "$step_number" "$step_total" "$*" >&2
}

# why LOG: the first line of a log that looks like a reason, for people who will not open the log.
why() {
    grep -aE '^(E|error|curl|CMake Error)[:( ]|: (fatal )?error:|FAILED' "$1" | head -n 1 | cut -c 1-160
}

# quietly LOG WHAT COMMAND...: runs the command with its output in LOG. A failure is one line: what failed (WHAT may
# hold advice after a semicolon), why, and where the log is.
quietly() {
    local log=$1 what=${2%%;*} advice=
    case $2 in *";"*) advice="${2#*;};" ;; esac
    shift 2
    if ! "$@" </dev/null >"$log" 2>&1; then
        fail "$what failed: $(why "$log" || printf 'no reason given');$advice log: $log"
    fi
}
