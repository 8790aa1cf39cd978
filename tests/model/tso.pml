/* tso.pml - shared memory as processors show it: every process has a store buffer, first in first out, that drains into
 * memory at any later moment (TSO, as x86; Sewell et al., CACM 53(7), 2010). Included by the models.
 *
 * A release store and an acquire load are plain here, as on x86: the buffer keeps the order. A seq_cst fence waits until
 * the own buffer is empty. A relaxed read-modify-write whose result is not used goes through the buffer too, which is
 * weaker than x86's locked instructions and what AArch64 allows: so a model does not owe its proof to an instruction that
 * the C++ text does not ask for.
 *
 * The including file defines PROCESSES, WORDS and DEPTH (a bound of the buffers: no process has more stores on their way).
 * The environment variable SABOTAGE chooses the variant; see check.py. */

byte sabotage;

/* c_code: one compiled verifier serves all variants. */
inline choose_sabotage() {
    c_code { now.sabotage = getenv("SABOTAGE") ? atoi(getenv("SABOTAGE")) : 0; }
}

mtype = { set, add, push };

byte mem[WORDS];
chan buffer[PROCESSES] = [DEPTH] of { mtype, byte, byte };
/* What a process reads from its own buffer: the newest of its stores to that word, while any is on its way. */
byte on_their_way[PROCESSES * WORDS];
byte newest[PROCESSES * WORDS];

#define LOAD(p, a) (on_their_way[(p) * WORDS + (a)] -> newest[(p) * WORDS + (a)] : mem[a])

inline STORE(p, a, v) {
    d_step {
        assert(nfull(buffer[p]));
        buffer[p] ! set, a, v;
        on_their_way[(p) * WORDS + (a)]++;
        newest[(p) * WORDS + (a)] = v;
    }
}

inline ADD(p, a, v) {
    d_step {
        assert(nfull(buffer[p]));
        buffer[p] ! add, a, v;
    }
}

inline FENCE(p) { empty(buffer[p]) }

/* One store of process p reaches memory. ON_PUSH(slot, value): what a ring entry does there, for models with a ring. */
#ifndef ON_PUSH
#define ON_PUSH(where, what) assert(false)
#endif
inline drain_one(p) {
    d_step {
        buffer[p] ? what, where, value;
        if
        :: what == set ->
            mem[where] = value;
            on_their_way[(p) * WORDS + where]--;
            if
            :: on_their_way[(p) * WORDS + where] == 0 -> newest[(p) * WORDS + where] = 0
            :: else
            fi
        :: what == add -> mem[where] = mem[where] + value
        :: what == push -> ON_PUSH(where, value)
        fi;
        what = set; where = 0; value = 0;
    }
}
