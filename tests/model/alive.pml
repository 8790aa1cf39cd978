/* alive.pml - [S8] the daemon's death: the kernel wakes one sleeper, which passes it on (docs/protocol/shm.md).
 *
 * Three threads of one process, each asleep on two words by futex_waitv: its own slot's word and `alive`. The daemon ends
 * the first one's operation, or does not, and dies, or stops in order. Everybody ends.
 *
 * The kernel, as it is: a wake on one word marks the thread as woken, but the thread leaves the *other* word's queue only when it
 * runs again. Until then a wake of one on that word may be spent on it. So a thread that its own word woke may be the only one
 * that the death will ever wake, and has to look at `alive` before it goes.
 *
 * Abstracted: store buffers (the words change before the kernel wakes, under its locks); the watchdog by ticks [S9], which
 * would end a missed sleep later. A thread left asleep is an invalid end state. */
#define THREADS 3

/* Variants: */
#define NOT_PASSED_ON 1
#define LOOKS_AT_ITS_OWN_WORD_ONLY 2
#define NO_WAITERS_BIT 3
#define NO_COMPARE_IN_KERNEL 4
/* End of variants. */

byte sabotage;
bool slot_ended[THREADS];
bool gone; /* `alive` says so */
/* Queued on either word; woken: to run again. */
bool on_slot[THREADS];
bool on_alive[THREADS];
bool woken[THREADS];

inline wake_all_alive() {
    d_step {
        for (i : 0 .. THREADS - 1) {
            if
            :: on_alive[i] -> on_alive[i] = false; woken[i] = true
            :: else
            fi
        }
        i = 0
    }
}

proctype waiter(byte me) {
    byte i;
    bool seen_gone;
    do
    :: slot_ended[me] && sabotage == LOOKS_AT_ITS_OWN_WORD_ONLY -> break
    :: else ->
        if
        :: gone ->
            if
            :: sabotage == NOT_PASSED_ON
            :: else -> wake_all_alive()
            fi;
            break
        :: else -> skip
        fi;
        if
        :: slot_ended[me] -> break
        :: else
        fi;
        /* futex_waitv: queues on each word, comparing it under its lock; then sleeps unless woken meanwhile. */
        woken[me] = false;
        atomic {
            if
            :: !slot_ended[me] || sabotage == NO_COMPARE_IN_KERNEL -> on_slot[me] = true
            :: else -> woken[me] = true
            fi
        };
        atomic {
            if
            :: !gone || sabotage == NO_COMPARE_IN_KERNEL -> on_alive[me] = true
            :: else -> woken[me] = true
            fi
        };
        woken[me];
        on_slot[me] = false;
        on_alive[me] = false
    od
}

proctype daemon() {
    byte i;
    if
    :: slot_ended[0] = true;
       atomic {
           if
           :: on_slot[0] -> on_slot[0] = false; woken[0] = true
           :: else
           fi
       }
    :: skip
    fi;
    gone = true;
    if
    :: wake_all_alive() /* STOPPED, in order */
    :: sabotage != NO_WAITERS_BIT -> /* the kernel's hand: one, whoever */
        atomic {
            if
            :: on_alive[0] -> on_alive[0] = false; woken[0] = true
            :: on_alive[1] -> on_alive[1] = false; woken[1] = true
            :: on_alive[2] -> on_alive[2] = false; woken[2] = true
            :: !on_alive[0] && !on_alive[1] && !on_alive[2]
            fi
        }
    :: sabotage == NO_WAITERS_BIT
    fi
}

init {
    c_code { now.sabotage = getenv("SABOTAGE") ? atoi(getenv("SABOTAGE")) : 0; }
    atomic {
        run waiter(0);
        run waiter(1);
        run waiter(2);
        run daemon()
    }
}
