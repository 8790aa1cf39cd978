/* generations.pml - [S2] generations, [S4] results: one slot, used again and again (docs/protocol/shm.md).
 *
 * A client uses one slot for ROUNDS requests; another of its threads cancels whenever it likes, also requests long over. The
 * daemon's engine ends a request, and may hear of its end a second time much later (a cancelled request whose worker comes
 * back). Each request gets its own result, whole, and once.
 *
 * Abstracted: the ring is a queue into which entries drain in the order of their thread's stores (ring.pml); waiting is looking
 * until the word changes (sleep_word.pml); generations are not reduced modulo 2^24 or 2^32. */
#define ROUNDS 3
#define PROCESSES 3
#define CLIENT 0
#define CANCELLER 1
#define DAEMON 2
#define DEPTH 5
#define WORDS 3
#define STATE 0
#define RESULT 1
#define PAYLOAD 2
chan ring = [6] of { byte, byte };
#define ON_PUSH(kind, generation) ring ! kind, generation
#include "tso.pml"

/* Variants: */
#define LEDGER_FORGETS_GENERATIONS 1
#define NO_LEDGER 2
#define SAME_GENERATION_AGAIN 3
#define DONE_BEFORE_RESULT 4
#define ENTRY_BEFORE_PAYLOAD 5
/* End of variants. */

#define SUBMIT 1
#define CANCEL 2
/* A state word: generation * 4 + state. */
#define FREE 0
#define SUBMITTED 1
#define DONE 2

/* Which generation the client is at, for the canceller: what an application remembers. */
byte known;
byte times_ended[ROUNDS + 1];

inline push_entry(me, kind, generation) {
    atomic { nfull(buffer[me]); buffer[me] ! push, kind, generation }
}

proctype client() {
    byte round, generation;
    for (round : 1 .. ROUNDS) {
        generation = (sabotage == SAME_GENERATION_AGAIN -> 1 : round);
        known = generation;
        if
        :: sabotage == ENTRY_BEFORE_PAYLOAD ->
            STORE(CLIENT, STATE, generation * 4 + SUBMITTED);
            push_entry(CLIENT, SUBMIT, generation);
            STORE(CLIENT, PAYLOAD, round)
        :: else ->
            STORE(CLIENT, PAYLOAD, round);
            STORE(CLIENT, STATE, generation * 4 + SUBMITTED);
            push_entry(CLIENT, SUBMIT, generation)
        fi;
        LOAD(CLIENT, STATE) != generation * 4 + SUBMITTED;
        /* Its own end, and its own result. */
        assert(LOAD(CLIENT, STATE) == generation * 4 + DONE);
        assert(LOAD(CLIENT, RESULT) == round);
        STORE(CLIENT, STATE, generation * 4 + FREE)
    }
}

proctype canceller() {
    byte remembered, times;
    do
    :: times < 2 -> atomic { known > 0 -> remembered = known; times++ }
       push_entry(CANCELLER, CANCEL, remembered)
    :: break
    od
}

/* What the ledger says to the end of a request: SlotLedger::try_finish, then SessionCore::end. `said` stands for the result
 * of the request that ended: its payload, as it was copied when the entry was taken. */
inline finish(generation, said) {
    if
    :: (in_flight && (flying == generation || sabotage == LEDGER_FORGETS_GENERATIONS)) || sabotage == NO_LEDGER ->
        in_flight = false;
        times_ended[said]++;
        assert(times_ended[said] == 1 || sabotage != 0);
        if
        :: sabotage == DONE_BEFORE_RESULT ->
            STORE(DAEMON, STATE, generation * 4 + DONE);
            STORE(DAEMON, RESULT, said)
        :: sabotage == LEDGER_FORGETS_GENERATIONS ->
            STORE(DAEMON, RESULT, said);
            STORE(DAEMON, STATE, flying * 4 + DONE)
        :: else ->
            STORE(DAEMON, RESULT, said);
            STORE(DAEMON, STATE, generation * 4 + DONE)
        fi
    :: else
    fi
}

proctype daemon() {
    byte kind, generation, flying, taken, copied, ended, answer;
    bool in_flight;
    /* Ends on their way from the engine: generation and what it answers. */
    chan engine = [2 * ROUNDS] of { byte, byte };
end:
    do
    :: nfull(buffer[DAEMON]) && nempty(ring) ->
        ring ? kind, generation;
        if
        :: kind == SUBMIT && !in_flight && LOAD(DAEMON, STATE) == generation * 4 + SUBMITTED ->
            taken++;
            in_flight = true;
            flying = generation;
            copied = LOAD(DAEMON, PAYLOAD);
            assert(copied == taken);
            engine ! generation, copied
        :: kind == CANCEL && in_flight && flying == generation -> finish(generation, copied)
        :: else
        fi
    :: nempty(engine) && len(buffer[DAEMON]) < DEPTH - 2 ->
        engine ? ended, answer;
        finish(ended, answer)
    od
}

proctype memory() {
    mtype what = set;
    byte where, value;
end:
    do
    :: nempty(buffer[CLIENT]) -> drain_one(CLIENT)
    :: nempty(buffer[CANCELLER]) -> drain_one(CANCELLER)
    :: nempty(buffer[DAEMON]) -> drain_one(DAEMON)
    od
}

init {
    choose_sabotage();
    atomic {
        run memory();
        run client();
        run canceller();
        run daemon()
    }
}
