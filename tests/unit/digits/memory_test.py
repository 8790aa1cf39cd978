#!/usr/bin/env python3
"""bindings/python over fake_nexar.c: what memory is, by the quick way and by the general one; docs/protocol/python.md.

    memory_test.py FAKE_LIBRARY BINDINGS_FOLDER
"""
import array
import contextlib
import ctypes
import gc
import sys
import types
import unittest
import weakref
from unittest import mock

from over_fake import *
from started_test import TAG, ended, general, outcome
from nexar import _arrays, _quick

BOTH = contextlib.nullcontext, general


class Tensor:
    """As torch's: DLPack, and no buffer."""

    def __init__(self, values, device=(1, 0)):
        self.values, self.device = values, device

    def __dlpack__(self):
        return self.values.__dlpack__()

    def __dlpack_device__(self):
        return self.device


def floats():
    return array.array("f", [1, 1, 1])


def pairs(value, index):
    return np.zeros(3, [("value", value), ("index", index)])


class Memory(OverFake):
    def calls(self):
        """name: (what it gives, what begins it), of memory that is no numpy array."""
        group, tensor = self.group, Tensor(np.ones(3, np.float32))
        ints, room = array.array("i", [1, 42]), array.array("i", bytes(16))

        def both(name, *arguments, **given):
            method = getattr(group, name)
            return method, getattr(group, f"{name}_start"), arguments, given

        return {
            "array": both("all_reduce", floats()), "array, out": both("all_reduce", floats(), floats()),
            "memoryview": both("all_reduce", memoryview(floats())), "ctypes": both("all_reduce", (ctypes.c_float * 3)(1, 1, 1)),
            "bytes, out": both("all_reduce", b"12345", bytearray(5)), "2 x 2": both("all_reduce", memoryview(bytes(16)).cast("f", (2, 2)), (ctypes.c_float * 4)()),
            "tensor": both("all_reduce", tensor), "tensor, out": both("all_reduce", tensor, np.zeros(3, np.float32)),
            "subclass": both("all_reduce", np.ones(3, np.float32).view(np.recarray)),
            "pairs": both("all_reduce", pairs("f4", "i4"), op="minloc"), "pairs, out": both("all_reduce", pairs("f8", "i8"), pairs("f8", "i8"), "maxloc"),
            "bool": both("all_reduce", np.ones(3, bool), op="land"), "empty": both("all_reduce", bytearray()),
            "empty array": both("all_reduce", array.array("d")), "0-d": both("all_reduce", np.array(1.5)),
            "number": both("all_reduce", 1.5), "int": both("all_reduce", 3), "truth": both("all_reduce", True, op="band"),
            "list": both("all_reduce", [1.5, 2.5]), "tuple": both("all_reduce", ((1, 2), (3, 4))), "generic": both("all_reduce", np.float32(2)),
            "list, out": both("all_reduce", [1, 1, 1], np.zeros(3, np.int64)), "none": both("all_reduce", []), "large": both("all_reduce", 2**63 - 1),
            "reduce list": both("reduce", [1.0, 2.0], root=1), "reduce elsewhere": both("reduce", [1.0, 2.0], root=0),
            "all_gather": both("all_gather", array.array("Q", [5, 6])), "all_gather list": both("all_gather", [2**63, 2**63 + 1]),
            "all_gather tensor": both("all_gather", Tensor(np.array([5, 6], np.uint64))), "gather": both("gather", memoryview(array.array("Q", [5])), root=1),
            "reduce_scatter": both("reduce_scatter", array.array("d", range(6)), op="max"), "reduce_scatter list": both("reduce_scatter", [0.0, 1, 2, 3, 4, 5], op="max"),
            "scatter": both("scatter", array.array("d", range(6)), root=1), "all_gatherv": both("all_gatherv", array.array("d", [5, 6]), [1, 2, 0]),
            "all_gatherv list": both("all_gatherv", [5.0, 6], [1, 2, 0]), "all_to_allv": both("all_to_allv", [5.0, 6, 7], [1, 2, 0], [0, 2, 1]),
            "broadcast": both("broadcast", bytearray(3), root=2), "broadcast tensor": both("broadcast", Tensor(np.zeros(3, np.uint8)), root=2),
            "send": both("send", ints, 2, TAG), "recv": both("recv", room),
            "recv tensor": both("recv", Tensor(np.zeros(4, np.int32))),
            "sendv": both("sendv", [np.int32(5), ints], 2, TAG), "sendv, tuple": both("sendv", (ints, ints), 2, TAG),
            "recvv": both("recvv", [ints, Tensor(np.zeros(4, np.int32))]),
            "scalar": both("all_reduce", np.ones(3), op="premul_sum", scalar=0.5)}

    def test_both_ways_do_the_same_with_all_memory(self):
        """[P19] Blocking and begun: the result and its type, the completion, the options, and what is in the memory."""
        for name in self.calls():
            found = []
            for way in BOTH:
                for begins in (False, True):
                    blocking, start, arguments, given = self.calls()[name]
                    with way():
                        request = start(*arguments, **given, user_data=7) if begins else None
                        got = request.wait() if begins else blocking(*arguments, **given)
                        options = op_options()
                    same = next((i for i, each in enumerate(arguments) if each is got), None)
                    found.append((type(got).__name__, same, outcome(lambda: got) if same is None else None, options.timeout_ms,
                                  [np.asarray(each).tobytes() for each in arguments if isinstance(each, (bytearray, array.array))],
                                  bool(options.scalar)))
                    if begins:
                        self.assertEqual(ended(request)[2], 7)
            self.assertEqual([str(each) for each in found], [str(found[0])] * 4, name)

    def test_the_quick_way_takes_it(self):
        """Else the test above would compare the general way with itself."""
        if _quick._native is None:
            self.skipTest("it was not built")
        slow = {"sendv, tuple", "subclass"}
        for name, (_, start, arguments, given) in self.calls().items():
            request = start(*arguments, **given)
            self.assertEqual(request._op.startswith("nexar_"), name in slow, name)
            request.wait()

    def test_both_ways_refuse_the_same_memory(self):
        """[P19] The same exception, and nothing is left."""
        group, x, fixed = self.group, np.ones(3, np.float32), np.ones(3, np.float32)
        fixed.flags.writeable = False
        strided, foreign = memoryview(floats())[::2], np.ones(3, ">i2")

        class ReadOnly(Tensor):
            readonly = True

        class Refuses(Tensor):
            def __dlpack__(self):
                raise RuntimeError("it requires grad")

        class Fails(Tensor):
            def __dlpack__(self):
                raise KeyError("its own")

        values = [b"fixed", memoryview(b"fixed"), memoryview(fixed), strided, memoryview(foreign), array.array("u", "abc"), (ctypes.c_char * 3)(),
                  Tensor(x[::2]), Tensor(x.astype(complex)), Tensor(np.ones((2, 3)).T), ReadOnly(x), Refuses(x),
                  Fails(x), [[1], [2, 3]], ["text"], [None], [2**64], np.zeros(3, [("value", "f8"), ("index", "i4")]),
                  np.zeros(3, np.dtype([("value", "f8"), ("index", "i4")], align=True)), object(), None, {1: 2}, "text", 1j, np.datetime64(1, "s")]
        calls = [lambda v=v, f=f: f(v) for v in values for f in (
            group.all_reduce, group.all_reduce_start, group.recv, group.recv_start, lambda v: group.recvv([v]), lambda v: group.all_reduce(x.copy(), v),
            lambda v: group.sendrecv(np.array([42], np.int32), 2, v, send_tag=TAG), lambda v: group.broadcast(v, root=0))]
        calls += [lambda o=o: group.all_reduce(floats(), o) for o in (floats()[:2], array.array("d", [1, 1, 1]), bytearray(12), [1, 2, 3], 5)]
        calls += [lambda s=s, d=d: group.all_reduce(np.ones(2, d), op="premul_sum", scalar=s) for d in (np.int8, np.uint64, bool, np.float32) for s in (
            128, -129, 1 << 70, 0.5, "2", [1, 2], 1j, float("nan"), np.uint8(200), object(), b"x")]
        calls += [lambda p=p: group.sendv(p, 2, TAG) for p in ([], [floats(), 1], [floats(), "text"], 7, None)]
        calls += [lambda c=c: self.session.poll(c) for c in (-1, "1", 1.5)]
        for i, call in enumerate(calls):
            quick = outcome(call)
            with general():
                self.assertEqual(quick, outcome(call), i)
        gc.collect()
        self.assertEqual((self.session._connection.requests, number("fake_open_requests")), ({}, 0))

    def test_a_tensor_that_gives_copies_is_refused(self):
        """[P15] [P19] A result would go to a copy that nobody sees, and what is read later would be gone; in each form, in both ways."""
        class Copies(Tensor):
            def __dlpack__(self):
                return self.values.copy().__dlpack__()

        group, x, copies = self.group, np.ones(3), Copies(np.ones(3))
        for way in BOTH:
            for call in (group.all_reduce, group.all_reduce_start, group.all_reduce_init, lambda v: group.all_reduce(x, v), lambda v: group.all_reduce_start(x, v),
                         lambda v: group.all_reduce(v, x), lambda v: group.all_reduce_init(x, v), lambda v: group.all_gather(v), group.recv, group.recv_start,
                         lambda v: group.send(v, 2), lambda v: group.send_start(v, 2), lambda v: group.recvv([v]), lambda v: group.sendv([v], 2),
                         lambda v: group.broadcast(v, root=1), lambda v: group.mprobe().recv(v), lambda v: group.sendrecv_replace(v, 2)):
                with way():
                    self.assertRaisesRegex(ValueError, "a copy at each export", call, copies)
            with way():
                empty = Copies(np.ones(0))
                self.assertIs(group.all_reduce(empty), empty)

    def test_tensors_of_torch_give_their_own_memory(self):
        """[P19] Asked without DLPack; but for what has the negative bit, whose memory is not what it shows. In both ways."""
        class Torch(Tensor):
            asked, negative, is_cpu, requires_grad, dtype = 0, False, True, False, "a float"

            def __dlpack__(self):
                Torch.asked += 1
                return super().__dlpack__()

            def is_neg(self):
                return self.negative

            def is_contiguous(self):
                return True

            def data_ptr(self):
                return self.values.ctypes.data

            def numel(self):
                return self.values.size

        x, other = Torch(np.ones(3)), Torch(np.ones(3))
        other.negative = True
        kept = set(_arrays.ARRAYS)
        with mock.patch.dict(sys.modules, torch=types.SimpleNamespace(Tensor=Torch, float64=Torch.dtype)):
            for way in BOTH:
                for call in (self.group.all_reduce, lambda v: self.group.all_reduce_start(v).wait()):
                    with way():
                        Torch.asked = 0
                        self.assertIs(call(x), x)
                        if way is not general and _quick._native is not None:
                            self.assertEqual(Torch.asked, 0)
                        self.assertRaisesRegex(ValueError, "negative bit", call, other)
        _arrays.ARRAYS.intersection_update(kept)

    def test_what_a_rank_need_not_give_is_not_looked_at(self):
        """[P19] The values of a scatter's other ranks, and what is no output."""
        class Refuses:
            def __dlpack__(self):
                raise RuntimeError("looked at")
            __dlpack_device__ = __dlpack__

        for way in BOTH:
            with way():
                for name, counts in (("scatter", ()), ("scatterv", ([1, 2, 0],))):
                    for values in ([[1], [2, 3]], "text", [1, 2], 7):  # the first is no array
                        out = np.zeros(2)
                        self.assertIs(getattr(self.group, name)(values, *counts, out, root=2), out)
                        self.assertIs(getattr(self.group, f"{name}_start")(values, *counts, out, root=2).wait(), out)
                for start in (lambda: self.group.scatter_start(Refuses(), np.zeros(2), root=2), lambda: self.group.scatterv_start(Refuses(), [1, 2, 0], np.zeros(2), root=2),
                              lambda: self.group.gather_start(np.zeros(2, np.uint64), Refuses(), root=2), lambda: self.group.reduce_start(np.ones(2), Refuses(), root=0)):
                    start().wait()

    def test_an_empty_result_may_have_no_address(self):
        """[P19] As an empty tensor of torch: that there is an output is not what its pointer says."""
        def nothing():
            return (ctypes.c_double * 0).from_address(0)

        for way in BOTH:
            with way():
                for name, arguments, root in (("scatterv", (None, [3, 0, 0]), {"root": 2}), ("reduce_scatterv", (np.ones(3), [3, 0, 0]), {"op": "max"}),
                                              ("all_gatherv", (nothing(), [0, 0, 0]), {}), ("all_to_allv", (nothing(), [0, 0, 0], [0, 0, 0]), {})):
                    out = nothing()
                    self.assertIs(getattr(self.group, name)(*arguments, out, **root), out, name)
                    self.assertIs(getattr(self.group, f"{name}_start")(*arguments, out, **root).wait(), out, name)
                self.assertIsNone(self.group.gatherv(np.zeros(0), [0, 0, 0], nothing(), root=2))

    def test_what_is_raised_within_a_tensors_own_code_is_raised(self):
        """[P18] [P19] Once, as by the handler of a signal: asked again, the tensor would give its memory. In both ways."""
        class Once(Tensor):
            kind, late = None, None

            def __dlpack__(self):
                kind, self.kind = self.kind, None
                if kind is not None:
                    raise kind("once")
                return super().__dlpack__()

            @property
            def readonly(self):
                late, self.late = self.late, None
                raise late or AttributeError

        def once(kind):
            made = Once(np.ones(3, np.int32))
            made.kind = kind
            return made

        for kind in (RuntimeError, TypeError, BufferError, ValueError, OverflowError, KeyError, KeyboardInterrupt):
            for way in BOTH:
                for call in (self.group.all_reduce, self.group.all_reduce_start, lambda x: self.group.recv(x), self.group.all_gather,
                             lambda x: self.group.recvv([x]), lambda x: self.group.mprobe().recv(x)):
                    with way(), self.assertRaises(BaseException) as caught:
                        call(once(kind))
                    error = caught.exception
                    self.assertIn(kind, (type(error), type(error.__cause__)))
                    self.assertEqual(issubclass(kind, (RuntimeError, TypeError, BufferError)), error.__cause__ is not None)
                    error = caught = None
        for way in BOTH:
            with way():
                tensor = once(None)
                tensor.late = KeyboardInterrupt
                self.assertRaises(KeyboardInterrupt, self.group.recv, tensor)

    def test_a_scalar_whose_own_code_raises(self):
        """[P19] Its exception, and no SystemError."""
        class Fails(bytearray):
            @property
            def __class__(self):
                raise ZeroDivisionError

        found = outcome(lambda: self.group.all_reduce(np.ones(2, np.uint8), op="premul_sum", scalar=Fails(b"x")))
        self.assertIn(found[0], (ZeroDivisionError, 1))  # the general way does not ask for its class

    def test_an_exporters_code_does_not_see_the_exception_of_another(self):
        """What a capsule's end calls, when the second memory of a call raises."""
        class Struct(ctypes.Structure):  # dlpack.h, version 0
            _fields_ = [("data", ctypes.c_void_p), ("device", ctypes.c_int32), ("number", ctypes.c_int32), ("dimensions", ctypes.c_int32),
                        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.c_void_p),
                        ("strides", ctypes.c_void_p), ("offset", ctypes.c_uint64)]

        memory, shape, ended = (ctypes.c_int32 * 2)(1, 42), (ctypes.c_int64 * 1)(2), []
        struct = Struct(ctypes.addressof(memory), 1, 0, 1, 0, 32, 1, ctypes.addressof(shape), None, 0)
        end = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(lambda _: ended.append(len(str(12))))
        new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(("PyCapsule_New", ctypes.pythonapi))

        class Exports:
            def __dlpack__(self):
                return new(ctypes.addressof(struct), b"dltensor", ctypes.cast(end, ctypes.c_void_p))

            def __dlpack_device__(self):
                return 1, 0

        class Fails(Exports):
            def __dlpack__(self):
                raise KeyError("its own")

        for call in (lambda: self.group.all_reduce(Exports(), Fails()), lambda: self.group.sendv([Exports(), Fails()], 2, TAG),
                     lambda: self.group.sendrecv(Fails(), 2, Exports(), send_tag=TAG)):
            ended.clear()
            with mock.patch.object(sys, "unraisablehook", mock.Mock()) as hook:
                self.assertRaisesRegex(KeyError, "its own", call)
            self.assertEqual((len(ended) > 0, hook.mock_calls), (True, []))

    def test_a_scalar_arrives_as_an_element_of_the_dtype(self):
        """[P19]"""
        given = (0.5, 3, True, np.float32(0.25), np.float64(-2.5), np.int8(-3), np.array([7], np.int16), np.array(0.1), 1 << 53, (1 << 62) + 1, -0.0,
                 float("inf"), 200, -7, 1e300)
        for dtype in ("f4", "f8", "f2", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?"):
            for scalar in given:
                found = []
                for way in BOTH:
                    with way():
                        found.append(outcome(lambda: self.scalar(np.ones(2, dtype), scalar)))
                self.assertEqual(found[0], found[1], (dtype, scalar))
        self.assertEqual(self.scalar(np.ones(2, np.float32), 0.5), np.float32(0.5).tobytes())

    def scalar(self, x, scalar):
        """The bytes that arrive."""
        ctypes.c_int.in_dll(fake, "fake_scalar_bytes").value = x.itemsize
        self.group.all_reduce(x, op="premul_sum", scalar=scalar)
        return bytes((ctypes.c_char * 16).in_dll(fake, "fake_scalar")[:x.itemsize])

    def test_a_bfloat16_scalar_is_rounded_to_the_nearest(self):
        """numpy has no such dtype; tensors do."""
        for value, bits in ((0.5, 0x3F00), (1.0, 0x3F80), (1 + 2**-8, 0x3F80), (1 + 3 * 2**-8, 0x3F82), (1 + 2**-8 + 2**-20, 0x3F81), (-2, 0xC000),
                            (float("inf"), 0x7F80), (3.4e38, 0x7F80), (float("nan"), 0x7FC0)):
            self.assertEqual(_arrays.scalar_of(value, nexar.DTYPES["bfloat16"]).tolist(), [bits], value)

    def test_a_buffer_cannot_be_resized_while_its_operation_runs(self):
        """[P15] In each form; at its end it can."""
        pieces, group = [array.array("i", [1, 42])], self.group
        for name, begin, some in (
                ("in place", lambda x: group.all_reduce_start(x, timeout=60), bytearray(8)),
                ("to out", lambda x: group.all_reduce_start(np.zeros(8, np.uint8), x, timeout=60), bytearray(8)),
                ("from", lambda x: group.all_reduce_start(x, np.zeros(8, np.uint8), timeout=60), bytearray(8)),
                ("broadcast", lambda x: group.broadcast_start(x, root=0, timeout=60), bytearray(8)),
                ("gather", lambda x: group.all_gather_start(x), array.array("Q", [1])),
                ("sum", lambda x: group.reduce_scatterv_start(x, [1, 2, 3], op="max"), array.array("d", range(6))),
                ("send", lambda x: group.send_start(x, 2, TAG), array.array("i", [1, 42])),
                ("recv", lambda x: group.recv_start(x), array.array("i", [0, 0])),
                ("set apart", lambda x: group.mprobe().recv_start(x), array.array("i", [0, 0])),
                ("sendv", lambda x: group.sendv_start([x], 2, TAG), array.array("i", [1, 42])),
                ("recvv", lambda x: group.recvv_start([x]), array.array("i", [0, 0]))):
            for way in BOTH:
                with way():
                    next_op(NEVER_ENDS)
                    request = begin(some)
                    for resize in (lambda: some.append(0), lambda: some.pop()):
                        with self.assertRaises(BufferError, msg=(name, way)):
                            resize()
                    gc.collect()
                    request.cancel()
                    self.assertRaises(nexar.OperationError, request.wait)
                    some.append(some.pop())
                    next_op(START_FAILS)
                    with self.assertRaises(nexar.CallError) as kept:
                        begin(some)
                    some.append(some.pop())
                    del kept
                    some.append(some.pop())
        persistent = group.all_reduce_init(some := bytearray(8))
        self.assertRaises(BufferError, some.append, 0)
        persistent.free()
        some.append(0)

    def test_a_tensor_is_held_by_its_capsule_while_its_operation_runs(self):
        """[P15] The object gives its memory away: what was exported stays."""
        for way in BOTH:
            x = np.ones(3, np.float32)
            alive, tensor = weakref.ref(x), Tensor(x)
            next_op(NEVER_ENDS)
            with way():
                request = self.group.all_reduce_start(tensor, timeout=60)
            tensor.values = None
            del x
            gc.collect()
            self.assertIsNotNone(alive())
            request.cancel()
            self.assertRaises(nexar.OperationError, request.wait)
            self.assertIsNone(alive())

    def test_a_tensor_whose_code_enters_a_collective_does_not_get_past_the_gate(self):
        """It runs before the library is called: what it has begun meanwhile counts."""
        if _quick._native is None:
            self.skipTest("the general way is past it before it looks at memory")
        group, other = self.group, []

        class Blocks(Tensor):
            def __dlpack__(self):
                group._gate[0] = 1
                return super().__dlpack__()

        with self.assertRaisesRegex(nexar.CallError, "another thread"):
            other.append(group.all_reduce(Blocks(np.ones(3, np.float32))))
        self.assertEqual((other, number("fake_open_requests")), ([], 0))
        group._gate[0] = 0

    def test_many_small_calls_leave_nothing(self):
        """References of each argument, and memory as a whole."""
        x, y, tensor = floats(), floats(), Tensor(np.ones(3, np.float32))
        ints, numbers = array.array("i", [1, 42]), [1.5, 2.5]
        calls = [lambda: self.group.all_reduce(x), lambda: self.group.all_reduce(x, y), lambda: self.group.all_reduce(tensor),
                 lambda: self.group.all_reduce(numbers), lambda: self.group.all_reduce(np.ones(2), op="premul_sum", scalar=0.5),
                 lambda: self.group.all_reduce_start(x).wait(), lambda: self.group.all_reduce_start(tensor, y).wait(),
                 lambda: self.group.all_reduce_start(numbers).wait(), lambda: self.group.sendv([ints, ints], 2, TAG),
                 lambda: self.group.sendv_start([ints], 2, TAG).wait(), lambda: self.group.recvv([ints]), lambda: self.group.recv_start(ints).wait(),
                 lambda: self.group.sendrecv(ints, 2, array.array("i", [0, 0]), send_tag=TAG), lambda: self.group.all_gather(array.array("Q", [1])),
                 lambda: self.session.poll(), lambda: (self.group.all_reduce_start(x), self.session.poll()),
                 lambda: outcome(lambda: self.group.all_reduce(b"fixed")), lambda: outcome(lambda: self.group.sendv([ints, x], 2, TAG)),
                 lambda: outcome(lambda: self.group.all_reduce_start(x, b"fixed")), lambda: self.refused(x), lambda: self.lost(x)]

        def counts():
            gc.collect()
            return [sys.getrefcount(each) for each in (x, y, tensor, tensor.values, ints, numbers, self.group, self.session._connection, None)]

        for call in calls:
            call()
            before = counts()
            for _ in range(300):
                call()
            after = counts()
            self.assertEqual(before[:-1], after[:-1])
            self.assertLess(abs(after[-1] - before[-1]), 100)  # None

    def refused(self, x):
        next_op(START_FAILS)
        outcome(lambda: self.group.all_reduce_start(x))

    def lost(self, x):
        next_op(LOSES_RANK)
        outcome(lambda: self.group.all_reduce_start(x).wait())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
