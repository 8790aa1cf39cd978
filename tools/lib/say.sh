# shellcheck shell=bash
# What the tools print. Progress goes to stderr, so that stdout stays for results.

# fail TEXT...: one line that says what failed and what to do; ends the program.
fail() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit 1
}

# The steps of a set-up: `step TEXT` prints [2/5] TEXT. step_total is set by whoever plans the steps.
step_number=0
step_total=0
step() {
    step_number=$((step_number + 1))
    printf '[%d/%d] %s\n' "$step_number" "$step_total" "$*" >&2
}

# quietly LOG WHAT COMMAND...: runs the command with its output in LOG; a failure names WHAT and the log.
quietly() {
    local log=$1 what=$2
    shift 2
    if ! "$@" </dev/null >"$log" 2>&1; then
        printf '%s\n' "--- the end of $log ---" >&2
        tail -n 8 "$log" >&2
        fail "$what failed; the whole log is $log"
    fi
}
