#!/usr/bin/env python3
"""bindings/python over fake_nexar.c: operations that are begun, by the quick way and by the general one; docs/protocol/python.md.

    started_test.py FAKE_LIBRARY BINDINGS_FOLDER
"""
import asyncio
import contextlib
import ctypes
import gc
import os
import pickle
import signal
import subprocess
import sys
import threading
import unittest
import warnings
import weakref
from unittest import mock

from over_fake import *
from nexar import _library, _quick

WAYS = ("nothing", "data", "sides", "packed", "message", "pieces", "look", "exchange", "probe", "mprobe", "mrecv")
TAG = 1 << 40


def general():
    """Only the general way."""
    return mock.patch.multiple(_quick, **{way: _quick._not_here for way in WAYS})


def outcome(call):
    """What it gives, or what it raises; without the addresses of arrays."""
    try:
        got = call()
    except Exception as error:
        return type(error), str(error), getattr(error, "rank", None), getattr(error, "code", None)
    return got.tolist() if isinstance(got, np.ndarray) else got


def ended(request):
    end = request.completion
    return end.status, end.name, end.user_data, end.sequence, end.bytes, end.tag, end.source, end.epoch


class Started(OverFake):
    def starts(self):
        """name: (what begins it, its values)"""
        group, one, room = self.group, np.array([1, 42], np.int32), np.zeros(4, np.int32)
        two = np.array([7.0, 8.0])
        floats, wide, longs = np.arange(1.0, 4.0).astype(np.float32), np.arange(6.0), np.arange(3, dtype=np.uint64)
        return {
            "all_reduce": lambda **o: group.all_reduce_start(np.ones(3, np.float32), **o),
            "to out": lambda **o: group.all_reduce_start(np.ones(3, np.float32), np.zeros(3, np.float32), **o),
            "reduce": lambda **o: group.reduce_start(np.ones(3, np.float32), root=1, **o),
            "reduce elsewhere": lambda **o: group.reduce_start(np.ones(3, np.float32), root=0, **o),
            "broadcast": lambda **o: group.broadcast_start(floats.copy(), root=1, **o),
            "all_gather": lambda **o: group.all_gather_start(longs, np.zeros((3, 3), np.uint64), **o),
            "gather": lambda **o: group.gather_start(longs, np.zeros((3, 3), np.uint64), root=1, **o),
            "gather elsewhere": lambda **o: group.gather_start(floats, root=2, **o),
            "scatter": lambda **o: group.scatter_start(wide, np.zeros(2), root=1, **o),
            "scatter elsewhere": lambda **o: group.scatter_start(None, np.zeros(2), root=2, **o),
            "reduce_scatter": lambda **o: group.reduce_scatter_start(wide, np.zeros(2), op="max", **o),
            "all_to_all": lambda **o: group.all_to_all_start(np.arange(6, dtype=np.int16), np.zeros(6, np.int16), **o),
            "scan": lambda **o: group.scan_start(np.arange(3, dtype=np.int32), np.zeros(3, np.int32), **o),
            "all_gather, new": lambda **o: group.all_gather_start(longs, **o),
            "reduce_scatter, new": lambda **o: group.reduce_scatter_start(wide, op="max", **o),
            "scatter, new": lambda **o: group.scatter_start(wide, root=1, **o),
            "gather, new": lambda **o: group.gather_start(longs, root=1, **o),
            "all_gatherv": lambda **o: group.all_gatherv_start(two, [1, 2, 3], **o),
            "all_gatherv to out": lambda **o: group.all_gatherv_start(two, [1, 2, 3], np.zeros(6), **o),
            "gatherv": lambda **o: group.gatherv_start(two, [1, 2, 3], root=1, **o),
            "gatherv elsewhere": lambda **o: group.gatherv_start(two, [1, 2, 3], root=0, **o),
            "scatterv": lambda **o: group.scatterv_start(wide, [1, 2, 3], root=1, **o),
            "scatterv elsewhere": lambda **o: group.scatterv_start(None, [1, 2, 3], np.zeros(2), root=2, **o),
            "reduce_scatterv": lambda **o: group.reduce_scatterv_start(wide, [1, 2, 3], op="max", **o),
            "all_to_allv": lambda **o: group.all_to_allv_start(wide, [1, 2, 3], [2, 2, 1], **o),
            "all_to_allv, nothing": lambda **o: group.all_to_allv_start(two, [0, 2, 0], [0, 2, 0], **o),
            "barrier": lambda **o: group.barrier_start(**o), "send": lambda **o: group.send_start(one, 2, TAG, **o),
            "recv": lambda **o: group.recv_start(room, **o), "probe": lambda **o: group.probe_start(**o),
            "mrecv": lambda **o: group.mprobe().recv_start(room, **o)}

    def test_both_ways_begin_the_same(self):
        """[P19] The result, the completion and the options that arrive."""
        for name, start in self.starts().items():
            for given in ({}, {"timeout": 2.5, "user_data": 7, "priority": nexar.Priority.BULK}):
                found = []
                for way in (contextlib.nullcontext(), general()):
                    with way:
                        request = start(**given)
                        options = op_options()
                        found.append((request.wait() if name == "all_reduce" else outcome(request.wait), ended(request),
                                      options.timeout_ms, options.priority, options.match_id, options.flags, repr(request)))
                self.assertEqual(str(found[0]), str(found[1]), (name, given))

    def test_both_ways_refuse_the_same(self):
        """[P19] Every kind of argument that one can get wrong: the same exception, and nothing is left."""
        x, fixed, group = np.ones(3, np.float32), np.ones(3, np.float32), self.group
        fixed.flags.writeable = False
        calls = [lambda o=o: group.all_reduce_start(x, **o) for o in (
            {"timeout": -1}, {"timeout": float("nan")}, {"timeout": "1"}, {"priority": 1 << 40}, {"priority": "bulk"}, {"match_id": -1},
            {"match_id": 1 << 64}, {"flags": -1}, {"flags": 1.5}, {"op": "most"}, {"out": np.zeros(3)}, {"out": np.zeros(2, np.float32)},
            {"out": fixed}, {"out": "text"})]
        calls += [lambda v=v: group.all_reduce_start(v) for v in (
            fixed, x[::2], x.astype(">f4"), x.astype(complex), None, "text", np.array([object()]))]
        calls += [lambda: group.broadcast_start(np.zeros(2), root=-1), lambda: group.broadcast_start(np.zeros(2), root="0"),
                  lambda: group.reduce_start(x, root=1 << 33), lambda: group.send_start(x, -1), lambda: group.send_start(x, 1 << 32),
                  lambda: group.send_start(x, 0, -1), lambda: group.send_start(x, 0, 1 << 64), lambda: group.send_start(x, 0, "tag"),
                  lambda: group.recv_start(fixed), lambda: group.recv_start([1]), lambda: group.recv_start(np.zeros(2, np.int32), 1.5),
                  lambda: group.probe_start(-1), lambda: group.probe_start(0, 1 << 64), lambda: group.probe_start("0"),
                  lambda: group.probe(-1), lambda: group.probe(tag=-1), lambda: group.mprobe(-1), lambda: group.mprobe(0, "tag"),
                  lambda: group.mprobe(timeout=-1), lambda: group.gather_start(x, np.zeros(8, np.float32), root=1),
                  lambda: group.mprobe().recv_start(fixed), lambda: group.mprobe().recv("text")]
        two, wide = np.array([7.0, 8.0]), np.arange(6.0)
        calls += [lambda c=c: group.all_gatherv_start(two, c) for c in (
            [1, 2], [1, 2, -3], [1, 3, 3], [1, 2, 1 << 63], [1, 2.0, 3], ["1", 2, 3], None, 7, [1 << 62, 1 << 62, 2], [])]
        calls += [lambda: group.all_gatherv_start(two, [1, 2, 3], np.zeros(5)), lambda: group.all_gatherv_start(two, [1, 2, 3], np.zeros(6, np.float32)),
                  lambda: group.gatherv_start(two, [1, 2, 3], np.zeros(7), root=1), lambda: group.scatterv_start(wide, [1, 2, 3]),
                  lambda: group.scatterv_start(wide[:5], [1, 2, 3], root=1), lambda: group.all_to_allv_start(wide, [1, 2, 3], [1, 2]),
                  lambda: group.all_to_allv_start(two, [1, 2, 3], [1, 2, 3]), lambda: group.reduce_scatterv_start(wide, [1, 2, 3], op="most"),
                  lambda: group.reduce_scatter_start(np.zeros(4)), lambda: group.scatter_start(np.zeros(4), root=1),
                  lambda: group.all_gather_start(two.astype(complex)), lambda: group.gatherv_start(two, [1, 2, 3], root=-1)]
        for i, call in enumerate(calls):
            quick = outcome(call)
            with general():
                self.assertEqual(quick, outcome(call), i)
            self.assertIsInstance(quick[0], type, i)
            self.assertTrue(issubclass(quick[0], Exception), i)
        gc.collect()
        self.assertEqual(self.session._connection.requests, {})

    def test_a_start_that_the_library_refuses_leaves_nothing(self):
        """[P19]"""
        for name, start in self.starts().items():
            if name == "mrecv":
                continue
            next_op(START_FAILS)
            with self.assertRaisesRegex(nexar.CallError, "refused", msg=name):
                start()
            self.assertEqual((number("fake_open_requests"), self.session._connection.requests), (0, {}), name)
        message = self.group.mprobe()
        for receive in (message.recv, message.recv_start):
            next_op(START_FAILS)
            self.assertRaisesRegex(nexar.CallError, "refused", receive, np.zeros(4, np.int32))
            self.assertNotIn("put back", repr(message))
        self.assertEqual(message.recv(np.zeros(4, np.int32)), (2, 9, 3))  # it is set apart still

    def test_arrays_live_as_long_as_their_operation_and_no_longer(self):
        """[P15] Their last names are gone between the start and the wait."""
        def reduce(x):
            return self.group.all_reduce_start(x, timeout=0.1)

        def to_out(x):
            return self.group.all_reduce_start(np.ones(3, np.float32), x, timeout=0.1)

        def receive(x):
            return self.group.recv_start(x.view(np.int32), timeout=0.1)

        def set_apart(x):
            return self.group.mprobe().recv_start(x.view(np.int32), timeout=0.1)

        for begin in (reduce, to_out, receive, set_apart):
            for what in (SUCCEEDS, NEVER_ENDS):
                x = np.ones(3, np.float32)
                alive = weakref.ref(x)
                next_op(what)
                request = begin(x)
                del x
                gc.collect()
                self.assertIsNotNone(alive(), begin.__name__)
                outcome(request.wait)  # those that never end do by their deadline
                self.assertEqual(request.completion.name, "timed_out" if what == NEVER_ENDS else "ok")
                del request
                gc.collect()
                self.assertIsNone(alive(), begin.__name__)

    def test_arrays_of_a_dropped_operation_live_until_it_has_ended(self):
        """[P15] [P17]"""
        x = np.ones(3, np.float32)
        alive = weakref.ref(x)
        next_op(NEVER_ENDS)
        with self.assertWarnsRegex(RuntimeWarning, "all_reduce of group 'train/1.2' was dropped while it ran"):
            self.group.all_reduce_start(x)
        del x
        gc.collect()
        self.assertIsNotNone(alive())
        self.session.poll()
        gc.collect()
        self.assertEqual((alive(), number("fake_open_requests")), (None, 0))

    def test_a_signal_during_a_start_drops_what_was_begun(self):
        """[P15] [P17] Its handler raises as soon as the start has returned; the operation runs, and has its arrays until it is cancelled."""
        begin = {"all_reduce": self.group.all_reduce_start, "recv": self.group.recv_start, "barrier": lambda x: self.group.barrier_start(),
                 "mrecv": lambda x: message.recv_start(x)}
        for op, start in begin.items():
            x, message, cancels = np.ones(3, np.int32 if "recv" in op else np.float32), self.group.mprobe(), number("fake_cancels")
            alive = weakref.ref(x)
            next_op(NEVER_ENDS)
            ctypes.c_int.in_dll(fake, "fake_raises").value = signal.SIGINT
            with self.assertWarnsRegex(RuntimeWarning, f"{op} of group 'train/1.2' was dropped while it ran"):
                with self.assertRaises(KeyboardInterrupt):
                    start(x)
                gc.collect()
            del x
            self.assertEqual((number("fake_cancels"), number("fake_open_requests")), (cancels + 1, 1), op)
            self.assertEqual(alive() is None, op == "barrier")
            self.session.poll()
            gc.collect()
            self.assertEqual((number("fake_open_requests"), alive()), (0, None), op)

    def test_an_end_is_the_same_for_all_who_ask_and_frees_the_slot_once(self):
        """[P16] Two threads wait, and others test and wait again."""
        next_op(NEVER_ENDS)
        frees, request, ends = number("fake_frees"), self.group.barrier_start(timeout=0.2), []
        threads = [threading.Thread(target=lambda: ends.append(outcome(request.wait))) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual((len(ends), {(end[0], end[2]) for end in ends}), (3, {(nexar.TimedOut, 2)}))
        self.assertTrue(request.test())
        self.assertEqual(outcome(request.wait)[0], nexar.TimedOut)
        self.assertEqual(outcome(lambda: request.wait(0))[0], nexar.TimedOut)
        self.assertEqual(number("fake_frees"), frees + 1)
        x = np.ones(3, np.float32)
        request = self.group.all_reduce_start(x)
        self.assertTrue(request.test())
        for _ in range(2):
            self.assertIs(request.wait(), x)
        self.assertEqual(x.tolist(), [3, 3, 3])
        self.assertEqual(number("fake_frees"), frees + 2)

    def test_an_error_found_by_a_wait_has_everything(self):
        """[P16] As that of the blocking call; in each kind of wait."""
        next_op(LOSES_RANK)
        with self.assertRaises(nexar.GroupError) as blocking:
            self.group.all_reduce(np.zeros(3))

        def tested(request):
            self.assertTrue(request.test())
            request.wait()

        def polled(request):
            self.assertEqual([end.name for end in self.session.poll()], ["peer_lost"])
            request.wait()

        def some(request):
            self.assertEqual(nexar.wait_some([None, request]), [1])
            request.wait()

        for wait in (lambda r: r.wait(), lambda r: r.wait(5), lambda r: nexar.wait_all([r]), some, tested, polled):
            next_op(LOSES_RANK)
            request = self.group.all_reduce_start(np.zeros(3))
            with self.assertRaises(nexar.GroupError) as found:
                wait(request)
            self.assertEqual((str(found.exception), vars(found.exception)), (str(blocking.exception), vars(blocking.exception)))
            again = pickle.loads(pickle.dumps(found.exception))
            self.assertEqual((type(again), vars(again)), (nexar.GroupError, vars(blocking.exception)))

    def test_several_are_found_with_their_results_and_errors(self):
        """[P16] Those that fail are found like the others; the pending one stays."""
        next_op(NEVER_ENDS)
        never = self.group.barrier_start()
        arrays = [np.full(3, n, np.float32) for n in range(4)]
        requests = [None, never, *(self.group.all_reduce_start(x) for x in arrays), self.group.recv_start(np.zeros(4, np.int32))]
        next_op(LOSES_RANK)
        requests.append(self.group.all_reduce_start(np.zeros(3)))
        self.assertEqual(nexar.test_some(requests), [2, 3, 4, 5, 6, 7])
        self.assertEqual((nexar.test_some(requests), nexar.test_any(requests)), ([], None))
        self.assertRaises(TimeoutError, nexar.wait_some, requests, 0.01)
        for n, request in enumerate(requests[2:6]):
            self.assertIs(request.wait(), arrays[n])
            self.assertEqual(arrays[n].tolist(), [3 * n] * 3)
        self.assertEqual(requests[6].wait(), (2, 9, 3))
        self.assertRaises(nexar.GroupError, requests[7].wait)
        never.cancel()
        self.assertEqual(nexar.wait_some(requests), [1])
        self.assertRaises(nexar.OperationError, nexar.wait_all, requests)

    def test_a_call_that_fails_ends_no_request(self):
        """[P16] The handle is not known any more: every wait says so, and the Request is pending for ever."""
        request = self.group.barrier_start()
        self.assertEqual(_library.lib.nexar_request_free(request._number), 0)
        for wait in (request.wait, lambda: request.wait(1), request.test, lambda: nexar.wait_some([request]), lambda: nexar.wait_all([request])):
            with self.assertRaisesRegex(nexar.CallError, "no such request"):
                wait()
        self.assertIsNone(request.completion)

    def test_a_request_is_freed_where_its_last_name_goes(self):
        """[P17] Another thread, a garbage collection, a container; each is warned of."""
        def by_thread(request):
            box = [request]
            thread = threading.Thread(target=box.clear)
            del request
            thread.start()
            thread.join()

        def by_collection(request):
            ring = [request]
            ring.append(ring)
            del ring, request
            gc.collect()

        def by_attribute(request):
            request.itself = request
            del request
            gc.collect()

        for let_go in (by_thread, by_collection, by_attribute):
            for begin in (self.group.barrier_start, self.group.probe_start, lambda: self.group.recv_start(np.zeros(4, np.int32))):
                next_op(NEVER_ENDS)
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    let_go(begin())
                self.assertEqual([each.category for each in caught], [RuntimeWarning], let_go.__name__)
                self.assertRegex(str(caught[0].message), "was dropped while it ran, and is cancelled")
                self.session.poll()
                self.assertEqual(number("fake_open_requests"), 0)

    def test_the_end_of_the_process_warns_of_nothing(self):
        """[P17] A pending Request, a message and a persistent operation in its globals."""
        program = "\n".join((
            "import ctypes, os, sys; sys.path.insert(0, sys.argv[1]); import numpy as np, nexar",
            "fake = ctypes.CDLL(os.environ['NEXAR_LIBRARY'])",
            "session = nexar.Session(); group = session.group(); message = group.mprobe(); step = group.all_reduce_init(np.zeros(3))",
            "ctypes.c_int.in_dll(fake, 'fake_next').value = 3; pending = group.barrier_start()",
            "ctypes.c_int.in_dll(fake, 'fake_next').value = 2; failed = group.all_reduce_start(np.zeros(3)); failed.test()"))
        done = subprocess.run([sys.executable, "-B", "-W", "always", "-c", program, folder], capture_output=True, text=True, timeout=120)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    def test_other_threads_run_while_one_waits(self):
        """[P18] Without a time-out: the thread that cancels would else never run."""
        for wait in (lambda r: r.wait(), lambda r: nexar.wait_any([r]), lambda r: nexar.wait_some([r]), lambda r: nexar.wait_all([r])):
            next_op(NEVER_ENDS)
            request = self.group.barrier_start()
            thread = threading.Thread(target=lambda: outcome(lambda: wait(request)))
            thread.start()
            request.cancel()
            thread.join()
            self.assertTrue(request.test())

    def test_a_handler_may_look_in_the_middle_of_an_end(self):
        """[P16] A signal's handler, or a collection, runs where this thread is settling the same request: no deadlock, one end."""
        def at_the_slot(request):
            def looks(number):
                seen.append(request.completion.name)
                return free(number)
            free = _quick.free
            with mock.patch.object(_quick, "free", looks):
                return request.wait()

        def at_the_result(request):
            def looks(end, value):
                request._made = made
                self.assertTrue(request.test())
                seen.append(request.completion.name)
                return made(end, value)
            made, request._made = request._made, looks
            return request.wait()

        for look in (at_the_slot, at_the_result):
            frees, seen, got, request = number("fake_frees"), [], [], self.group.recv_start(np.zeros(4, np.int32))
            thread = threading.Thread(target=lambda: got.append(look(request)), daemon=True)
            thread.start()
            thread.join(60)
            self.assertFalse(thread.is_alive(), f"{look.__name__}: it waits for itself")
            self.assertEqual((got, seen, request.wait(), number("fake_frees")), ([(2, 9, 3)], ["ok"], (2, 9, 3), frees + 1), look.__name__)

    def test_an_exception_in_the_middle_of_an_end_leaks_no_slot(self):
        """[P16] A signal's handler raises just before the slot is freed."""
        request = self.group.recv_start(np.zeros(4, np.int32))
        with mock.patch.object(_quick, "free", mock.Mock(side_effect=KeyboardInterrupt)):
            self.assertRaises(KeyboardInterrupt, request.wait)
        self.assertEqual((request.wait(), number("fake_open_requests")), ((2, 9, 3), 1))
        del request
        self.assertEqual((number("fake_open_requests"), self.session._connection.requests), (0, {}))

    def test_a_start_does_not_end_by_what_was_found_before_it(self):
        """[P16] Another thread has found the end of the last start when this one starts it again, or tests it just before the library has it."""
        step = self.group.all_reduce_init(np.zeros(3, np.float32))
        step.start()
        found = _quick.ask(step._number, 0)
        step.wait()
        next_op(NEVER_ENDS)
        step.start()
        self.assertFalse(step._settle(found))
        self.assertFalse(step.test())
        step.cancel()
        self.assertRaises(nexar.OperationError, step.wait)
        start, ask, start_one, start_all = _quick.start, _quick.ask, _library.lib.nexar_request_start, _library.lib.nexar_request_start_all
        for again in (step.start, lambda: nexar.start_all([step])):
            asked, threads = threading.Event(), []

            def asks(*of):
                found = ask(*of)
                asked.set()
                return found

            def starts(how, *of):
                threads.append(threading.Thread(target=step.test))
                threads[0].start()
                asked.wait(60)
                next_op(NEVER_ENDS)
                return how(*of)

            with mock.patch.object(_quick, "ask", asks), \
                 mock.patch.object(_quick, "start", start and (lambda *of: starts(start, *of))), \
                 mock.patch.object(_library.lib, "nexar_request_start", lambda *of: starts(start_one, *of)), \
                 mock.patch.object(_library.lib, "nexar_request_start_all", lambda *of: starts(start_all, *of)):
                again()
                threads[0].join()
            self.assertFalse(step.test())
            step.cancel()
            self.assertRaises(nexar.OperationError, step.wait)
        step.free()

    def test_a_start_between_a_look_and_its_settling_gets_no_end_of_the_last_one(self):
        """[P16] One thread has asked for the end; another takes it, and starts again, before the first goes on."""
        step, threads, ask = self.group.all_reduce_init(np.zeros(3, np.float32)), [], _quick.ask

        def again():
            step.wait()
            next_op(NEVER_ENDS)
            step.start()

        def asks(*of):
            found = ask(*of)
            if threading.current_thread() is threading.main_thread():
                asked.append(found)
                if len(asked) == 2:  # the first look is without the lock
                    threads.append(threading.Thread(target=again))
                    threads[0].start()
            return found

        class Lock:
            """Before this thread takes the lock once more, the other one has had it."""
            def __enter__(self):
                if threads and threading.current_thread() is threading.main_thread():
                    threads[0].join(60)
                lock.__enter__()

            def __exit__(self, *exception):
                lock.__exit__(*exception)

        asked, lock = [], step._lock
        step.start()
        step._lock = Lock()
        with mock.patch.object(_quick, "ask", asks):
            step.test()
            threads[0].join(60)
        step._lock = lock
        self.assertFalse(step.test())
        step.cancel()
        self.assertRaises(nexar.OperationError, step.wait)
        step.free()

    def test_a_future_has_the_end_of_the_start_that_it_is_of(self):
        """[P16] A persistent one is started again before the event loop comes to the future."""
        async def awaits():
            step = self.group.all_reduce_init(np.zeros(3, np.float32))
            next_op(LOSES_RANK)
            step.start()
            future = step.future()
            self.assertTrue(step.test())
            next_op(NEVER_ENDS)
            step.start()
            with self.assertRaises(nexar.GroupError):
                await asyncio.wait_for(future, 60)
            step.cancel()
            self.assertRaises(nexar.OperationError, step.wait)
            step.free()

        with mock.patch.object(self.session._connection, "reader_of", mock.Mock()):
            asyncio.run(awaits())

    def test_one_that_is_dropped_in_an_op_group_is_cancelled_after_it(self):
        """[P17] The library refuses to cancel it before."""
        cancels = number("fake_cancels")
        next_op(NEVER_ENDS)
        with mock.patch.object(_library.lib, "nexar_request_cancel", lambda _: _library.BAD_STATE), \
             self.assertWarnsRegex(RuntimeWarning, "was dropped while it ran"):
            self.group.recv_start(np.zeros(4, np.int32))
        self.assertEqual((number("fake_cancels"), number("fake_open_requests")), (cancels, 1))
        self.session.poll()
        self.session.poll()
        self.assertEqual((number("fake_cancels"), number("fake_open_requests")), (cancels + 1, 0))

    def test_any_exception_of_a_handler_cancels_a_blocking_form(self):
        """[P18] [P19] Also where the exception, and with it the frames, are kept."""
        def raises(*_):
            raise LookupError("of the handler")

        before, x = signal.signal(signal.SIGALRM, raises), np.array([1, 42], np.int32)
        for call in (lambda: self.group.recv(np.zeros(4, np.int32)), lambda: self.group.recv(memoryview(np.zeros(4, np.int32)))):
            cancels = number("fake_cancels")
            next_op(NEVER_ENDS)
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            with self.assertRaises(LookupError) as kept:
                call()
            self.assertEqual((number("fake_cancels"), number("fake_open_requests")), (cancels + 1, 0))
            del kept
        for way in (contextlib.nullcontext(), general()):  # of an exchange whose send has failed, while it waits for the receive
            next_op(LOSES_RANK)
            ctypes.c_int.in_dll(fake, "fake_then").value = NEVER_ENDS
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            with way:
                self.assertRaises(LookupError, self.group.sendrecv, x, 2, np.zeros(4, np.int32), send_tag=TAG)
            gc.collect()
            self.session.poll()
            self.assertEqual(number("fake_open_requests"), 0)
        signal.signal(signal.SIGALRM, before)

    def test_a_signal_is_seen_in_every_wait_and_leaves_the_request_pending(self):
        """[P18] Ctrl-C raises, and nothing is cancelled; a handler that raises nothing does not end the wait."""
        next_op(NEVER_ENDS)
        cancels, request = number("fake_cancels"), self.group.barrier_start()
        for wait in (request.wait, lambda: request.wait(60), lambda: nexar.wait_any([request]), lambda: nexar.wait_some([request], 60),
                     lambda: nexar.wait_all([request])):
            threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
            self.assertRaises(KeyboardInterrupt, wait)
            self.assertFalse(request.test())
        self.assertEqual(number("fake_cancels"), cancels)
        kept = signal.signal(signal.SIGUSR1, lambda *_: request.cancel())
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        self.assertRaises(nexar.OperationError, request.wait)
        signal.signal(signal.SIGUSR1, kept)

    def test_ctrl_c_ends_a_blocking_probe(self):
        """[P18] Blocking forms cancel what they began."""
        message = self.group.mprobe()
        for call in (self.group.probe, lambda: message.recv(np.zeros(4, np.int32))):
            cancels = number("fake_cancels")
            next_op(NEVER_ENDS)
            threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
            self.assertRaises(KeyboardInterrupt, call)
            self.assertEqual((number("fake_cancels"), number("fake_open_requests")), (cancels + 1, 0))

    def test_neither_waits_nor_large_starts_hold_the_interpreters_lock(self):
        """[P18]"""
        check = ctypes.c_void_p.in_dll(fake, "fake_holds_lock")
        check.value = ctypes.cast(ctypes.pythonapi.PyGILState_Check, ctypes.c_void_p).value
        try:
            small, large = np.ones(3, np.float32), np.ones(1 << 16, np.float32)
            for start in (lambda: self.group.all_reduce_start(large), lambda: self.group.all_reduce_start(large, np.zeros(1 << 16, np.float32)),
                          lambda: self.group.send_start(np.full(1 << 16, 42, np.int32), 2, TAG)):
                request = start()
                self.assertEqual(number("fake_held"), 0)
                request.wait()
            self.assertEqual((large[0], large[-1]), (3, 3))
            waits = (lambda r: r.wait(), lambda r: r.wait(5), lambda r: r.test(), lambda r: nexar.wait_any([r]), lambda r: nexar.wait_some([r]))
            for wait in waits:
                request = self.group.all_reduce_start(small)
                ctypes.c_int.in_dll(fake, "fake_held").value = 1
                wait(request)
                self.assertEqual(number("fake_held"), 0)
        finally:
            check.value = None

    def test_a_poll_and_callbacks_find_what_the_quick_way_began(self):
        """[P16]"""
        seen, request = [], self.group.barrier_start(user_data=(1 << 64) - 1)
        request.add_done_callback(lambda r: seen.append(r))
        self.assertEqual([(end.request, end.user_data) for end in self.session.poll()], [(request, (1 << 64) - 1)])
        request.add_done_callback(lambda r: seen.append("later"))
        self.assertEqual((seen, self.session.poll()), ([request, "later"], []))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
