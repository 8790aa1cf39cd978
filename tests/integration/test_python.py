"""The Python package with daemons, two nodes: both ways of a call, kinds of memory, objects, asyncio, exceptions.

    node 1 ──┐
    node 2 ──┴── switch
"""
import array
import asyncio
import concurrent.futures
import ctypes
import gc
import importlib.util
import inspect
import os
import pathlib
import pickle
import re
import signal
import subprocess
import sys
import threading
import time

from harness import *
from harness.states import ends_before, in_collective
from nexar import _quick


def mine(rank, count, dtype="float64"):
    """Distinct for each rank and position."""
    return (np.arange(count) * 7 + rank * 1000 + 1).astype(dtype)


class Tensor:
    """What torch.Tensor is to nexar: DLPack and nothing else. (torch itself is too large for the tests.)"""

    def __init__(self, values):
        self.values = values

    def __dlpack__(self):
        return self.values.__dlpack__()

    def __dlpack_device__(self):
        return self.values.__dlpack_device__()


class BFloat16Tensor:
    """The same of a type that numpy lacks: a capsule made by hand, over an array of uint16."""

    class Managed(ctypes.Structure):
        _fields_ = [*nexar._arrays._DLTensor._fields_, ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]

    def __init__(self, bits):
        self.shape_, self.bits = (ctypes.c_int64 * 1)(bits.size), bits
        self.tensor = self.Managed(bits.ctypes.data, 1, 0, 1, 4, 16, 1, self.shape_, None, 0)

    def __dlpack__(self):
        make = ctypes.pythonapi.PyCapsule_New
        make.argtypes, make.restype = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p], ctypes.py_object
        return make(ctypes.addressof(self.tensor), b"dltensor", None)

    def __dlpack_device__(self):
        return 1, 0


# ---- Operations ----

class Begun:
    """A group whose blocking forms are their _start and its wait."""

    def __init__(self, group):
        self.group = group

    def __getattr__(self, name):
        begin = getattr(self.group, name if name.endswith("_start") else f"{name}_start")
        return begin if name.endswith("_start") else lambda *values, **given: begin(*values, **given).wait()


def every_operation(me, quick, begun):
    """Each on plain arrays, by the quick way or by the general one, waited for or begun."""
    group, n = Begun(me.group()) if begun else me.group(), 5
    given = {} if quick else {"match_id": 3}
    if not quick:
        for way in ("nothing", "data", "sides", "packed", "message", "exchange", "probe", "mprobe", "mrecv"):
            setattr(_quick, way, _quick._not_here)
    ranks, size = range(me.size), me.size
    x, all_of = mine(me.rank, n), np.array([mine(r, n) for r in range(me.size)])
    wide = np.array([mine(r, n * size) for r in ranks])
    own = slice(me.rank * n, (me.rank + 1) * n)
    same = np.testing.assert_array_equal
    group.barrier(**given)
    same(group.all_reduce(x.copy(), **given), all_of.sum(0))
    out = np.zeros(n)
    assert group.all_reduce(x, out, "max", **given) is out
    same(out, all_of.max(0))
    for root in ranks:
        got = group.reduce(x, np.zeros(n), root=root, **given)
        same(got, all_of.sum(0)) if me.rank == root else equal(got, None, "reduce elsewhere")
        same(group.broadcast(x.copy(), root, **given), all_of[root])
        got = group.gather(x, np.zeros((size, n)) if me.rank == root else None, root, **given)
        same(got, all_of) if me.rank == root else equal(got, None, "gather elsewhere")
        got = group.gather(x, root=root, **given)
        same(got, all_of) if me.rank == root else equal(got, None, "gather elsewhere")
        same(group.scatter(wide[me.rank] if me.rank == root else None, np.zeros(n), root, **given), wide[root][own])
    same(group.all_gather(x, np.zeros((size, n)), **given), all_of)
    same(group.all_gather(x, **given), all_of)
    same(group.reduce_scatter(wide[me.rank], np.zeros(n), **given), wide.sum(0)[own])
    same(group.all_to_all(wide[me.rank], np.zeros(n * size), **given), wide[:, own].ravel())
    same(group.scan(x, np.zeros(n), **given), all_of[:me.rank + 1].sum(0))
    same(group.exclusive_scan(x, np.full(n, 7.0), **given), all_of[:me.rank].sum(0))
    counts = [r + 1 for r in ranks]
    same(group.all_gatherv(mine(me.rank, me.rank + 1), counts, **given), np.concatenate([mine(r, r + 1) for r in ranks]))
    for dtype in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "bool"):
        same(group.all_reduce(mine(me.rank, 3, dtype), op="max", **given), np.max([mine(r, 3, dtype) for r in ranks], 0))
    after = {} if quick else {"timeout": 20}
    to, source = (me.rank + 1) % size, (me.rank - 1) % size
    sending = group.send_start(x, to, 7)
    got = np.zeros(n + 2)
    equal(group.recv(got, source, 7, **after), (source, 7, n), "received")
    same(got[:n], all_of[source])
    sending.wait()
    receiving = group.recv_start(got, source, 8)
    group.send(x, to, 8, **after)
    receiving.wait()
    sending = group.send_start(x, to, 9)
    equal(group.probe(source, 9, **after), (source, 9, 8 * n), "probed")
    probed, got[:] = getattr(group, "group", group).mprobe(source, 9), 0
    equal((probed.source, probed.tag, probed.bytes), (source, 9, 8 * n), "set apart")
    equal(probed.recv(got) if quick else probed.recv_start(got).wait(), (source, 9, n), "received")
    same(got[:n], all_of[source])
    sending.wait()
    return "right"


def test_every_operation_gives_what_numpy_gives_by_both_ways(cluster):
    """[P19] Distinct values for each rank and position; blocking forms, and those that are begun."""
    for quick in {_quick._native is not None, False}:
        for begun in (False, True):
            for placement in ([1, 1], [1, 2, 1], [2, 1, 1, 2]):
                equal(set(run([cluster[n] for n in placement], every_operation, quick, begun)), {"right"}, f"quick: {quick}, begun: {begun}")


def other_memory(me):
    group, ranks = me.group(), range(me.size)
    same = np.testing.assert_array_equal
    total = sum(mine(r, 4) for r in ranks)
    numbers = array.array("d", mine(me.rank, 4))
    assert group.all_reduce(numbers) is numbers
    same(numbers, total)
    tensor = Tensor(mine(me.rank, 4))
    assert group.all_reduce(tensor) is tensor
    same(tensor.values, total)
    same(group.all_gather(Tensor(mine(me.rank, 4))), [mine(r, 4) for r in ranks])
    bits = np.array([0x3F80 + 0x80 * me.rank], np.uint16)  # 1, 2, 4, ... as bfloat16
    group.all_reduce(BFloat16Tensor(bits), op="max")
    equal(int(bits[0]), 0x3F80 + 0x80 * (me.size - 1), "bfloat16")
    complex_of = [mine(r, 4) + 1j * (mine(r, 4) + r) for r in ranks]
    given = complex_of[me.rank].copy()
    group.all_reduce(given.view(np.float64))
    same(given, sum(complex_of))
    own = complex_of[me.rank].view(np.float64)  # a product, which nexar has not of complex numbers
    same(np.multiply.reduce(group.all_gather(own).view(np.complex128)), np.multiply.reduce(complex_of))
    text = bytearray(b"rank %d" % me.rank)
    group.broadcast(memoryview(text), root=1)
    equal(bytes(text), b"rank 1", "a buffer")
    equal(group.all_reduce(me.rank + 1), sum(r + 1 for r in ranks), "a number")
    equal(group.all_reduce(me.rank == 1, op="lor"), True, "a truth value")
    equal(group.all_reduce([me.rank, 2.5]), [sum(ranks), 2.5 * me.size], "a list")
    equal(group.all_gather(me.rank * 10), [r * 10 for r in ranks], "numbers")
    equal(group.all_to_all([me.rank * 10 + r for r in ranks]), [r * 10 + me.rank for r in ranks], "lists")
    for wrong in (1 << 63, 1 << 70, -(1 << 70)):
        for call in (group.all_reduce, lambda given: group.all_reduce_start(given).wait(), group.all_gather, lambda given: group.send(given, 0)):
            try:
                raise AssertionError(f"{wrong} gave {call(wrong)}")
            except OverflowError as error:
                contains(str(error), "is no value of int64")
    equal(group.all_reduce(np.uint64(1 << 63), op="max"), 1 << 63, "a number of numpy's")
    equal(group.all_reduce([2.0**70, 1.5], op="max"), [2.0**70, 1.5], "large floats")
    return True


def test_buffers_tensors_numbers_and_lists_work_and_are_not_copied(cluster):
    """[U18]"""
    equal(run([cluster[1], cluster[2], cluster[1]], other_memory), [True] * 3, "ranks")


def refusal(call):
    """The ValueError that it raises."""
    try:
        call()
    except ValueError as error:
        return error
    return None


def objects(me):
    group, ranks = me.group(), range(me.size)
    def thing(r):
        return {"rank": r, "long": "x" * (10000 * r), "set": {r, "a"}}
    for root in ranks:
        equal(group.bcast_object(thing(root) if me.rank == root else None, root), thing(root), "bcast_object")
        equal(group.gather_object(thing(me.rank), root), [thing(r) for r in ranks] if me.rank == root else None, "gather")
        mine_of = [thing(r + root) for r in ranks] if me.rank == root else None
        equal(group.scatter_object(mine_of, root), thing(me.rank + root), "scatter_object")
    for wrong in ([1], None, [1] * (me.size + 1)):
        contains(str(refusal(lambda wrong=wrong: group.scatter_object(wrong, root=1))), "rank 1 gave ", f" objects for {me.size} ranks")
    equal(group.all_gather_object(thing(me.rank)), [thing(r) for r in ranks], "all_gather_object")
    if me.rank == 0:
        for r in ranks[1:]:
            got = group.recv_object(r)
            equal(got, (thing(r), r, r + 5), "recv_object")
    else:
        group.send_object(thing(me.rank), 0, me.rank + 5)
    try:  # a lambda cannot be pickled
        group.bcast_object(lambda: 0, root=1)
    except Exception as error:
        failed = type(error).__name__, str(error)
    group.barrier()  # and all are in step
    return failed


def test_objects_of_any_size_arrive_and_one_that_cannot_be_pickled_is_an_error_on_all_ranks(cluster):
    """[U18]"""
    outcomes = run([cluster[1], cluster[2], cluster[2]], objects)
    for rank in (0, 2):
        equal(outcomes[rank][0], "ValueError", "the others'")
        contains(outcomes[rank][1], "rank 1 could not pickle its object")


# ---- asyncio ----

def awaits(me):
    group = me.group()

    async def work():
        requests = [group.all_reduce_start(mine(me.rank, 3) + step) for step in range(20)]
        ticks = asyncio.create_task(ticking())
        got = await asyncio.gather(*requests)
        for step, result in enumerate(got):
            np.testing.assert_array_equal(result, sum(mine(r, 3) + step for r in range(me.size)))
        given_up = group.recv_start(np.zeros(1), (me.rank + 1) % me.size, 99)  # that nobody sends
        given_up.future().cancel()
        try:
            await group.recv_start(np.zeros(1), (me.rank + 1) % me.size, 98, timeout=0.2)
        except TimeoutError as error:
            late = error.name
        ticks.cancel()
        if me.rank == 0:
            await asyncio.sleep(0.3)  # sleep: the others wait in their event loops meanwhile
        await group.barrier_start()
        return late, me.fails(given_up.wait, 10).name

    async def ticking():
        while True:
            await asyncio.sleep(0.01)  # sleep: another task of the loop

    return *asyncio.run(work()), len(group._connection.readers)


def test_requests_can_be_awaited_and_the_loop_goes_on_meanwhile(cluster):
    """[U18]"""
    equal(run([cluster[1], cluster[2], cluster[1]], awaits), [("TIMED_OUT", "CANCELLED", 0)] * 3, "late; given up; readers that are left")


def with_futures(me):
    group, beside = me.group(), (me.rank + 1) % me.size
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        futures = {group.all_reduce_start(mine(me.rank, 3) + step).concurrent_future(): step for step in range(5)}
        futures[pool.submit(lambda: mine(0, 3))] = None
        for future in concurrent.futures.as_completed(futures, 20):
            if futures[future] is not None:
                np.testing.assert_array_equal(future.result(), sum(mine(r, 3) + futures[future] for r in range(me.size)))
    late = group.recv_start(np.zeros(1), beside, 98, timeout=0.2).concurrent_future()
    pending = group.recv_start(np.zeros(1), beside, 99)
    given_up = pending.concurrent_future()
    assert given_up.cancel() and not concurrent.futures.wait([given_up], 20).not_done
    assert not late.cancel() or late.cancelled()
    names = me.fails(pending.wait, 20).name, given_up.cancelled(), type(late.exception(20)).__name__ if not late.cancelled() else "TimedOut"
    group.barrier()
    return names


def test_requests_are_futures_of_threads_too(cluster):
    """[U18]"""
    equal(run([cluster[1], cluster[2]], with_futures), [("CANCELLED", True, "TimedOut")] * 2, "ends")


def with_torch(me):
    import torch
    group, ranks = me.group(), range(me.size)
    for dtype in (torch.float32, torch.float64, torch.int64, torch.float16, torch.bfloat16):
        tensor = (torch.arange(6).reshape(2, 3) + 8 * me.rank).to(dtype)
        address = tensor.data_ptr()
        assert group.all_reduce(tensor) is tensor and tensor.data_ptr() == address
        assert torch.equal(tensor, sum(torch.arange(6).reshape(2, 3) + 8 * r for r in ranks).to(dtype)), tensor
    parameter = torch.nn.Parameter(torch.full((4,), float(me.rank)))
    group.all_reduce(parameter.data, op="max")
    assert torch.equal(parameter.data, torch.full((4,), float(me.size - 1))), parameter
    try:
        group.all_reduce(torch.zeros(4, 4).t()[:, ::2])
    except ValueError as error:
        return str(error)
    return None


def test_torch_tensors_are_summed_without_a_copy(cluster):
    """[U18] Real ones where torch is installed; elsewhere the stand-ins above."""
    if importlib.util.find_spec("torch") is None:
        return "skipped: torch is not installed; the stand-ins with DLPack have to do"
    for answer in run([cluster[1], cluster[2]], with_torch):
        contains(answer, "contiguous")
    return None


def calls_back(me):
    group, ended = me.group(), []
    request = group.all_reduce_start(mine(me.rank, 3))
    request.add_done_callback(lambda r: ended.append(r.completion.name))
    request.wait()
    request.add_done_callback(lambda r: ended.append("later"))
    return ended


def test_callbacks_are_called_at_the_end_and_at_once_when_it_has_ended(cluster):
    equal(run([cluster[1], cluster[2]], calls_back), [["OK", "later"]] * 2, "what was called")


# ---- Requests, errors, Ctrl-C ----

def drops(me):
    session = me.session(slots=16)
    group = me.group(session)
    for _ in range(100):  # of 16 slots
        group.recv_start(np.zeros(1), 1 - me.rank, 5)
    gc.collect()
    group.barrier()
    return group.all_reduce(me.rank)


def test_a_dropped_request_frees_its_slot(cluster):
    """[U18] In 0.1.0 it leaked."""
    equal(run([cluster[1], cluster[2]], drops), [1, 1], "sums")


def is_late(me):
    group = me.group()
    me.mark()
    if me.rank == 1:
        me.wait_for_go()
    try:
        group.barrier(timeout=0.2)
    except nexar.Error as error:
        again = pickle.loads(pickle.dumps(error))
        return (type(error).__name__, isinstance(error, TimeoutError), error.rank, str(error) == str(again),
                again.rank == error.rank, again.host == error.host)
    return None


def test_a_deadline_is_a_TimeoutError_that_pickles(cluster):
    """[U18]"""
    job = Job([cluster[1], cluster[2]], is_late)
    job.await_marks()
    equal(job.outcomes(0)[0], ("TimedOut", True, 1, True, True, True), "the error")
    job.go(1)
    job.outcomes(1)


def interrupted(me, quick):
    signal.signal(signal.SIGINT, signal.default_int_handler)
    group = me.group()
    group.barrier()
    me.mark()
    if me.rank == 1:
        me.wait_for_go()
        return me.fails(group.barrier).name
    try:
        group.barrier() if quick else group.barrier(match_id=0, timeout=25)
    except KeyboardInterrupt:
        me.mark()
    group.barrier()
    return "next"


def test_ctrl_c_ends_a_wait_on_all_ranks_and_the_next_operation_works(cluster):
    for quick in (True, False):
        job = Job([cluster[1], cluster[2]], interrupted, quick)
        job.await_marks()
        eventually(lambda: in_collective(job, 0), "rank 0 to wait")  # before that Ctrl-C would end the test function itself
        job[0].kill(signal.SIGINT)
        job[0].await_mark()
        eventually(lambda: ends_before(job, 1), "rank 1's node to know of the cancel")  # a call before that may succeed
        job.go(1)
        equal(job.outcomes(1), ["ABORTED"], "rank 1")
        job[0].kill()


def raises(me):
    group = me.group()
    group.barrier()
    if me.rank == 1:
        try:
            with group:
                raise ValueError("row 7 is empty")
        except ValueError:
            return None
    errors = [me.fails(group.all_reduce, np.zeros(3)), me.fails(group.barrier)]
    return [(error.name, error.rank, error.text.split("lost: ")[1]) for error in errors]


def test_a_rank_that_leaves_by_an_exception_aborts_its_group_with_its_text(cluster):
    """[U18] [F22] In 0.1.0 the others read that it had freed the group."""
    for nodes in ([1, 1, 1], [1, 2, 1]):
        outcomes = run([cluster[n] for n in nodes], raises)
        for rank in (0, 2):
            equal(outcomes[rank], [("PEER_LOST", 1, "it aborted the group: ValueError: row 7 is empty")] * 2, "the others")


PROGRAM = """
import asyncio, concurrent.futures, signal, sys, threading, nexar
session = nexar.Session()
group = session.group()
group.barrier()
def fails():
    raise OSError("the disk is full")
def fails_in_its_group():
    with group:
        fails()
async def awaits():
    await group.create_start([1]).wait().barrier_start()
    fails()
if group.rank == 1:
    {tail}
    sys.exit()
try:
    group.barrier()
except nexar.GroupError as error:
    print(error.name, error.rank, error.text)
"""
# What rank 1 does: (its exit status, what rank 0 reads, what is on rank 1's standard error).
ENDS = {
    "fails()": (1, "it aborted the group: OSError: the disk is full", "OSError: the disk is full"),
    "asyncio.run(awaits())": (1, "it aborted the group: OSError: the disk is full", "OSError: the disk is full"),
    "concurrent.futures.ThreadPoolExecutor().submit(fails).result()": (
        1, "it aborted the group: OSError: the disk is full", "OSError: the disk is full"),
    "threading.Thread(target=fails_in_its_group).start()": (0, "it aborted the group: OSError: the disk is full", "the disk is full"),
    "signal.raise_signal(signal.SIGINT)": (-signal.SIGINT, "it aborted the group: KeyboardInterrupt", "KeyboardInterrupt"),
    "with group: sys.exit(3)": (3, "it aborted the group: SystemExit: 3", ""),
    "with session: sys.exit('no disk')": (1, "it aborted the group: SystemExit: no disk", "no disk"),
    "raise KeyError('row', 7) from OSError()": (1, "it aborted the group: KeyError: ('row', 7)", "KeyError"),
    # Python has no hook for these: the end of the process is what the others read.
    "sys.exit(3)": (3, "", ""),
    "import os; os._exit(4)": (4, "", ""),
}


def started(node, rank, name, tail):
    from harness.ranks import environment_of
    from harness.system import die_with_parent, enter

    def prepare():
        enter(node.network.namespace(node.host))
        die_with_parent()

    return subprocess.Popen([sys.executable, "-B", "-c", PROGRAM.replace("{tail}", tail)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True, preexec_fn=prepare, env={**os.environ, **environment_of(node, rank, 2, name),
                                                                "PYTHONPATH": os.path.dirname(os.path.dirname(nexar.__file__))})


def test_however_an_exception_ends_the_program_the_others_read_its_text(cluster):
    """[U18] In the main thread, a task, another thread, a pool, by Ctrl-C, by sys.exit in a `with`."""
    for number, (tail, (status, text, printed)) in enumerate(ENDS.items()):
        both = [started(cluster[1 + rank], rank, f"ends {number}", tail) for rank in (0, 1)]
        (out, trouble), (_, traceback) = (each.communicate(timeout=30) for each in both)
        contains(out + trouble, "PEER_LOST 1 ", text)
        contains(traceback, printed)
        equal((both[0].returncode, both[1].returncode), (0, status), f"exits of {tail}: {trouble} {traceback}")


def in_threads(me):
    """Two threads, one group: one of them is refused."""
    group, refused = me.group(), []
    group.barrier()
    if me.rank == 1:
        me.mark()
        me.wait_for_go()
        group.barrier()
        return None
    thread = threading.Thread(target=group.barrier)
    thread.start()
    while group._gate == bytearray(1):
        time.sleep(0.001)  # sleep: between two looks
    for call in (group.barrier, lambda: group.barrier(match_id=1)):
        refused.append(me.fails(call).name)
    me.mark()
    thread.join()
    return refused


def test_a_collective_beside_another_threads_is_refused_by_both_ways(cluster):
    job = Job([cluster[1], cluster[2]], in_threads)
    job.await_marks()
    job.go(1)
    equal(job.outcomes(0), [["BAD_STATE", "BAD_STATE"]], "refused")
    job.outcomes(1)


# ---- The package itself ----

def public():
    """What __all__ names, and the public methods of its classes: [(name, object)]."""
    for name in nexar.__all__:
        thing = getattr(nexar, name)
        yield name, thing
        if inspect.isclass(thing):
            yield from ((f"{name}.{each}", getattr(thing, each)) for each in dir(thing) if not each.startswith("_"))


def test_everything_public_is_in_all_and_has_a_docstring(_cluster):
    """Those of operations name what they raise."""
    lacking = [name for name, thing in public() if (callable(thing) or isinstance(thing, property)) and not inspect.getdoc(thing)]
    equal(lacking, [], "what has no docstring")
    for name in nexar._rows.ROWS:
        contains(inspect.getdoc(getattr(nexar.Group, name)), "Raises")
    hidden = [name for name in vars(nexar) if not name.startswith("_") and name not in (*nexar.__all__, "version")
              and not inspect.ismodule(getattr(nexar, name))]  # version: __version__ has what it gives
    equal(hidden, [], "public names that __all__ lacks")


def split_by_node(me):
    """As the page for mpi4py has it."""
    page = (DOCS / "coming-from-mpi4py.md").read_text()
    code = re.search(r"`(comm\.split\(min\(.*?\)\))`", page)[1]
    comm = me.group()
    here = eval(code, {"comm": comm})
    return here.all_gather(comm.rank), here.translate([here.rank], comm), comm.member(comm.rank).host == os.uname().nodename


def test_a_group_splits_by_node_as_the_page_for_mpi4py_says(cluster):
    found = run([cluster[n] for n in (1, 2, 1, 2, 2)], split_by_node)
    equal(found, [([0, 2] if rank in (0, 2) else [1, 3, 4], [rank], True) for rank in range(5)], "groups, ranks, hosts")


DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"


def test_the_page_for_torch_names_what_exists(_cluster):
    """In the column of nexar: methods and their arguments, what the module has, and reductions."""
    page = (DOCS / "coming-from-torch.md").read_text()
    cells = " ".join(line.split(" | ", 1)[1] for line in page.splitlines() if line.startswith("| `") or " | " in line)
    objects = {"group": nexar.Group, "child": nexar.Group, "session": nexar.Session, "request": nexar.Request}
    found = set(re.findall(r"\b(group|child|session|request)\.([a-z_]+)\b", cells))
    lacking = [f"{thing}.{name}" for thing, name in found if not hasattr(objects[thing], name) and name not in ("rank", "size")]
    equal(lacking, [], "what is no method")
    equal([name for name in re.findall(r"nexar\.([A-Za-z_]\w+)", cells) if not hasattr(nexar, name) and name != "testing"], [], "what nexar lacks")
    for name in ("create", "split", "dup", "translate", "all_reduce_init", "sendrecv", *re.findall(r"FLAG_\w+|Priority|shard", " ".join(nexar.__all__))):
        contains(cells, name)
    equal([op for op in re.findall(r'`"(\w+)"`', cells) if op not in nexar.OPS], [], "what is no reduction")


def test_the_page_for_mpi4py_names_methods_that_exist_and_every_operation(_cluster):
    page = (DOCS / "coming-from-mpi4py.md").read_text()
    objects = {"comm": nexar.Group, "group": nexar.Group, "session": nexar.Session, "request": nexar.Request,
               "persistent": nexar.Persistent, "message": nexar.Message}
    for thing, method in re.findall(r"\b(comm|group|session|request|persistent|message)\.([a-z_]+)\(", page.split("## Memory")[0]):
        cell_of_mpi4py = re.search(rf"^\| `{thing}\.{method}\(", page, re.MULTILINE)
        assert cell_of_mpi4py or hasattr(objects[thing], method), f"{thing}.{method}() is no method"
    operations = [name for name in dir(nexar.Group) if hasattr(nexar.Group, f"{name}_start")]  # also of its bases
    assert {*nexar._rows.ROWS, "send", "recvv", "probe", "create"} <= {*operations}, operations
    equal([name for name in operations if not re.search(rf"\b{name}\b", page)], [], "what the page lacks")


main(globals(), nodes=2)
