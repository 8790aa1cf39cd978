"""Wrong calls of the Python package: what it says has Python's names, and says what to do."""
import re

from harness import *


def wrong_calls(me):
    """{a part of the text: all of it}"""
    group, x = me.group(), np.zeros(4)
    twice = np.zeros((4, 4))[:, 1]
    calls = {"op=\"premul_sum\"": lambda: group.all_reduce(x, scalar=2.0), "scalar=": lambda: group.all_reduce(x, op="premul_sum"),
             "nexar.ANY_TAG": lambda: group.send(x, 1 - me.rank, nexar.ANY_TAG), "nexar.Priority.BULK": lambda: group.barrier(priority=7),
             "timeout= is 0": lambda: group.barrier(timeout=0), "a positive number of seconds": lambda: group.barrier(timeout=0),
             "nexar.FLAG_DETERMINISTIC": lambda: group.all_reduce(x, flags=99),
             "cannot be sent to nexar.ANY_SOURCE": lambda: group.send(x, nexar.ANY_SOURCE),
             "source is -1; allowed: an integer, 0 to the group's size - 1": lambda: group.recv(x, -1),
             "root is 2; allowed: 0 to 1": lambda: group.broadcast(x, 2), "root is 3; allowed: 0 to 1": lambda: group.gather(x, root=3),
             "to is 2; allowed: 0 to 1": lambda: group.send(x, 2), "source is 2; allowed: 0 to 1, or nexar.ANY_SOURCE": lambda: group.recv(x, 2),
             "source is 3; allowed: 0 to 1, or nexar.ANY_SOURCE": lambda: group.probe(3),
             "size - 1, or nexar.ANY_SOURCE": lambda: group.recv(x, -1),
             "values is not C-contiguous: give np.ascontiguousarray(values)": lambda: group.all_gather(twice),
             "out is not C-contiguous": lambda: group.all_reduce(x, twice), "values is read-only": lambda: group.broadcast(b"1234", 1 - me.rank),
             "values is of another byte order": lambda: group.send(x.astype(">f8"), 1 - me.rank),
             "requests[0] is 3; allowed: a nexar.Request, or None": lambda: nexar.wait_all([3]), "requests[0] is 'a'; allowed": lambda: nexar.wait_any("a")}
    texts = {}
    for word, call in calls.items():
        try:
            raise AssertionError(f"{word}: it gave {call()}")
        except (nexar.Error, ValueError, TypeError) as error:
            texts[word] = str(error)
    group.barrier()
    return texts


def test_errors_have_the_names_of_python(cluster):
    for texts in run([cluster[1], cluster[1]], wrong_calls):
        for word, text in texts.items():
            contains(text, word)
            equal(re.findall(r"nexar_\w+|NULL|NEXAR_\w+|milliseconds", text), [], text)


def starts_what_cannot_be_started(me):
    """[(op, text)]: of start() of one that is pending, also while it alone is in an array; and of one whose group was freed."""
    group = me.group()
    step = group.recv_init(np.zeros(1), 1 - me.rank)
    step.start()
    errors = [me.fails(step.start), me.fails(nexar.start_all, [None, step])]
    group.free()
    me.fails(step.wait)
    return [(each.op, str(each.error)) for each in (*errors, me.fails(step.start), me.fails(nexar.start_all, [step]))]


def test_a_start_is_named_as_it_was_called(cluster):
    for errors in run([cluster[1], cluster[1]], starts_what_cannot_be_started):
        for called, (op, text) in zip(("start", "start_all") * 2, errors):
            equal((op, text.split(":")[0]), (called, called), text)
            equal("of the array" in text, called == "start_all", text)


main(globals(), nodes=1)
