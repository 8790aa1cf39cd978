#!/usr/bin/env python3
"""bindings/python over fake_nexar.c: arguments, results, errors, time-outs, Ctrl-C, lifetimes. (Requests: requests_test.py.)

    binding_test.py FAKE_LIBRARY BINDINGS_FOLDER
"""
import ctypes
import gc
import math
import os
import pickle
import signal
import sys
import threading
import time
import unittest

from over_fake import *
from nexar import _arrays, _library, _quick, _words


class Binding(OverFake):
    def test_the_quick_way_is_there_where_it_was_built(self):
        built = any(name.startswith("_native.") and name.endswith(".so") for name in os.listdir(os.path.dirname(nexar.__file__)))
        self.assertEqual(_quick._native is not None, built)

    def test_the_group_knows_rank_size_and_nodes(self):
        self.assertEqual((self.group.rank, self.group.size), (1, 3))
        self.assertEqual((self.session.node, self.group.node(2)), ("5".zfill(64), "2".zfill(64)))

    def test_given_group_options_arrive_and_the_environment_says_the_rest(self):
        with self.session.group("jörg", timeout=1.5, collective_timeout=nexar.NO_TIMEOUT, rpc_timeout=0.0001):
            got = seen(_library.GroupOptions, "fake_group_options")
            self.assertEqual((got.name.decode(), got.job_secret, got.size, got.rank), ("jörg", b"secret", 3, 1))
            self.assertEqual((got.timeout_ms, got.collective_timeout_ms, got.barrier_timeout_ms, got.rpc_timeout_ms),
                             (1500, -2, -1, 1))

    def test_a_given_size_is_enough_where_the_environment_has_none_and_the_library_reads_the_rest(self):
        del os.environ["NEXAR_RANK"]
        os.environ.update(NEXAR_GROUP="its name", NEXAR_BARRIER_TIMEOUT_SECS="0")
        try:
            with self.session.group(size=5):
                got = seen(_library.GroupOptions, "fake_group_options")
                self.assertEqual((got.name, got.size, got.rank, got.barrier_timeout_ms),
                                 (b"its name", 5, nexar.RANK_AUTO, -2))
            with self.assertRaisesRegex(nexar.CallError, "no rank"):
                self.session.group("x")
            os.environ["NEXAR_BARRIER_TIMEOUT_SECS"] = "soon"
            with self.assertRaisesRegex(nexar.CallError, "no number of seconds"):
                self.session.group(size=5)
        finally:
            del os.environ["NEXAR_GROUP"], os.environ["NEXAR_BARRIER_TIMEOUT_SECS"]

    def test_an_opening_can_be_started(self):
        request = self.session.group_start("other", user_data=5)
        with request.wait() as group:
            self.assertIs(request.completion.group, group)
            self.assertEqual((group.rank, group.epoch, request.completion.user_data), (1, 1, 5))

    def test_children_are_groups_or_none(self):
        given = seen(_library.ChildOptions, "fake_child_options")
        colour, key = ctypes.c_uint32.in_dll(fake, "fake_colour"), ctypes.c_int64.in_dll(fake, "fake_key")
        child = self.group.split(7, -3, timeout=1.5, match_id=5, collective_timeout=2, barrier_timeout=nexar.NO_TIMEOUT)
        self.assertIsInstance(child, nexar.Group)
        self.assertIsNot(child, self.group)
        self.assertEqual((colour.value, key.value, given.timeout_ms, given.match_id), (7, -3, 1500, 5))
        self.assertEqual((given.collective_timeout_ms, given.barrier_timeout_ms, given.rpc_timeout_ms), (2000, -2, -1))
        self.assertIsNone(self.group.split(None))
        self.assertEqual(colour.value, 2**32 - 1)
        request = self.group.dup_start(user_data=9)
        twin = request.wait()
        self.assertEqual((request.completion.user_data, request.completion.group), (9, twin))
        with self.group.dup():
            pass
        self.assertEqual(self.group.split_start(2**32 - 2).wait().size, 3)
        for colour in (-1, 2**32 - 1):
            with self.assertRaisesRegex(ValueError, "colour"):
                self.group.split(colour)
        with self.assertRaisesRegex(ValueError, "key"):
            self.group.split(0, 2**63)
        with self.assertRaisesRegex(TypeError, "unknown options"):
            self.group.dup(name="x")
        next_op(LOSES_RANK)
        with self.assertRaises(nexar.GroupError):
            self.group.dup()

    def test_a_group_of_listed_ranks(self):
        given = seen(_library.CreateOptions, "fake_create_options")
        listed = (ctypes.c_uint32 * 4).in_dll(fake, "fake_listed")
        made = self.group.create([2, 0, 1], 7, timeout=1.5, barrier_timeout=2)
        self.assertIsInstance(made, nexar.Group)
        self.assertEqual((list(listed)[:3], given.tag), ([2, 0, 1], 7))
        self.assertEqual((given.timeout_ms, given.collective_timeout_ms, given.barrier_timeout_ms), (1500, -1, 2000))
        request = self.group.create_start((1,), user_data=9)
        made = request.wait()
        self.assertEqual((request.completion.user_data, request.completion.group, given.tag), (9, made, 0))
        for ranks, tag in (([-1], 0), ([2**32], 0), ([0], -1), ([0], 2**64)):
            with self.assertRaises(ValueError):
                self.group.create(ranks, tag)
        with self.assertRaisesRegex(TypeError, "unknown options .'match_id'"):
            self.group.create([0], match_id=3)
        with self.assertRaisesRegex(nexar.Error, "too many"):
            self.group.create(range(5))

    def test_where_a_rank_is(self):
        self.assertEqual(tuple(self.group.member(3)), (3, "abcd", "host", 1003, 1, 3))
        with self.assertRaisesRegex(nexar.Error, "no such rank"):
            self.group.member(5)
        with self.assertRaises(ValueError):
            self.group.member(-1)

    def test_what_a_group_is_and_its_ranks_elsewhere(self):
        with self.group.dup() as child:
            info = child.info()
            self.assertEqual((info.name, info.id, info.epoch, info.rank, info.size, info.nodes),
                             ("train/1.2", (5, 0, 7), 1, 1, 3, 2))
            self.assertEqual((info.parent, info.parent_id), ("train", (0, 9, 0)))
            self.assertEqual((info.collective_timeout, info.barrier_timeout, info.rpc_timeout), (1.5, nexar.NO_TIMEOUT, 0))
            self.assertEqual((info.on_failure, info.plan), (0, (2, 3, 65536, 4, 1 << 22, 5, 6)))
            self.assertEqual(child.translate([2, 0, 1], self.group), [20, None, 10])
            self.assertEqual(child.translate([], self.group), [])
            with self.assertRaises(nexar.CallError):
                child.translate(range(5), self.group)
            with self.assertRaisesRegex(ValueError, r"ranks\[0\] is -1"):
                child.translate([-1], self.group)

    def test_operation_options_arrive(self):
        self.group.barrier()
        got = op_options()
        self.assertEqual((got.priority, got.timeout_ms, got.match_id, got.flags), (-1, -1, 0, 0))
        self.group.barrier(timeout=2.5, match_id=1 << 63, priority=2)
        got = op_options()
        self.assertEqual((got.priority, got.timeout_ms, got.match_id), (2, 2500, 1 << 63))
        self.group.all_reduce(np.zeros(4, np.float32), flags=nexar.FLAG_DETERMINISTIC | nexar.FLAG_F32_PARTIALS)
        self.assertEqual(op_options().flags, 3)
        self.group.barrier(timeout=nexar.NO_TIMEOUT)
        self.assertEqual(op_options().timeout_ms, -2)
        self.group.recv(np.zeros(4, np.int32), timeout=0)
        self.assertEqual(op_options().timeout_ms, 0)
        for given, ms in ((0.0001, 1), (0.0015, 2), (3, 3000), (True, 1000), (np.float64(1.25), 1250), (np.float32(1.5), 1500)):
            self.group.all_reduce(np.zeros(4, np.float32), timeout=given)
            self.assertEqual(op_options().timeout_ms, ms)
        for wrong in (-1, float("nan"), -math.inf):
            self.assertRaises(ValueError, self.group.barrier, timeout=wrong)
            self.assertRaises(ValueError, self.group.send, np.array([42], np.int32), 2, 1 << 40, timeout=wrong)
        for wrong in ({"match_id": -1}, {"match_id": 2**64}, {"flags": -1}, {"priority": 2**32}):
            self.assertRaises(ValueError, self.group.barrier, **wrong)
        self.assertRaises(TypeError, self.group.barrier, deadline=3)

    def test_shares(self):
        self.assertEqual(nexar.shard(10, 3, 2), (12, 3))
        for wrong in ((10, 3, 3), (-1, 3, 0), (10, 1 << 32, 0)):
            self.assertRaises(ValueError, nexar.shard, *wrong)

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
        x = np.arange(6.0)
        self.assertEqual(self.group.reduce_scatterv(x, [1, 3, 2], op="max").tolist(), [1, 2, 3])
        self.assertEqual(self.group.reduce_scatterv(x, [0, 2, 4], x[:2], "max").tolist(), [0, 1])
        x = np.arange(6, dtype=np.int16)
        self.assertEqual(self.group.all_to_all(x, np.zeros_like(x)).tolist(), [2, 3] * 3)
        self.assertEqual(self.group.all_gatherv(np.array([5.0, 6]), [1, 2, 0]).tolist(), [100, 5, 6])
        out = np.array([0.0, 0, 0, 7])
        self.assertIs(self.group.all_gatherv(out[3:], (3, np.int8(1), 0), out), out)
        self.assertEqual(out.tolist(), [100, 100, 100, 7])
        self.assertEqual(self.group.all_gatherv(np.zeros(0), np.array([0, 0, 2])).tolist(), [102, 102])
        self.assertEqual(self.group.all_to_allv(np.array([5.0, 6, 7]), [1, 2, 0], [0, 2, 1]).tolist(), [6, 7, 200])
        out = np.zeros(1)
        self.assertIs(self.group.all_to_allv(np.zeros(0), [0, 0, 0], [1, 0, 0], out), out)
        self.assertEqual(self.group.gatherv(np.array([5.0, 6]), [1, 2, 0], root=1).tolist(), [100, 5, 6])
        self.assertIsNone(self.group.gatherv(np.array([5.0, 6]), [1, 2, 0], np.zeros(1), root=2))
        self.assertEqual(self.group.gather(np.array([5, 6], np.uint64), root=1).tolist(), [[5, 6], [6, 7], [7, 8]])
        self.assertIsNone(self.group.gather(np.array([5, 6], np.uint64), np.zeros(1), root=2))
        self.assertEqual(self.group.scatter(np.arange(6.0), root=1).tolist(), [2, 3])
        out = np.zeros(2)
        self.assertIs(self.group.scatter(None, out, root=2), out)
        self.assertEqual(out.tolist(), [200, 201])
        self.assertEqual(self.group.scatter(np.zeros(1, np.int8), out).tolist(), [0, 1])
        self.assertEqual(self.group.scatterv(np.arange(6.0), [1, 3, 2], root=1).tolist(), [1, 2, 3])
        self.assertIs(self.group.scatterv(None, [1, 2, 0], out, root=2), out)
        self.assertEqual(out.tolist(), [200, 201])
        x = np.arange(3, dtype=np.int32)
        self.assertEqual(self.group.scan(x, np.zeros_like(x)).tolist(), [0, 2, 4])
        self.assertIs(self.group.scan(x), x)
        out = np.zeros_like(x)
        self.assertIs(self.group.exclusive_scan(x, out, "prod"), out)
        self.assertEqual(out.tolist(), x.tolist())
        self.assertIsNone(self.group.barrier())

    def test_a_scalar_is_one_number_that_the_type_has(self):
        x = np.array([3, 4], np.int32)
        for scalar, text in ((0.5, "0.5"), ([1, 2, 3], "3 elements"), (np.array([]), "0 elements"), (1 << 40, "int32"),
                             (float("nan"), "nan")):
            with self.assertRaisesRegex(ValueError, text):
                self.group.all_reduce(x, op="premul_sum", scalar=scalar)
        with self.assertRaisesRegex(ValueError, "uint8"):
            self.group.all_reduce(np.zeros(2, np.uint8), op="premul_sum", scalar=-1)

    def test_messages(self):
        self.group.send(np.array([1, 42], np.int32), to=2, tag=1 << 40)
        room = np.zeros(4, np.int32)
        self.assertEqual(self.group.recv(room), (2, 9, 3))
        self.assertEqual(room.tolist(), [10, 11, 12, 0])
        self.assertEqual(self.group.probe(), (2, 9, 12))
        self.assertEqual(self.group.sendrecv(np.array([42], np.int32), 2, room, send_tag=1 << 40), (2, 9, 3))
        whole = np.zeros(4, np.int32)
        for values, out in ((whole, whole), (whole[:3], whole[2:]), (whole[2:], whole[:3])):
            with self.assertRaisesRegex(ValueError, "overlap: use sendrecv_replace"):
                self.group.sendrecv(values, 2, out, send_tag=1 << 40)
        self.assertEqual(self.group.sendrecv(whole[:1] + 42, 2, whole[1:], send_tag=1 << 40), (2, 9, 2))
        self.group.sendv([np.zeros(3, np.int32), np.array([1, 42], np.int32)], to=2, tag=1 << 40)
        room[:] = 0
        self.assertEqual(self.group.recvv([np.zeros(3, np.int32), room]), (2, 9, 3))
        self.assertEqual(room.tolist(), [10, 11, 12, 0])
        for pieces in ([], [np.zeros(1), np.zeros(1, np.int32)]):
            self.assertRaises(ValueError, self.group.sendv, pieces, 2)

    def test_an_exchange_that_fails_leaves_no_request(self):
        one, room, replaced = np.array([42], np.int32), np.zeros(2, np.int32), np.array([42], np.int32)
        for call in (lambda **o: self.group.sendrecv(one, 2, room, send_tag=1 << 40, **o),
                     lambda **o: self.group.sendrecv_replace(replaced, 2, send_tag=1 << 40, **o)):
            replaced[:] = 42
            for what, error in ((START_FAILS, nexar.CallError), (LOSES_RANK, nexar.GroupError)):
                next_op(what)
                self.assertRaises(error, call)
                self.assertEqual(number("fake_open_requests"), 0)
                replaced[:] = 42
            for wrong in ({"source": -1}, {"source": 2**32}, {"tag": -1}, {"to": -1}, {"priority": 2**31}, {"timeout": -1}):
                with self.assertRaises((ValueError, TypeError, nexar.Error, ctypes.ArgumentError)):
                    self.group.sendrecv(**{"values": one, "to": 2, "out": room, "send_tag": 1 << 40, **wrong})
                self.assertEqual(number("fake_open_requests"), 0, wrong)
            cancels = number("fake_cancels")
            next_op(NEVER_ENDS)
            threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
            self.assertRaises(KeyboardInterrupt, call)
            self.assertEqual(number("fake_open_requests"), 0)
            self.assertGreater(number("fake_cancels"), cancels)

    def test_the_copy_of_a_large_exchange_is_in_shared_memory_and_kept_for_the_next(self):
        whole = np.full(100_000, 42, np.int32)
        memories = []
        for count, what in ((100_000, SUCCEEDS), (50_000, SUCCEEDS), (100_000, LOSES_RANK), (90_000, SUCCEEDS), (100, SUCCEEDS)):
            whole[:] = 42
            next_op(what)
            if what == LOSES_RANK:
                self.assertRaises(nexar.GroupError, self.group.sendrecv_replace, whole[:count], 2, send_tag=1 << 40)
            else:
                self.assertEqual(self.group.sendrecv_replace(whole[:count], 2, send_tag=1 << 40), (2, 9, count - 1))
                self.assertEqual(whole[:count - 1].tolist(), list(range(10, 9 + count)))
            memories.append(number("fake_memories"))
        # After an error a send may still read it: it goes back to the library.
        self.assertEqual(memories, [1, 1, 0, 1, 1] if _quick._native else [0] * 5)
        larger = np.full(200_000, 42, np.int32)
        self.group.sendrecv_replace(larger, 2, send_tag=1 << 40)
        self.assertEqual(number("fake_memories"), memories[0])  # the smaller one is freed; tearDown sees that none is left

    def test_a_copy_that_an_interrupted_exchange_may_still_read_is_no_other_one_s(self):
        whole = np.full(100_000, 42, np.int32)
        self.group.sendrecv_replace(whole, 2, send_tag=1 << 40)
        for _ in range(3):
            before = self.session._connection._spares[:]
            whole[:] = 42
            next_op(NEVER_ENDS)
            threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
            self.assertRaises(KeyboardInterrupt, self.group.sendrecv_replace, whole, 2, send_tag=1 << 40)
            self.assertEqual(self.session._connection._spares, [])
            whole[:] = 42
            self.group.sendrecv_replace(whole, 2, send_tag=1 << 40)
            if _quick._native:
                self.assertEqual(number("fake_memories"), 1)  # the library keeps the other one as long as it is read
                self.assertIsNot(before[0], self.session._connection._spares[0])

    def test_every_form_of_a_message_takes_a_time_out_and_a_priority(self):
        room, piece, whole = np.zeros(4, np.int32), np.array([1, 42], np.int32), np.array([1, 42], np.int32)
        given = {"timeout": 2.5, "priority": nexar.Priority.CRITICAL}
        for call in (lambda **o: self.group.send(piece, 2, 1 << 40, **o), lambda **o: self.group.recv(room, **o),
                     lambda **o: self.group.sendv([piece], 2, 1 << 40, **o), lambda **o: self.group.recvv([room], **o),
                     lambda **o: self.group.probe(**o), lambda **o: self.group.mprobe().recv(room, **o),
                     lambda **o: self.group.sendrecv(piece, 2, room, send_tag=1 << 40, **o),
                     lambda **o: self.group.sendrecv_replace(whole, 2, send_tag=1 << 40, **o),
                     lambda **o: self.group.sendv_start([piece], 2, 1 << 40, user_data=7, **o).wait(),
                     lambda **o: self.group.recvv_start([room], user_data=7, **o).wait(),
                     lambda **o: self.group.probe_start(user_data=7, **o).wait(),
                     lambda **o: self.group.mprobe().recv_start(room, user_data=7, **o).wait()):
            self.group.barrier(timeout=1)
            whole[:] = 1, 42
            call(**given)
            self.assertEqual((op_options().timeout_ms, op_options().priority), (2500, 0))
        ctypes.c_int.in_dll(fake, "fake_stolen").value = 1  # another thread was first: mprobe waits in a probe
        self.group.mprobe(**given).free()
        self.assertEqual((op_options().timeout_ms <= 2500, op_options().priority), (True, 0))

    def test_a_message_that_is_set_apart_is_received_or_put_back(self):
        freed, stolen = (kind.in_dll(nexar._library.lib, name) for kind, name in (
            (ctypes.c_uint64, "fake_freed_message"), (ctypes.c_int, "fake_stolen")))
        stolen.value = 2  # another thread was first, after each of two probes
        message = self.group.mprobe()
        self.assertEqual((stolen.value, message.source, message.tag, message.bytes), (0, 2, 9, 12))
        room = np.zeros(4, np.int32)
        self.assertEqual(message.recv(room), (2, 9, 3))
        message.free()
        del message
        self.assertEqual((room.tolist(), freed.value), ([10, 11, 12, 0], 0))
        with self.group.mprobe() as message:
            pass
        self.assertEqual(freed.value, 5)
        message.free()
        self.assertEqual(freed.value, 5)
        message = self.group.mprobe()
        del message
        self.assertEqual(freed.value, 10)

    def test_arrays_that_cannot_be_used_are_refused_before_the_library_sees_them(self):
        fixed = np.zeros(4, np.float32)
        fixed.flags.writeable = False
        for array in (np.zeros((4, 4), np.float32)[:, 1], np.zeros(4, ">f4"), np.zeros(4, complex), fixed, [1j], [2**64]):
            self.assertRaises(ValueError, self.group.all_reduce, array)
        for values in (2**63, 2**64, -2**63 - 1):
            self.assertRaises(OverflowError, self.group.all_reduce, values)
        x = np.zeros(4, np.float32)
        self.assertRaises(ValueError, self.group.all_reduce, x, np.zeros(4))
        self.assertRaises(ValueError, self.group.all_reduce, x, np.zeros(5, np.float32))
        self.assertRaises(ValueError, self.group.all_reduce, x, op="xor")
        self.assertRaises(ValueError, self.group.all_gather, x, np.zeros(4, np.float32))
        for counts, text in (([4, 4], "counts has 2 entries"), ([4, 3, 4], ""), ([4, 4, -1], r"counts\[2\] is -1; allowed: 0"),
                             ([0, 4, (1 << 63) - 4], "the sum of counts is 9223372036854775808"), ([], "counts has 0 entries")):
            self.assertRaisesRegex(ValueError, text, self.group.all_gatherv, x, counts)
        self.assertRaises(ValueError, self.group.all_gatherv, x, [4, 4, 4], np.zeros(11, np.float32))
        self.assertRaises(ValueError, self.group.all_gatherv, x, [4, 4, 4], np.zeros(12))
        self.assertRaises(ValueError, self.group.gatherv, x, [4, 4, 4], np.zeros(11, np.float32), root=1)
        self.assertRaises(ValueError, self.group.gatherv, x, [4, 3, 4], root=0)
        for sends, receives in (([4, 4], [1, 1, 1]), ([1, 2, 2], [1, 1, 1]), ([1, 2, 1], [1, 1, -1]), ([1, 2, 1], [1])):
            self.assertRaises(ValueError, self.group.all_to_allv, x, sends, receives)
        self.assertRaises(ValueError, self.group.all_to_allv, x, [1, 2, 1], [1, 1, 1], np.zeros(2, np.float32))
        self.assertRaises(ValueError, self.group.all_to_allv, x, [1, 2, 1], [1, 1, 1], np.zeros(3))
        self.assertRaises(ValueError, self.group.scatterv, x, [1, 1, 1], root=1)
        self.assertRaises(ValueError, self.group.scatterv, x, [1, 2, 1], np.zeros(3, np.float32), root=1)
        self.assertRaises(ValueError, self.group.scatterv, None, [1, 2, 1], root=2)
        self.assertRaises(ValueError, self.group.reduce_scatterv, x, [1, 1, 1])
        self.assertRaises(ValueError, self.group.reduce_scatterv, x, [1, 1, 2], np.zeros(2, np.float32))
        self.assertRaises(ValueError, self.group.reduce_scatter, x)  # 4 elements, 3 ranks
        self.assertRaises(ValueError, self.group.all_to_all, x)
        self.assertRaises(ValueError, self.group.gather, x, np.zeros(4, np.float32), root=1)
        self.assertRaises(ValueError, self.group.scatter, x, root=1)
        self.assertRaises(ValueError, self.group.scatter, x, root=0)  # no out, and values are the root's alone
        self.assertRaises(ValueError, self.group.all_to_all, np.zeros(6, np.int16), np.zeros(5, np.int16))

    def test_numbers_lists_buffers_and_tensors_are_memory_too(self):
        self.assertRaises(TypeError, self.group.all_reduce, object())
        self.assertRaises(TypeError, self.group.broadcast, [1, 2])
        self.assertRaises(ValueError, self.group.all_reduce, b"fixed")

        class Tensor:  # as torch's: DLPack, and no buffer
            def __init__(self, array, device=(1, 0)):
                self.array, self.device = array, device

            def __dlpack__(self):
                return self.array.__dlpack__()

            def __dlpack_device__(self):
                return self.device

        array = np.arange(6, dtype=np.int16).reshape(2, 3)
        got = _arrays.array(Tensor(array), True)
        self.assertEqual(got, (array.ctypes.data, 6, nexar.DTYPES["int16"]))
        self.assertRaises(ValueError, _arrays.array, Tensor(array.T), True)
        self.assertRaises(ValueError, _arrays.array, Tensor(array, (2, 0)), True)
        self.assertRaises(ValueError, _arrays.array, Tensor(array.astype(complex)), True)
        some = bytearray(5)
        self.assertEqual(_arrays.array(memoryview(some)[1:4], True)[1:], (3, nexar.DTYPES["uint8"]))

    def test_a_group_that_is_left_by_an_exception_is_aborted_with_its_text(self):
        reason = ctypes.create_string_buffer(512)
        for opens in (lambda: self.session.group("g"), lambda: self.session):
            with self.assertRaises(KeyError), opens():
                raise KeyError("row 7")
            ctypes.memmove(reason, (ctypes.c_char * 512).in_dll(fake, "fake_reason"), 512)
            self.assertEqual(reason.value, b"KeyError: 'row 7'")
            ctypes.memset((ctypes.c_char * 512).in_dll(fake, "fake_reason"), 0, 512)
        self.session = nexar.Session()
        with self.assertRaises(SystemExit), self.session.group("g"):
            sys.exit(0)
        self.assertEqual((ctypes.c_char * 512).in_dll(fake, "fake_reason").value, b"")

    def test_a_deadline_that_passed_is_a_TimeoutError_that_pickles(self):
        next_op(NEVER_ENDS)
        with self.assertRaises(TimeoutError) as caught:
            self.group.barrier(timeout=0.01)
        again = pickle.loads(pickle.dumps(caught.exception))
        self.assertEqual((type(again), str(again), again.rank, again.errno),
                         (nexar.TimedOut, str(caught.exception), 2, caught.exception.errno))

    def test_an_error_of_an_exchange_names_it_and_not_its_halves(self):
        whole, room = np.full(2, 42, np.int32), np.zeros(2, np.int32)
        large = np.full(300000, 42, np.int32)  # whose copy is of the session's

        class Subclass(np.ndarray):  # which goes the general way
            pass

        for name, call in (("sendrecv", lambda: self.group.sendrecv(whole, 2, room, send_tag=1 << 40)),
                           ("sendrecv", lambda: self.group.sendrecv(whole.view(Subclass), 2, room, send_tag=1 << 40)),
                           ("sendrecv_replace", lambda: self.group.sendrecv_replace(whole, 2, send_tag=1 << 40)),
                           ("sendrecv_replace", lambda: self.group.sendrecv_replace(large, 2, send_tag=1 << 40))):
            for first, then in ((START_FAILS, SUCCEEDS), (SUCCEEDS, START_FAILS)):
                with self.subTest(name, first=first, then=then), self.assertRaises(nexar.Error) as caught:
                    next_op(first)
                    ctypes.c_int.in_dll(fake, "fake_then").value = then
                    call()
                self.assertEqual((caught.exception.op, str(caught.exception).split(":")[0]), (name, name))
        for call in (lambda: self.group.sendrecv(whole, 2, whole, send_tag=1), lambda: self.group.sendrecv(object(), 2, room)):
            self.assertRaises((ValueError, TypeError), call)

    def test_numbers_and_texts_that_the_library_would_see_otherwise_are_refused(self):
        with self.assertRaisesRegex(TypeError, "^name is of type int; allowed: text or bytes"):
            self.session.group(name=3, size=3, rank=1)
        with self.assertRaisesRegex(TypeError, "^job_secret is of type int; allowed: text or bytes"):
            self.session.group(name="g", job_secret=3, size=3, rank=1)
        with self.assertRaisesRegex(TypeError, "^socket_path is of type int; allowed: text or bytes"):
            nexar.Session(socket_path=3)
        for zero in (b"\0" * 32, b"01234567890123456789\0abc", "name\0s"):  # C would see what comes before
            for name, call in (("name", lambda: self.session.group(zero, 3, 1)), ("socket_path", lambda: nexar.Session(zero)),
                               ("job_secret", lambda: self.session.group("g", 3, 1, job_secret=zero))):
                with self.assertRaisesRegex(ValueError, f"^{name} has a zero byte; allowed: text or bytes without one") as caught:
                    call()
                self.assertNotIn("0123", str(caught.exception))  # a secret is not shown
        for wrong in (2**32 + 3, -1, 2**64):
            with self.assertRaisesRegex(ValueError, "size is"):
                self.session.group(name="g", size=wrong, rank=1)
            with self.assertRaises((ValueError, ctypes.ArgumentError)):
                self.group.broadcast(np.zeros(4), root=wrong)
            with self.assertRaises((ValueError, ctypes.ArgumentError)):
                self.group.send(np.zeros(4), wrong)
        with self.assertRaisesRegex(ValueError, "match_id is"):
            self.group.barrier(match_id=2**64 + 5)

    def test_a_refused_call_is_a_CallError(self):
        next_op(START_FAILS)
        with self.assertRaisesRegex(nexar.CallError, "refused") as caught:
            self.group.barrier()
        self.assertEqual((caught.exception.code, caught.exception.rank, caught.exception.node), (-101, None, None))

    def test_a_lost_rank_is_a_GroupError_naming_rank_and_node(self):
        next_op(LOSES_RANK)
        with self.assertRaisesRegex(nexar.GroupError, "all_reduce: peer_lost: its process ended") as caught:
            self.group.all_reduce(np.zeros(4, np.float32))
        error = caught.exception
        self.assertEqual((error.rank, error.other_rank, error.node, error.op), (2, None, "a" * 64, "all_reduce"))
        self.assertEqual((error.group, error.epoch, error.sequence, error.host, error.pid, error.errno),
                         ("train", 1, 17, "gpu7", 77, 5))
        self.assertEqual((error.lost_ranks, error.lost_count, error.text), ((0, 2), 2, "its process ended"))

    def test_texts_have_the_names_of_python(self):
        for given, wanted in (
                ("premul_sum has no scalar: set nexar_op_options.scalar to one element", "premul_sum has no scalar: set scalar= to one element"),
                ("nexar_op_options.scalar is for NEXAR_PREMUL_SUM only; must be NULL", 'scalar= is for op="premul_sum" only; must be None'),
                ("nexar_op_options.flags is 8; messages have none: 0", "flags= is 8; messages have none: 0"),
                ("connect_timeout_ms of the session allows more", "connect_timeout= of the session allows more"),
                ("To wait longer: timeout_ms, or NEXAR_OPEN_TIMEOUT_SECS", "To wait longer: timeout=, or NEXAR_OPEN_TIMEOUT_SECS"),
                ("allowed: NEXAR_PRIORITY_DEFAULT (-1), NEXAR_PRIORITY_CRITICAL (0)", "allowed: None, nexar.Priority.CRITICAL (0)"),
                ("allowed: 0 and more, NEXAR_TIMEOUT_DEFAULT (-1), NEXAR_TIMEOUT_NONE (-2)", "allowed: 0 and more, None, nexar.NO_TIMEOUT"),
                ("use memory from nexar_alloc", "use memory from session.alloc"),
                ("a group per thread (nexar_group_dup)", "a group per thread (group.dup)"),
                ("this thread is between nexar_ops_begin and nexar_ops_end, where", "this thread is inside session.ops(), where"),
                ("a message cannot be sent with NEXAR_ANY_TAG", "a message cannot be sent with nexar.ANY_TAG"),
                ("set NEXAR_RANK and NEXAR_WORLD_SIZE", "set NEXAR_RANK and NEXAR_WORLD_SIZE")):
            self.assertEqual(_words.in_python(given), wanted)

    def test_errors_can_be_pickled(self):
        next_op(LOSES_RANK)
        with self.assertRaises(nexar.GroupError) as caught:
            self.group.all_reduce(np.zeros(4, np.float32))
        again = pickle.loads(pickle.dumps(caught.exception))
        self.assertIs(type(again), nexar.GroupError)
        self.assertEqual((str(again), vars(again)), (str(caught.exception), vars(caught.exception)))

    def test_no_daemon_says_so(self):
        with self.assertRaisesRegex(nexar.Error, "nobody listens at /nowhere"):
            nexar.Session("/nowhere")

    def test_the_timeout_of_a_blocking_call_is_the_operations_own(self):
        cancels = number("fake_cancels")
        next_op(NEVER_ENDS)
        with self.assertRaises(nexar.OperationError) as caught:
            self.group.barrier(timeout=0.01)
        self.assertEqual((caught.exception.name, caught.exception.rank), ("timed_out", 2))  # the late one is named
        self.assertEqual(number("fake_cancels"), cancels)

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
        self.assertRaises(nexar.OperationError, request.wait)

    def test_a_collective_beside_another_threads_is_refused(self):
        ends = []

        def blocks():
            try:
                self.group.barrier(timeout=0.4)
            except nexar.Error as error:
                ends.append(error.name)

        next_op(NEVER_ENDS)
        thread = threading.Thread(target=blocks)
        thread.start()
        while number("fake_open_requests") == 0:
            time.sleep(0.001)  # sleep: between two looks
        for call in (self.group.barrier, self.group.barrier_start):
            with self.assertRaisesRegex(nexar.CallError, "another thread") as caught:
                call()
            self.assertEqual(caught.exception.code, -102)
        self.group.send(np.array([1, 42], np.int32), to=2, tag=1 << 40)  # messages may
        thread.join()
        self.assertEqual(len(ends), 1)
        self.group.barrier()

    def test_kinds_of_memory(self):
        for arguments, flags in ({}, 0), ({"lazy": True}, 1), ({"lazy": True, "huge_pages": True}, 3):
            self.session.alloc(4, **arguments)
            self.assertEqual(seen(_library.AllocOptions, "fake_alloc_options").flags, flags)
        x = np.zeros(4)
        self.assertIs(self.session.register_memfd(x, 6, 4096), x)
        self.session.unregister(x)
        self.assertEqual(number("fake_registered"), 0)
        self.assertEqual(self.session.stats()["waits_slept"], 9)

    def test_an_array_outlives_the_session_it_came_from(self):
        x = self.session.alloc(4)[1:]
        self.session.close()
        self.assertRaises(ValueError, self.session.alloc, 4)
        x[:] = 5
        self.assertEqual(x.sum(), 15)
        del x

    def test_an_empty_array_is_fine(self):
        self.assertEqual(self.group.all_reduce(self.session.alloc(0)).size, 0)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
