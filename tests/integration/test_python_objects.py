"""Messages of pickled objects: what is none is never taken for one, and one is received whole or not at all.

    node 1 ──┐
    node 2 ──┴── switch
"""
import re
import threading

from harness import *

LARGE = list(range(500_000))  # its pickle is sent in two pieces, and not eagerly


def strays():
    """What a program sends with send, where recv_object is the receive."""
    return {"empty": np.empty(0, np.uint8), "empty bytes": b"", "short": np.arange(3, dtype=np.uint8),
            "as long as a head": np.zeros(16, np.uint8), "a pickle": b"\x80\x05K\x07.", "longer than any head": np.zeros(9000, np.uint8),
            "of another dtype": np.arange(3.0)}


def receives_strays(me):
    group = me.group()
    if me.rank == 1:
        for stray in strays().values():
            group.send_object({"salary": 100}, 0, 7)
            try:
                group.send(stray, 0, 7)
            except nexar.OperationError as error:  # the receive has found out
                equal(error.name, "MISMATCH", "the sender's")
        group.send_object("the end", 0, 7)
        return None
    found = []
    for _ in strays():
        equal(group.recv_object(1, 7), ({"salary": 100}, 1, 7), "the object before")
        error = me.fails(group.recv_object, 1, 7)
        found.append((error.name, type(error.error).__name__, error.rank, error.op))
        contains(str(error.error), "use recv")
    equal(group.recv_object(), ("the end", 1, 7), "the object after")
    return found


def test_a_message_that_is_no_object_is_an_error_that_names_its_sender(cluster):
    found = run([cluster[1], cluster[1]], receives_strays)[0]
    equal(found, [("MISMATCH", "OperationError", 1, "recv_object")] * len(strays()), "errors")


def receives_early(me, ends):
    """A receive ends before its object has come: nothing was sent, or the object is set apart and its receive ends."""
    group = me.group()
    if me.rank == 1:
        me.wait_for_go()
        group.send_object(LARGE, 0, 3)
        return group.send_object("next", 0, 3)
    if ends == "before":
        failed = me.fails(group.recv_object, 1, 3, timeout=0.1)
        equal((failed.op, str(failed.error)[:11]), ("recv_object", "recv_object"), "of which function")
        ended = failed.name
        me.mark()
    else:
        me.mark()
        receive = nexar.Message.recv

        def interrupted(*given, **by_name):
            nexar.Message.recv = receive
            raise KeyboardInterrupt

        nexar.Message.recv = interrupted
        try:
            ended = str(group.recv_object(1, 3))[:100]
        except KeyboardInterrupt:
            ended = "KeyboardInterrupt"
    return ended, group.recv_object(), group.recv_object(1)


def test_an_object_stays_where_its_receive_ended_early(cluster):
    for others, ends, wanted in ((1, "before", "TIMED_OUT"), (1, "apart", "KeyboardInterrupt"), (2, "apart", "KeyboardInterrupt")):
        job = Job([cluster[1], cluster[others]], receives_early, ends)
        job[0].await_mark()
        job.go(1)
        ended, first, second = job.outcomes(0)[0]
        equal(ended, wanted, "the first receive")
        assert first == (LARGE, 1, 3), str(first)[:100]
        equal(second, ("next", 1, 3), "what follows")


def exchanges_by_threads(me, count):
    """Two threads of each rank, one tag: each object comes once, whole, and those of one thread in order."""
    group, threads = me.group(), 2
    objects = [[(thread, n, bytes(n % 3 * 5000)) for n in range(count)] for thread in range(threads)]
    if me.rank == 1:
        run_all([lambda own=own: [group.send_object(each, 0, 7) for each in own] for own in objects])
        return None
    found = [[] for _ in range(threads)]
    run_all([lambda own=own: own.extend(group.recv_object(1, 7)[0] for _ in range(count)) for own in found])
    equal(sorted(sum(found, [])), sorted(sum(objects, [])), "the objects")
    for own in found:
        for thread in range(threads):
            numbers = [n for sender, n, _ in own if sender == thread]
            equal(numbers, sorted(numbers), "the order of one sender at one receiver")
    return None


def run_all(calls):
    failed = []

    def guarded(call):
        try:
            call()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=guarded, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    equal(failed, [], "errors")


def test_threads_exchange_objects_of_one_tag(cluster):
    for other in (1, 2):
        run([cluster[1], cluster[other]], exchanges_by_threads, 100)


def steps_apart(me):
    """One rank is elsewhere in its program: its plain collectives look like what the objects travel in."""
    group = me.group()
    if me.rank == 1:
        return me.fails(group.broadcast, np.array([8], np.uint64), 0).name, me.fails(group.all_gather, np.array([8], np.uint64)).name
    return me.fails(group.bcast_object, "x", 0).name, me.fails(group.gather_object, "x").name


def test_a_plain_collective_is_never_taken_for_one_of_objects(cluster):
    equal(run([cluster[1], cluster[2]], steps_apart), [("MISMATCH", "MISMATCH")] * 2, "errors")


class Wordless(Exception):
    def __str__(self):
        raise RuntimeError("no words")


class Unpickled:
    """Its pickling raises what has no text."""

    def __reduce__(self):
        raise Wordless


def counted(count):
    """A generator, which has no length; of none it raises."""
    yield from range(count)
    if count == 0:
        raise KeyError("nothing to give")


def gives_what_fails(me):
    group = me.group()
    errors = []
    for call, given in ((group.bcast_object, Unpickled()), (group.scatter_object, counted(me.size + 1)),
                        (group.scatter_object, counted(0)), (group.scatter_object, 5)):
        try:
            call(given if me.rank == 0 else None, timeout=20)
        except Exception as error:
            errors.append((type(error).__name__, "" if isinstance(error, Wordless) else str(error)))
    equal(group.scatter_object(counted(me.size) if me.rank == 0 else None), me.rank, "of a generator")
    return errors


def test_no_rank_waits_for_one_whose_objects_cannot_be_had(cluster):
    others = [("ValueError", f"rank 0 {text}") for text in (
        "could not pickle its object: Wordless", "gave 3 objects for 2 ranks", "gave no objects: KeyError: 'nothing to give'",
        "gave no objects: TypeError: 'int' object is not iterable")]
    equal(run([cluster[1], cluster[1]], gives_what_fails), [[("Wordless", ""), *others[1:]], others], "errors")


def gives_one_that_cannot_be_pickled(me, for_rank):
    """(what scatter_object gave or raised, what the next one gives)"""
    group = me.group()
    given = [Unpickled() if rank == for_rank else rank for rank in range(me.size)] if me.rank == 0 else None
    try:
        end = group.scatter_object(given, timeout=20)
    except Exception as error:
        end = type(error).__name__
    return end, group.scatter_object([10, 11, 12] if me.rank == 0 else None)


def test_the_root_raises_what_pickling_an_object_raised_and_the_others_get_theirs(cluster):
    for for_rank in range(3):
        wanted = [["Wordless", 1, 2], ["Wordless", "ValueError", 2], ["Wordless", 1, "ValueError"]][for_rank]
        equal(run([cluster[1], cluster[1], cluster[2]], gives_one_that_cannot_be_pickled, for_rank),
              list(zip(wanted, (10, 11, 12))), f"ends, and what comes next; of rank {for_rank}'s object")


OBJECT_CALLS = {"bcast_object": ("x",), "gather_object": ("x",), "all_gather_object": ("x",), "scatter_object": ([1, 2],)}


def calls_another(me):
    """Of each: (error of the one that calls it, of the other one, which calls something else), and of one that is alone."""
    group, errors = me.group(), []
    for name, given in OBJECT_CALLS.items():
        other = {"gather_object": "all_gather_object", "bcast_object": "scatter_object"}.get(name)
        call = (lambda: getattr(group, name)(*given)) if me.rank == 0 else (
            (lambda: getattr(group, other)(*OBJECT_CALLS[other])) if other else (lambda: group.reduce(np.zeros(2))))
        errors.append(me.fails(call))
        if me.rank == 0:
            errors.append(me.fails(getattr(group, name), *given, timeout=0.2))
            me.mark()
        else:
            me.wait_for_go()
            errors.append(me.fails(getattr(group, name), *given))
    return [(each.op, str(each.error)) for each in errors]


def test_errors_of_objects_name_the_function_that_was_called(cluster):
    job = Job([cluster[1], cluster[2]], calls_another)
    for _ in OBJECT_CALLS:
        job[0].await_mark()
        job.go(1)
    ours, others = job.outcomes()
    for at, name in enumerate(OBJECT_CALLS):
        for op, text in ours[2 * at:2 * at + 2]:
            equal((op, text.split()[0]), (name, name), text)
        equal(others[2 * at + 1][0], name, "of the one that came too late")
        contains(ours[2 * at][1], "rank 0 (", f"called {name}")
        contains(others[2 * at][1], "rank 0 (", f"called {name}")
        for _, text in ours[2 * at:2 * at + 2] + others[2 * at:2 * at + 2]:
            equal(re.findall(r"\b(?:broadcast|all_gatherv?|scatterv|gatherv)\b|match_id \d+", text), [], text)


main(globals(), nodes=2)
