/* given_up.pml - [S15] a daemon that was given up serves that session in no turn that begins after the verdict
 * (docs/protocol/shm.md).
 *
 * The client finds the tick standing still for a second, twice at most; the daemon has some turns, in which it may have been
 * stopped anywhere. Time: in a turn that begins after that second, the tick is due if it is still the one that stood still; in
 * any other turn it may be due or not.
 *
 * Abstracted: the shut down socket, which only wakes the daemon; what a turn serves. */
#define PROCESSES 2
#define DEPTH 4
#define WORDS 2
#define TICK 0
#define GIVEN_UP 1
#define CLIENT 0
#define DAEMON 1
#define TURNS 3
#include "tso.pml"

/* Variants: */
#define NO_FENCE_IN_CLIENT 1
#define NO_FENCE_IN_DAEMON 2
#define ONE_LOOK_AT_THE_TICK 3
#define NO_LOOK_AFTER_THE_TICK 4
#define NO_LOOK_BEFORE_THE_REST 5
/* End of variants. */

bool stood_still; /* for a second, at the value below */
byte still_at;
bool verdict;

proctype client() {
    byte seen, tries;
    for (tries : 1 .. 2) {
        seen = LOAD(CLIENT, TICK);
        atomic { stood_still = true; still_at = seen };
        STORE(CLIENT, GIVEN_UP, 1);
        if
        :: sabotage == NO_FENCE_IN_CLIENT
        :: else -> FENCE(CLIENT)
        fi;
        if
        :: LOAD(CLIENT, TICK) == seen || sabotage == ONE_LOOK_AT_THE_TICK -> verdict = true; break
        :: else -> STORE(CLIENT, GIVEN_UP, 0)
        fi
    }
}

inline look() {
    if
    :: LOAD(DAEMON, GIVEN_UP) != 0 -> ended = true
    :: else
    fi
}

proctype daemon() {
    byte turn, tick;
    bool late, due, ended;
    for (turn : 1 .. TURNS) {
        atomic {
            late = verdict;
            if
            :: due = true
            :: !(stood_still && still_at == tick) -> due = false
            fi
        };
        if
        :: due && sabotage != NO_LOOK_BEFORE_THE_REST -> look()
        :: else
        fi;
        assert(!late || ended); /* it serves peers and rings */
        if
        :: due ->
            tick++;
            STORE(DAEMON, TICK, tick);
            if
            :: sabotage == NO_FENCE_IN_DAEMON
            :: else -> FENCE(DAEMON)
            fi;
            if
            :: sabotage == NO_LOOK_AFTER_THE_TICK
            :: else -> look()
            fi
        :: else
        fi
    }
}

proctype memory() {
    mtype what = set;
    byte where, value;
end:
    do
    :: nempty(buffer[CLIENT]) -> drain_one(CLIENT)
    :: nempty(buffer[DAEMON]) -> drain_one(DAEMON)
    od
}

init {
    choose_sabotage();
    atomic {
        run memory();
        run client();
        run daemon();
    }
}
