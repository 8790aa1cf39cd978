/* ring.pml - [S1] the submission ring, [S7] the loop sleeps only with empty rings (docs/protocol/shm.md).
 *
 * Three producers with an entry each (or two with two each), a ring of two entries that goes round, one daemon. Every entry is taken
 * once, and the daemon never sleeps for ever while one is there. Turns are counted modulo 4 here, modulo 256 there: in both
 * a ring whose every entry is overwritten in each round.
 *
 * Abstracted: several rings of one daemon (the look before the sleep is at each ring, another one leaves some out); compare-and-swaps that fail for no reason; the payload
 * behind an entry (generations.pml). The socket is a flag: one bell in it is as good as many. A producer that finds the
 * ring full rings the bell and waits for room; the library looks again every 100 us instead, which is more.
 *
 * An entry that is never taken is a state in which everything has stopped and the daemon has not ended. */
#define TOTAL_MAX 4
#define ENTRIES 2
#define PROCESSES 4
#define DAEMON 3
#define DEPTH 4
/* Words: the ring's entries, then these. */
#define WORDS 5
#define TAIL 2
#define HEAD 3
#define SLEEPING 4
#include "tso.pml"

/* Variants: */
#define NO_FENCE_IN_PRODUCER 1
#define NO_FENCE_IN_DAEMON 2
#define NO_TURN 3
#define NO_ROOM_CHECK 4
#define NO_COMPARE_AND_SWAP 5
#define NO_LAST_LOOK 6
#define NO_BELL 7
/* No sabotage, another shape. */
#define TWO_PRODUCERS 8
/* End of variants. */

/* An entry: turn * 8 + (1 + which of all entries); 0: never written. */
#define TURN(position) ((position) / ENTRIES % 4 + 1)
#define PACK(position, id) (TURN(position) * 8 + 1 + (id))

bool bell;
byte total;
byte times_taken[TOTAL_MAX];

inline ring_doorbell() {
    if
    :: sabotage == NO_FENCE_IN_PRODUCER
    :: else -> FENCE(me)
    fi;
    if
    :: LOAD(me, SLEEPING) != 0 && sabotage != NO_BELL -> bell = true
    :: else
    fi
}

/* SubmissionProducer::try_push, until there is room. */
inline push_entry(id) {
    at = mem[TAIL];
    do
    :: head = LOAD(me, HEAD);
       if
       :: at - head >= ENTRIES && sabotage != NO_ROOM_CHECK ->
           ring_doorbell();
           mem[HEAD] != head;
           at = mem[TAIL]
       :: else ->
           if
           :: sabotage == NO_COMPARE_AND_SWAP -> mem[TAIL] = at + 1; break
           :: else ->
               atomic {
                   if
                   :: mem[TAIL] == at -> mem[TAIL] = at + 1; break
                   :: else -> at = mem[TAIL]
                   fi
               }
           fi
       fi
    od;
    STORE(me, at % ENTRIES, PACK(at, id));
    ring_doorbell();
    at = 0; head = 0
}

proctype producer(byte me; byte first; byte last) {
    byte at, head, id;
    for (id : first .. last) {
        push_entry(id);
    }
}

#define IS_THERE(raw) ((raw) != 0 && ((raw) / 8 == TURN(taken) || sabotage == NO_TURN))

proctype loop() {
    byte taken, raw;
    do
    :: taken == total -> break
    :: else ->
        if
        :: raw = LOAD(DAEMON, taken % ENTRIES)
        :: skip /* another ring's turn */
        fi;
        if
        :: IS_THERE(raw) ->
            d_step {
                times_taken[raw % 8 - 1]++;
                assert(times_taken[raw % 8 - 1] == 1);
                taken++;
                raw = 0
            };
            STORE(DAEMON, HEAD, taken)
        :: else ->
            STORE(DAEMON, SLEEPING, 1);
            if
            :: sabotage == NO_FENCE_IN_DAEMON
            :: else -> FENCE(DAEMON)
            fi;
            raw = LOAD(DAEMON, taken % ENTRIES);
            if
            :: IS_THERE(raw) && sabotage != NO_LAST_LOOK
            :: else -> atomic { bell -> bell = false }
            fi;
            STORE(DAEMON, SLEEPING, 0);
            raw = 0
        fi
    od
}

proctype memory() {
    mtype what = set;
    byte where, value;
end:
    do
    :: nempty(buffer[0]) -> drain_one(0)
    :: nempty(buffer[1]) -> drain_one(1)
    :: nempty(buffer[2]) -> drain_one(2)
    :: nempty(buffer[DAEMON]) -> drain_one(DAEMON)
    od
}

init {
    choose_sabotage();
    atomic {
        run memory();
        if
        :: sabotage == TWO_PRODUCERS ->
            total = 4;
            run producer(0, 0, 1);
            run producer(1, 2, 3)
        :: else ->
            total = 3;
            run producer(0, 0, 0);
            run producer(1, 1, 1);
            run producer(2, 2, 2)
        fi;
        run loop()
    }
}
