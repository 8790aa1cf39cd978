#!/usr/bin/env python3
"""bindings/python over fake_nexar.c: what exceptions of callbacks and of signals' handlers leave behind; docs/protocol/python.md.

    ends_test.py FAKE_LIBRARY BINDINGS_FOLDER
"""
import asyncio
import contextlib
import ctypes
import gc
import itertools
import os
import signal
import sys
import unittest
import warnings
import weakref

from over_fake import *
from started_test import general, outcome
from nexar import _library, _quick


PACKAGE = os.path.dirname(nexar.__file__)


ignored = []


@contextlib.contextmanager
def raising(at):
    """As a signal's handler: KeyboardInterrupt where Python looks for signals, when a function begins and when one of C has returned; the
    at'th time."""
    count, did = itertools.count(), []

    def look(frame, event, argument):
        if event in ("call", "c_return") and frame.f_code.co_filename.startswith(PACKAGE) and next(count) == at:
            sys.setprofile(None)
            did.append(at)
            raise KeyboardInterrupt

    kept, sys.unraisablehook = sys.unraisablehook, lambda raised: ignored.append(raised.exc_type)  # in a __del__ it goes no further
    ignored.clear()
    sys.setprofile(look)
    try:
        yield did
    finally:
        sys.setprofile(None)
        sys.unraisablehook = kept


def places(call):
    """Calls it again and again, interrupted one place later each time, until it is not; yields after each."""
    for at in itertools.count():
        with contextlib.suppress(KeyboardInterrupt), raising(at) as did:
            call()
        yield at
        if not did:
            return


class Ends(OverFake):
    def test_a_callback_that_raises_takes_no_other_end_with_it(self):
        """[P16] As concurrent.futures: it is logged. By a poll, a wait, a test, and where it had ended before."""
        def raises(request):
            raise KeyError("of the callback")

        seen, requests = [], [self.group.barrier_start(user_data=n) for n in range(3)]
        for request in requests:
            request.add_done_callback(raises)
            request.add_done_callback(seen.append)
        with self.assertLogs("nexar", "ERROR") as logged:
            self.assertEqual([end.request for end in self.session.poll()], requests)
        self.assertEqual((seen, len(logged.records)), (requests, 3))
        self.assertIn("of the callback", logged.output[0])
        self.assertIn("barrier of group", logged.records[0].getMessage())
        for find in (lambda r: r.wait(), lambda r: self.assertTrue(r.test()), lambda r: nexar.wait_any([r]), lambda r: nexar.wait_all([r])):
            request = self.group.barrier_start()
            request.add_done_callback(raises)
            with self.assertLogs("nexar", "ERROR"):
                find(request)
        with self.assertLogs("nexar", "ERROR"):
            request.add_done_callback(raises)

    def test_what_ends_the_program_in_a_callback_comes_after_the_others(self):
        """[P16]"""
        seen, requests = [], [self.group.barrier_start() for _ in range(2)]

        def leaves(request):
            raise SystemExit(3)

        requests[0].add_done_callback(leaves)
        for request in requests:
            request.add_done_callback(seen.append)
        self.assertRaises(SystemExit, self.session.poll)
        self.assertEqual(seen, requests[:1])
        self.assertEqual([end.request for end in self.session.poll()], requests)  # the first poll gave none
        self.assertEqual((seen, self.session.poll()), (requests, []))

    def test_an_interrupted_poll_loses_no_end(self):
        """[P16] Wherever the handler of a signal raises: the next poll gives what this one cannot, and no callback is called twice."""
        def poll():
            got[:] = self.session.poll()

        got, seen, requests = [], [], []
        for at in itertools.count():
            got.clear(), seen.clear(), requests.clear()  # before others get their slots: the pretended library has no generations
            requests += [self.group.barrier_start() for _ in range(3)]
            for request in requests:
                request.add_done_callback(seen.append)
            del request
            with contextlib.suppress(KeyboardInterrupt), raising(at) as did:
                poll()
            while ends := self.session.poll(2):
                got.extend(ends)
            del ends
            self.assertEqual([end.request for end in got], requests, at)
            self.assertEqual((len(set(map(id, seen))), len(seen) >= 2), (len(seen), True), at)  # one may be interrupted before it begins
            if not did:
                break
        self.assertGreater(at, 20)

    def test_an_interrupted_call_leaves_its_group_usable(self):
        """[P18] Wherever the handler of a signal raises; in both ways."""
        step, x = self.group.all_reduce_init(np.ones(3, np.float32)), np.ones(3, np.float32)
        begun = []

        def again():
            step.start()
            step.wait()

        def all_again():
            nexar.start_all([step])
            step.wait()

        for call in (self.group.barrier, lambda: self.group.all_reduce(x), lambda: self.group.all_reduce([1.5]),
                     lambda: begun.append(self.group.all_reduce_start(x)), again, all_again):
            for way in (contextlib.nullcontext, general):
                with warnings.catch_warnings(), way():
                    warnings.simplefilter("ignore")
                    for at in places(call):
                        self.assertEqual(outcome(self.group.barrier), None, at)
                        self.assertFalse(isinstance(outcome(self.group.barrier_start), tuple), at)
                        begun.clear()
                        step.wait()
                        self.session.poll()
        step.free()
        self.session.poll()

    def test_an_interrupted_del_leaves_the_memory_to_the_session(self):
        """[P15] [P17] The handler of a signal raises as __del__ begins, which Python only reports; in both ways."""
        def pending(x):
            step = self.group.all_reduce_init(x)
            next_op(NEVER_ENDS)
            step.start()
            return step

        def begun(x):
            next_op(NEVER_ENDS)
            return self.group.all_reduce_start(x, timeout=60)

        for way in (contextlib.nullcontext, general):
            for begin in (begun, pending):
                for sweep in (self.session.poll, self.group.barrier, lambda: self.group.barrier_start().wait()):
                    x, cancels = bytearray(8), number("fake_cancels")
                    with way():
                        requests = [begin(x)]
                        with raising(0) as did:
                            requests.clear()
                        self.assertEqual((did, number("fake_open_requests")), ([0], 1))
                        self.assertRaises(BufferError, x.append, 0)
                        sweep()
                    self.assertGreater(number("fake_cancels"), cancels)
                    sweep()
                    self.session.poll()
                    self.assertEqual((number("fake_open_requests"), self.session._connection.requests, self.session._connection.dropped.requests),
                                     (0, {}, {}))
                    x.append(0)
        for begin in (lambda: self.group.all_reduce_init(np.ones(3)), self.group.barrier_start, lambda: self.session.group_start("other")):
            what = [begin()]
            with raising(0) as did:
                what.clear()
            self.assertEqual((did, self.session.poll(), number("fake_open_requests")), ([0], [], 0))

    def test_an_idle_persistent_one_is_collected_with_what_holds_it(self):
        """[P17] Between two starts the session does not hold its memory, which may hold it."""
        x = np.ones(3).view(type("Own", (np.ndarray,), {}))
        x.step = self.group.all_reduce_init(x)
        x.step.start()
        x.step.wait()
        alive = weakref.ref(x)
        del x
        gc.collect()
        self.assertIsNone(alive())

    def test_what_a_handler_raises_stays_what_it_is(self):
        """[P18] In the general way, whose calls are of ctypes: no ArgumentError."""
        with general(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for call in (lambda: self.group.send(np.array([42], np.int32), 2, 1 << 40), lambda: self.group.reduce(np.ones(3), root=0),
                         lambda: self.group.node(2), lambda: self.group.member(1)):
                for _ in places(call):
                    self.session.poll()

    def test_an_interrupted_mprobe_loses_no_message(self):
        """[P18] Wherever the handler of a signal raises, what it has set apart is put back; in both ways."""
        got = []
        for way in (contextlib.nullcontext, general):
            with way():
                for at in places(lambda: got.append(self.group.mprobe())):
                    got.clear()
                    self.assertEqual(number("fake_apart"), 0, at)
                self.assertGreater(at, 2)

    def test_an_interrupted_opening_frees_its_group_once(self):
        """[P16] [P18] Wherever the handler of a signal raises, also as the Group is made: what the wait cannot give is left, once; what
        was begun gives it to the next wait. A dropped one, too."""
        groups, kept = number("fake_open_groups"), []

        def begins(start):
            def both():
                kept.append(start())
                kept.append(kept[0].wait())
            return both

        for blocking, start in ((lambda: self.group.split(0), lambda: self.group.split_start(0)), (self.group.dup, self.group.dup_start),
                                (lambda: self.group.create([1, 0]), lambda: self.group.create_start([1, 0])),
                                (lambda: self.session.group("other"), lambda: self.session.group_start("other"))):
            for call, again in ((blocking, False), (begins(start), False), (begins(start), True)):
                for at in places(call):
                    if again and kept:
                        with kept[0].wait() as made:
                            self.assertIs(kept[0].wait(), made)
                            self.assertEqual((made.rank, number("fake_open_groups")), (1, groups + 1), at)
                        made = None
                    kept.clear()
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        self.session.poll()
                    self.assertEqual((number("fake_open_groups"), number("fake_open_requests")), (groups, 0), at)
                self.assertGreater(at, 20)

    def test_an_interrupted_exchange_keeps_no_copy(self):
        """[P18] Beside the one that the session keeps for the next; what a handler raises is not lost, and waits for nothing."""
        x = np.full(16 << 10, 42, np.int32)
        for way in (contextlib.nullcontext, general):
            with way():
                for at in places(lambda: self.group.sendrecv_replace(x, 2, send_tag=1 << 40)):
                    self.session.poll()
                    self.assertLessEqual(number("fake_memories"), 1, at)
                    self.assertEqual(number("fake_open_requests"), 0, at)
                self.assertGreater(at, 3)

    def test_a_handler_that_raises_as_the_send_fails_ends_the_receive(self):
        """[P18] Not the send's error, and no wait for what may never come."""
        then, x, room = ctypes.c_int.in_dll(fake, "fake_then"), np.array([42], np.int32), np.zeros(4, np.int32)
        for way in (contextlib.nullcontext, general):
            for receiving in (NEVER_ENDS, LOSES_RANK):
                ended_it = 0  # before its deadline
                for at in itertools.count():
                    next_op(LOSES_RANK)
                    then.value, cancels = receiving, number("fake_cancels")
                    with way(), raising(at) as did, self.assertRaises(BaseException) as caught:
                        self.group.sendrecv(x, 2, room, send_tag=1 << 40, timeout=0.002)
                    begun = number("fake_next") == SUCCEEDS  # both
                    self.assertIs(type(caught.exception), KeyboardInterrupt if did and not ignored else nexar.GroupError, at)
                    caught = None
                    next_op(SUCCEEDS)
                    then.value = SUCCEEDS
                    self.session.poll()
                    self.assertEqual(number("fake_open_requests"), 0, at)
                    if not did:
                        break
                    ended_it += begun and number("fake_cancels") > cancels
                self.assertGreater(at, 3)

    def test_an_interrupted_del_of_a_message_puts_it_back(self):
        """[P17] The handler of a signal raises as __del__ begins, which Python only reports; in both ways."""
        for way in (contextlib.nullcontext, general):
            for sweep in (self.session.poll, self.group.barrier, lambda: self.group.barrier_start().wait()):
                with way():
                    messages = [self.group.mprobe()]
                    with raising(0) as did:
                        messages.clear()
                    self.assertEqual((did, number("fake_apart")), ([0], 1))
                    sweep()
                    self.assertEqual((number("fake_apart"), self.session._connection.dropped.requests), (0, {}))

    def test_a_message_is_set_apart_until_its_receive_has_begun(self):
        """What a tensor's own code raises begins nothing; in both ways."""
        class Fails:
            def __dlpack__(self):
                raise ZeroDivisionError
            __dlpack_device__ = __dlpack__

        for way in (contextlib.nullcontext, general):
            with way(), self.group.mprobe() as message:
                for receive in (message.recv, message.recv_start):
                    self.assertRaises(ZeroDivisionError, receive, Fails())
                    self.assertNotIn("put back", repr(message))
                self.assertEqual((message.recv(np.zeros(4, np.int32)), number("fake_apart")), ((2, 9, 3), 0))
            self.assertEqual(number("fake_apart"), 0)

    def test_a_failed_wait_leaves_no_cycle(self):
        """[P15] The arrays and the Request are gone with their last names, without a garbage collection; in both ways."""
        def waits(request):
            request.wait()

        def waits_a_while(request):
            request.wait(5)

        def waits_for_all(request):
            nexar.wait_all([None, request])

        def waits_twice(request):
            outcome(request.wait)
            request.wait()

        def awaits(request):
            async def one():
                await request
            asyncio.run(one())

        def of_concurrent(request):
            request.concurrent_future().result()

        def lost(wait):
            next_op(LOSES_RANK)
            request = self.group.all_reduce_start(x := np.ones(3))
            try:
                wait(request)
            except nexar.GroupError as error:
                self.assertEqual((error.rank, error.host), (2, "gpu7"))
                return weakref.ref(request), weakref.ref(x)

        def refused():
            step = self.group.all_reduce_init(x := np.ones(3))
            next_op(START_FAILS)
            try:
                step.start()
            except nexar.Error:
                return weakref.ref(step), weakref.ref(x)

        kept = self.session._connection.reader_of
        self.session._connection.reader_of = lambda loop: self  # which watches: the pretended descriptor is none
        gc.collect()
        gc.disable()
        try:
            for way in (contextlib.nullcontext, general):
                with way():
                    for wait in (waits, waits_a_while, waits_for_all, waits_twice, of_concurrent):
                        self.assertEqual([alive() for alive in lost(wait)], [None, None], wait.__name__)
                    self.assertEqual([alive() for alive in refused()], [None, None])
        finally:
            gc.enable()
            self.session._connection.reader_of = kept

    def test_each_wait_raises_an_error_of_its_own(self):
        """[P16] With the same fields; and none gets the traceback of another."""
        next_op(LOSES_RANK)
        request, errors = self.group.all_reduce_start(np.ones(3)), []
        for _ in range(2):
            with self.assertRaises(nexar.GroupError) as caught:
                request.wait()
            errors.append(caught.exception)
        self.assertIsNot(errors[0], errors[1])
        self.assertEqual((str(errors[0]), vars(errors[0])), (str(errors[1]), vars(errors[1])))

    def test_an_errors_details_are_its_own_where_a_handler_makes_another_call(self):
        """[P16] The handler of a signal runs between the call that has failed and the look at why; in the quick way."""
        if _quick._native is None:
            self.skipTest("by ctypes a handler may run in between")
        ran, x = [], np.ones(3, np.float32)

        def handler(*_):
            ran.append(_library.lib.nexar_request_free(1))  # which fails

        kept = signal.signal(signal.SIGUSR1, handler)
        try:
            for call in (self.group.barrier, lambda: self.group.all_reduce(x), lambda: self.group.all_reduce_start(x),
                         lambda: self.group.broadcast_start(x, root=1), lambda: self.group.probe()):
                next_op(START_FAILS)
                ctypes.c_int.in_dll(fake, "fake_raises").value = signal.SIGUSR1
                with self.assertRaises(nexar.CallError) as caught:
                    call()
                self.assertEqual((caught.exception.text, ran), ("refused", [-107]))
                ran.clear()
        finally:
            signal.signal(signal.SIGUSR1, kept)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
