#!/usr/bin/env python3
"""bindings/python over fake_nexar.c: Requests, one and several, and what becomes of those that nobody holds.

    requests_test.py FAKE_LIBRARY BINDINGS_FOLDER
"""
import asyncio
import gc
import sys
import unittest
import warnings
from unittest import mock

from over_fake import *
from nexar._requests import Reader


class Requests(OverFake):
    def test_started_operations_can_be_tested_waited_for_and_cancelled(self):
        request = self.group.barrier_start()
        self.assertTrue(request.test())
        self.assertIsNone(request.wait())
        self.assertIsNone(request.wait())  # the same answer for ever
        next_op(NEVER_ENDS)
        request = self.group.barrier_start()
        self.assertFalse(request.test())
        self.assertRaisesRegex(TimeoutError, "barrier.* is still pending", request.wait, 0.01)
        self.assertFalse(request.test())
        request.cancel()
        self.assertRaises(nexar.OperationError, request.wait)
        self.assertRaises(nexar.OperationError, request.wait)

    def test_several_are_waited_for_at_once(self):
        next_op(NEVER_ENDS)
        never, ended, other = self.group.barrier_start(), self.group.all_reduce_start(np.ones(3, np.float32)), self.group.barrier_start()
        self.assertEqual((nexar.test_any([None, never, ended]), nexar.wait_any([never, ended, other])), (2, 2))
        self.assertIsNone(nexar.test_any([never]))
        self.assertRaises(TimeoutError, nexar.wait_any, [never], 0.01)
        self.assertRaises(TimeoutError, nexar.wait_all, [ended, never], 0.01)
        self.assertEqual(nexar.wait_all([None, ended])[1].tolist(), [3, 3, 3])
        never.cancel()
        self.assertRaises(nexar.OperationError, nexar.wait_all, [never, ended])

    def test_each_end_is_found_once_and_nothing_is_waited_for_where_all_are_inactive(self):
        """As MPI_Waitany, whatever has found it: a wait, a test, a poll, one of these functions."""
        requests = [self.group.barrier_start() for _ in range(4)]
        requests[0].wait()
        self.assertTrue(requests[3].test())
        found = []
        while (i := nexar.wait_any(requests)) is not None:
            found.append(i)
        self.assertEqual(found, [1, 2])
        polled = self.group.barrier_start()
        self.assertEqual([end.request for end in self.session.poll()], [polled])
        for nothing in (requests, [None, *requests], [polled], [None], []):
            self.assertEqual((nexar.wait_any(nothing), nexar.test_any(nothing), nexar.wait_some(nothing), nexar.test_some(nothing)),
                             (None, None, [], []))
        self.assertEqual(nexar.wait_all(requests), [None] * 4)  # their answers stay

    def test_poll_gives_each_ended_request_once_and_none_of_blocking_forms(self):
        next_op(NEVER_ENDS)
        pending = self.group.barrier_start(user_data=1)
        first, second = (self.group.barrier_start(user_data=n) for n in (8, 9))
        self.group.barrier()
        ended = self.session.poll()
        self.assertEqual([(end.request, end.user_data, end.name) for end in ended],
                         [(first, 8, "ok"), (second, 9, "ok")])
        self.assertEqual((ended[0].group, ended[0].epoch, ended[0].sequence, ended[0].source),
                         (self.group, 1, 3, None))
        self.assertEqual(self.session.poll(), [])
        pending.cancel()
        self.assertEqual([end.user_data for end in self.session.poll()], [1])
        self.assertRaises(nexar.OperationError, pending.wait)
        self.assertEqual(self.session.fileno(), 44)

    def dropped(self, what, drop):
        """The warnings of `drop`, whose operation does `what`."""
        next_op(what)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            drop()
            gc.collect()
        self.assertEqual({(each.category, each.filename) for each in caught} - {(RuntimeWarning, __file__)}, set())
        return [str(each.message) for each in caught]

    def test_a_dropped_request_gives_its_slot_back(self):
        self.assertEqual(self.dropped(SUCCEEDS, self.group.barrier_start), [])
        self.assertEqual(number("fake_open_requests"), 0)
        x, cancels = self.session.alloc(4), number("fake_cancels")

        def drop():
            nonlocal x
            self.group.all_reduce_start(x)
            del x

        text, = self.dropped(NEVER_ENDS, drop)
        self.assertEqual(text, "all_reduce of group 'train/1.2' was dropped while it ran, and is cancelled: keep its Request until "
                               "it has ended")
        self.assertEqual((number("fake_cancels"), number("fake_memories")), (cancels + 1, 1))  # its memory is kept
        self.session.poll()
        gc.collect()
        self.assertEqual((number("fake_open_requests"), number("fake_memories")), (0, 0))

    def test_an_error_that_nobody_has_seen_is_a_warning(self):
        def tested():
            self.assertTrue(self.group.all_reduce_start(np.zeros(3)).test())

        def found():
            self.assertEqual(nexar.wait_any([self.group.all_reduce_start(np.zeros(3))]), 0)

        for drop in (lambda: self.group.all_reduce_start(np.zeros(3)), tested, found):
            text, = self.dropped(LOSES_RANK, drop)
            self.assertEqual(text, "the error of all_reduce of group 'train/1.2' was never seen: all_reduce: peer_lost: its process ended")
            self.assertEqual(number("fake_open_requests"), 0)
        text, = self.dropped(NEVER_ENDS, lambda: self.session.group_start("late"))
        self.assertIn("group of group 'late' was dropped", text)

    def test_an_error_that_was_seen_or_that_a_cancel_asked_for_is_none(self):
        def waited():
            with self.assertRaises(nexar.GroupError):
                self.group.all_reduce_start(np.zeros(3)).wait()

        def all_of_them():
            with self.assertRaises(nexar.GroupError):
                nexar.wait_all([self.group.all_reduce_start(np.zeros(3))])

        def looked_at():
            request = self.group.all_reduce_start(np.zeros(3))
            self.assertTrue(request.test())
            self.assertEqual(request.completion.name, "peer_lost")

        def polled():
            request = self.group.all_reduce_start(np.zeros(3))
            self.assertEqual([end.request for end in self.session.poll()], [request])

        def blocking():
            with self.assertRaises(nexar.GroupError):
                self.group.all_reduce(np.zeros(3), match_id=5)

        for drop in (waited, all_of_them, looked_at, polled, blocking):
            self.assertEqual(self.dropped(LOSES_RANK, drop), [], drop.__name__)
        self.assertEqual(self.dropped(NEVER_ENDS, lambda: self.group.barrier_start().cancel()), [])
        self.session.poll()

    def test_a_warning_that_is_an_exception_frees_the_slot_all_the_same(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            kept, sys.unraisablehook = sys.unraisablehook, lambda _: None
            try:
                next_op(LOSES_RANK)
                self.group.all_reduce_start(np.zeros(3))
                gc.collect()
            finally:
                sys.unraisablehook = kept
        self.assertEqual(number("fake_open_requests"), 0)

    def test_a_request_that_has_ended_keeps_neither_its_group_nor_its_arrays(self):
        group = self.session.group("brief")
        request, groups = group.barrier_start(), number("fake_open_groups")
        request.wait()
        del group
        self.assertEqual(number("fake_open_groups"), groups - 1)
        self.assertEqual(repr(request), "<nexar.Request barrier: ended>")

    def test_a_persistent_one_is_started_often_and_freed(self):
        x = np.ones(3, np.float32)
        step = self.group.all_reduce_init(x)
        self.assertEqual((repr(step), step.wait()), ("<nexar.Persistent all_reduce of group 'train/1.2': inactive>", None))
        for _ in range(40):  # of 16 slots
            step.start()
            self.assertIs(step.wait(), x)
        next_op(START_FAILS)
        self.assertRaisesRegex(nexar.Error, "refused", step.start)
        self.assertIs(step.wait(), x)  # as if it had not been called
        next_op(LOSES_RANK)
        step.start()
        self.assertEqual(nexar.wait_any([None, step]), 1)
        self.assertIsNone(nexar.wait_any([None, step]))
        self.assertRaises(nexar.GroupError, step.wait)
        next_op(NEVER_ENDS)
        nexar.start_all([step])
        self.assertRaises(TimeoutError, step.wait, 0.01)
        self.assertRaisesRegex(nexar.CallError, "still pending", step.free)
        self.assertEqual(repr(step), "<nexar.Persistent all_reduce of group 'train/1.2': pending>")
        step.cancel()
        self.assertRaises(nexar.OperationError, step.wait)
        step.free()
        step.free()
        self.assertEqual((number("fake_open_requests"), repr(step)), (0, "<nexar.Persistent all_reduce of group 'train/1.2': freed>"))
        for start in (step.start, lambda: nexar.start_all([step])):
            with self.assertRaisesRegex(nexar.CallError, "was freed: prepare it again"):
                start()

    def test_free_finds_the_end_of_the_last_start(self):
        """Which the library has had, and no call: without its slot nobody could ask any more."""
        for outcome in (SUCCEEDS, LOSES_RANK):
            x, called = np.ones(3, np.float32), []
            step = self.group.all_reduce_init(x)
            next_op(outcome)
            step.start()
            step.add_done_callback(called.append)
            step.free()
            self.assertEqual(called, [step])
            if outcome == SUCCEEDS:
                self.assertIs(step.wait(), x)
            else:
                self.assertRaises(nexar.GroupError, step.wait)
            called.clear()

    def test_a_dropped_persistent_one_is_a_warning_where_it_runs_or_has_failed(self):
        def inactive():
            self.group.all_reduce_init(np.zeros(3)).wait()

        def failed():
            step = self.group.all_reduce_init(np.zeros(3))
            next_op(LOSES_RANK)
            step.start()
            self.assertTrue(step.test())

        def runs():
            step = self.group.all_reduce_init(np.zeros(3))
            next_op(NEVER_ENDS)
            step.start()

        self.assertEqual(self.dropped(SUCCEEDS, inactive), [])
        self.assertEqual(number("fake_open_requests"), 0)
        text, = self.dropped(SUCCEEDS, failed)
        self.assertIn("the error of all_reduce of group 'train/1.2' was never seen: all_reduce: peer_lost", text)
        self.assertEqual(number("fake_open_requests"), 0)
        text, = self.dropped(SUCCEEDS, runs)
        self.assertIn("all_reduce of group 'train/1.2' was dropped while it ran", text)
        self.session.poll()

    def test_only_persistent_ones_can_be_started(self):
        request = self.group.barrier_start()
        self.assertRaisesRegex(TypeError, "Request barrier of group 'train/1.2': pending>, which cannot be started", nexar.start_all, [request])
        request.wait()

    def test_what_they_are_is_in_their_repr(self):
        next_op(NEVER_ENDS)
        request = self.group.all_reduce_start(np.zeros(3))
        self.assertEqual(repr(request), "<nexar.Request all_reduce of group 'train/1.2': pending>")
        request.cancel()
        self.assertRaises(nexar.OperationError, request.wait)
        self.assertEqual(repr(request), "<nexar.Request all_reduce of group 'train/1.2': ended with other>")
        self.assertEqual(repr(self.group), "<nexar.Group 'train/1.2': rank 1 of 3, epoch 1>")
        self.assertEqual(repr(self.session), "<nexar.Session at node 00000000: 1 groups, 0 requests>")
        with self.group.mprobe() as message:
            self.assertEqual(repr(message), "<nexar.Message from rank 2, tag 9: 12 bytes>")
        self.assertEqual(repr(message), "<nexar.Message from rank 2, tag 9: 12 bytes, put back or received>")
        with self.session.group("brief") as group:
            pass
        self.assertEqual(repr(group), "<nexar.Group freed: rank 1 of 3, epoch 1>")
        other = nexar.Session()
        other.close()
        self.assertEqual(repr(other), "<nexar.Session: closed>")

    def test_memory_of_a_started_operation_is_kept_until_it_has_ended(self):
        request = self.group.all_reduce_start(self.session.alloc(4))
        gc.collect()
        self.assertEqual(number("fake_memories"), 1)
        request.wait()
        del request
        self.assertEqual(number("fake_memories"), 0)  # at once, without a garbage collection

    def test_loops_of_several_threads_may_begin_to_await_at_once(self):
        """One looks for loops that have been closed while another comes and one is closed."""
        connection, old = self.session._connection, asyncio.new_event_loop()
        connection.reader_of(old)

        class Busy(asyncio.SelectorEventLoop):
            def is_closed(self):
                if not old._closed:
                    old.close()
                    connection.reader_of(another)  # as another thread
                return super().is_closed()

        busy, another, third = Busy(), asyncio.new_event_loop(), asyncio.new_event_loop()
        connection.reader_of(busy)
        connection.reader_of(third)
        self.assertEqual(set(connection.readers), {busy, another, third})
        connection.readers.clear()
        for loop in (busy, another, third):
            loop.close()

    def test_a_loop_that_reads_no_more_keeps_no_request_for_its_callbacks(self):
        """What is asked for a handle that is not known any more raises: nobody awaits it then, and no look comes again."""
        next_op(NEVER_ENDS)
        request = self.group.barrier_start()
        request.add_done_callback(print)

        reader = Reader(self.session._connection, mock.Mock())
        reader.watch(request)
        with mock.patch.object(nexar.Request, "test", side_effect=nexar.CallError(-107, "BAD_HANDLE")):
            reader._read()
        self.assertFalse(self.session._connection.readers)  # it has stopped
        reader.forget(request)  # as the future does that is cancelled
        self.assertEqual(list(reader._called), [])
        request._remove_done_callback(print)
        request.cancel()
        self.assertRaises(nexar.Error, request.wait)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
