/* sleep_word.pml - [S5] Who sleeps is counted: no wake-up is lost (docs/protocol/shm.md).
 *
 * Word W grows from 0 to ROUNDS (`completion_tail`; with one round: a slot's state). Two threads wait by `waiters` and the
 * kernel's futex, each for its own value; a third waits by `bell_wanted` and a socket, as an event loop does. One waker.
 *
 * Abstracted: the entry and result that come with W (generations.pml); timeouts, signals and the daemon's death (alive.pml);
 * the yielding before the sleep, which only looks. The kernel: comparing and going to sleep are one step under the lock that
 * a wake takes, and nothing more: Linux's own barrier there is not relied on.
 *
 * A lost wake-up is a state in which everything has stopped and a waiter has not ended: an invalid end state. */
#define ROUNDS 2
#define PROCESSES 4
#define DEPTH 4
#define WORDS 3
#define W 0
#define WAITERS 1
#define BELL 2
#define POLLER 2
#define WAKER 3
#include "tso.pml"

/* Variants: */
#define NO_FENCE_IN_WAITER 1
#define NO_FENCE_IN_WAKER 2
#define NO_COMPARE_IN_KERNEL 3
#define WAKES_ONE_ONLY 4
#define NO_FENCE_IN_POLLER 5
#define LOOKS_BEFORE_ARMING 6
#define COUNTS_AFTER_THE_SLEEP 7
/* End of variants. */

bool asleep[2];
byte socket;

proctype waiter(byte me; byte target) {
    byte seen;
    if
    :: sabotage == COUNTS_AFTER_THE_SLEEP
    :: else -> ADD(me, WAITERS, 1)
    fi;
    if
    :: sabotage == NO_FENCE_IN_WAITER
    :: else -> FENCE(me)
    fi;
    do
    :: seen = LOAD(me, W);
       if
       :: seen >= target -> break
       :: else
       fi;
       atomic {
           if
           :: mem[W] == seen || sabotage == NO_COMPARE_IN_KERNEL -> asleep[me] = true
           :: else
           fi
       };
       !asleep[me];
    od;
    ADD(me, WAITERS, 255);
}

/* nexar_session_poll, then poll(2) on the session's socket. */
proctype poller() {
    byte seen;
    do
    :: STORE(POLLER, BELL, 0);
       socket = 0;
       seen = LOAD(POLLER, W);
       if
       :: seen == ROUNDS -> break
       :: else
       fi;
       STORE(POLLER, BELL, 1);
       if
       :: sabotage == NO_FENCE_IN_POLLER
       :: else -> FENCE(POLLER)
       fi;
       if
       :: sabotage == LOOKS_BEFORE_ARMING
       :: else -> seen = LOAD(POLLER, W)
       fi;
       if
       :: seen == ROUNDS -> break
       :: else
       fi;
       socket > 0;
    od
}

inline wake_sleepers() {
    if
    :: LOAD(WAKER, WAITERS) != 0 ->
        atomic {
            if
            :: sabotage != WAKES_ONE_ONLY -> asleep[0] = false; asleep[1] = false
            :: sabotage == WAKES_ONE_ONLY && asleep[0] -> asleep[0] = false
            :: sabotage == WAKES_ONE_ONLY && asleep[1] -> asleep[1] = false
            :: sabotage == WAKES_ONE_ONLY && !asleep[0] && !asleep[1]
            fi
        }
    :: else
    fi
}

proctype waker() {
    byte round;
    for (round : 1 .. ROUNDS) {
        STORE(WAKER, W, round);
        if
        :: sabotage == NO_FENCE_IN_WAKER
        :: else -> FENCE(WAKER)
        fi;
        wake_sleepers();
        if
        :: LOAD(WAKER, BELL) != 0 -> socket = 1
        :: else
        fi
    }
}

proctype memory() {
    mtype what = set;
    byte where, value;
end:
    do
    :: nempty(buffer[0]) -> drain_one(0)
    :: nempty(buffer[1]) -> drain_one(1)
    :: nempty(buffer[POLLER]) -> drain_one(POLLER)
    :: nempty(buffer[WAKER]) -> drain_one(WAKER)
    od
}

init {
    choose_sabotage();
    atomic {
        run memory();
        run waiter(0, 1);
        run waiter(1, ROUNDS);
        run poller();
        run waker();
    }
}
