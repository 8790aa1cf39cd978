#!/usr/bin/env python3
"""bindings/python/nexar.py over fake_nexar.c: arguments, results, errors, time-outs, Ctrl-C, lifetimes.

    binding_test.py FAKE_LIBRARY BINDINGS_FOLDER
"""
import ctypes
import gc
import os
import signal
import sys
import threading
import time
import unittest

try:
    import numpy as np
except ImportError:
    print("numpy is not installed: skipped")
    sys.exit(77)

os.environ["NEXAR_LIBRARY"], folder = os.path.abspath(sys.argv[1]), sys.argv[2]
sys.path.insert(0, folder)
import nexar

fake = ctypes.CDLL(os.environ["NEXAR_LIBRARY"])
SUCCEEDS, START_FAILS, LOSES_RANK, NEVER_ENDS, INTERRUPTS = range(5)


def number(name):
    return ctypes.c_int.in_dll(fake, name).value


def next_op(what):
    ctypes.c_int.in_dll(fake, "fake_next").value = what


class Binding(unittest.TestCase):
    def setUp(self):
        self.session = nexar.Session()
        self.group = self.session.group()

    def tearDown(self):
        self.session.close()
        del self.session, self.group
        gc.collect()
        counts = {name: number(name) for name in ("fake_open_requests", "fake_open_groups", "fake_open_sessions",
                                                  "fake_memories")}
        self.assertEqual(set(counts.values()), {0}, counts)

    def test_the_group_knows_rank_size_and_nodes(self):
        self.assertEqual((self.group.rank, self.group.size), (1, 3))
        self.assertEqual((self.session.node, self.group.node(2)), ("5".zfill(64), "2".zfill(64)))

    def test_given_group_options_arrive(self):
        class Options(ctypes.Structure):
            _fields_ = nexar._GroupOptions._fields_

        with self.session.group("jörg", size=5, timeout=1.5, collective_timeout=0):
            got = Options.in_dll(fake, "fake_group_options")
            self.assertEqual((got.name.decode(), got.size, got.rank, got.timeout_ms, got.collective_timeout_ms),
                             ("jörg", 5, nexar.RANK_AUTO, 1500, 0))

    def test_collectives_give_their_results(self):
        x = self.session.alloc((2, 3))
        x[:] = np.arange(6).reshape(2, 3)
        self.assertIs(self.group.all_reduce(x), x)
        np.testing.assert_array_equal(x, 3 * np.arange(6).reshape(2, 3))
        out = np.zeros((2, 3), np.float32)
        self.assertIs(self.group.all_reduce(x, out), out)
        self.assertEqual(out[1, 2], 45)
        self.assertIsNone(self.group.reduce(x, root=0))
        self.assertIs(self.group.reduce(x, out, root=1), out)
        self.assertEqual(self.group.broadcast(np.zeros(3, np.uint8), root=2).tolist(), [7, 7, 7])
        gathered = self.group.all_gather(np.array([5, 6], np.uint64))
        self.assertEqual(gathered.tolist(), [[5, 6], [6, 7], [7, 8]])
        self.assertEqual(self.group.reduce_scatter(np.arange(6.0), op="max").tolist(), [2, 3])
        self.assertIsNone(self.group.barrier())

    def test_messages(self):
        self.group.send(np.array([1, 42], np.int32), to=2, tag=1 << 40)
        room = np.zeros(4, np.int32)
        self.assertEqual(self.group.recv(room), (2, 9, 3))
        self.assertEqual(room.tolist(), [10, 11, 12, 0])

    def test_arrays_that_cannot_be_used_are_refused_before_the_library_sees_them(self):
        fixed = np.zeros(4, np.float32)
        fixed.flags.writeable = False
        for array in (np.zeros((4, 4), np.float32)[:, 1], np.zeros(4, ">f4"), np.zeros(4, complex), fixed, [1.0]):
            self.assertRaises(ValueError, self.group.all_reduce, array)
        x = np.zeros(4, np.float32)
        self.assertRaises(ValueError, self.group.all_reduce, x, np.zeros(4))
        self.assertRaises(ValueError, self.group.all_reduce, x, np.zeros(5, np.float32))
        self.assertRaises(ValueError, self.group.all_reduce, x, op="xor")
        self.assertRaises(ValueError, self.group.all_gather, x, np.zeros(4, np.float32))
        self.assertRaises(ValueError, self.group.reduce_scatter, x)  # 4 elements, 3 ranks

    def test_a_refused_call_is_a_CallError(self):
        next_op(START_FAILS)
        with self.assertRaisesRegex(nexar.CallError, "refused") as caught:
            self.group.barrier()
        self.assertEqual((caught.exception.code, caught.exception.rank, caught.exception.node), (-1, None, None))

    def test_a_lost_rank_is_a_GroupError_naming_rank_and_node(self):
        next_op(LOSES_RANK)
        with self.assertRaisesRegex(nexar.GroupError, "all_reduce: peer_lost: its process ended") as caught:
            self.group.all_reduce(np.zeros(4, np.float32))
        error = caught.exception
        self.assertEqual((error.rank, error.other_rank, error.node, error.op), (2, None, "a" * 64, "all_reduce"))

    def test_no_daemon_says_so(self):
        with self.assertRaisesRegex(nexar.Error, "nobody listens at /nowhere"):
            nexar.Session("/nowhere")

    def test_started_operations_can_be_tested_waited_for_and_cancelled(self):
        request = self.group.barrier_start()
        self.assertTrue(request.test())
        self.assertIsNone(request.wait())
        self.assertIsNone(request.wait())  # the same answer for ever
        next_op(NEVER_ENDS)
        request = self.group.barrier_start()
        self.assertFalse(request.test())
        self.assertRaises(TimeoutError, request.wait, 0.01)
        self.assertFalse(request.test())
        request.cancel()
        self.assertRaises(nexar.RetriableError, request.wait)
        self.assertRaises(nexar.RetriableError, request.wait)

    def test_a_blocking_call_whose_time_is_up_ends_the_operation(self):
        next_op(NEVER_ENDS)
        with self.assertRaises(nexar.RetriableError) as caught:
            self.group.barrier(timeout=0.01)
        self.assertEqual(caught.exception.name, "timed_out")

    def test_ctrl_c_ends_a_blocking_call_and_cancels_its_operation(self):
        cancels, interrupts, begin = number("fake_cancels"), number("fake_interrupts"), time.monotonic()
        next_op(NEVER_ENDS)
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
        self.assertRaises(KeyboardInterrupt, self.group.barrier)
        self.assertLess(time.monotonic() - begin, 3)
        self.assertEqual(number("fake_cancels"), cancels + 1)
        self.assertLessEqual(number("fake_interrupts"), interrupts + 1)

    def test_a_signal_that_raises_nothing_does_not_end_a_wait(self):
        seen = []
        kept = signal.signal(signal.SIGUSR1, lambda *_: seen.append(1))
        next_op(NEVER_ENDS)
        request = self.group.barrier_start()
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        self.assertRaises(TimeoutError, request.wait, 0.3)
        signal.signal(signal.SIGUSR1, kept)
        self.assertEqual(seen, [1])
        request.cancel()
        self.assertRaises(nexar.RetriableError, request.wait)

    def test_an_interrupted_group_open_is_tried_again(self):
        next_op(INTERRUPTS)
        self.session.group().free()

    def test_an_array_outlives_the_session_it_came_from(self):
        x = self.session.alloc(4)[1:]
        self.session.close()
        self.assertRaises(ValueError, self.session.alloc, 4)
        x[:] = 5
        self.assertEqual(x.sum(), 15)
        del x

    def test_memory_of_a_started_operation_is_kept_until_it_has_ended(self):
        request = self.group.all_reduce_start(self.session.alloc(4))
        gc.collect()
        self.assertEqual(number("fake_memories"), 1)
        request.wait()
        del request
        gc.collect()
        self.assertEqual(number("fake_memories"), 0)

    def test_an_empty_array_is_fine(self):
        self.assertEqual(self.group.all_reduce(self.session.alloc(0)).size, 0)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
