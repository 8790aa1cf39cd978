#!/usr/bin/env python3
"""bindings/python over fake_nexar.c: an argument of a wrong type is refused, and the error names it, says what was given and what is
allowed.

    arguments_test.py FAKE_LIBRARY BINDINGS_FOLDER
"""
import re
import unittest

from over_fake import *
from nexar import _rows

WRONG = (TypeError, ValueError, OverflowError)


class Wordless:
    """Whose own repr raises."""

    def __repr__(self):
        raise RuntimeError("no words")


class Arguments(OverFake):
    def refuses(self, name, given, call, *arguments, **by_name):
        """name: of the argument; given: how the error says what it was."""
        with self.subTest(name, given=given, call=getattr(call, "__name__", call)):
            before = number("fake_open_requests")
            try:
                made = call(*arguments, **by_name)
            except WRONG as error:
                text = str(error)
                self.assertRegex(text, rf"(^|\s|, ){re.escape(name)} (is|has|must be|and) ")
                self.assertIn(given, text)
                self.assertRegex(text, "allowed( for \w+)?: |must be |want |: give |not one of ")
                self.assertNotRegex(text, r"_ms\b|operand|iterable|subscriptable|interpreted")
            else:
                self.fail(f"it gave {made!r}")
            self.assertEqual(number("fake_open_requests"), before)

    def forms(self, name, *others):
        return [getattr(self.group, name + form) for form in ("", "_start", *others)]

    def options(self, forms, *arguments, flags):
        for form in forms:
            self.refuses("timeout", "'soon'", form, *arguments, timeout="soon")
            self.refuses("timeout", "[1]", form, *arguments, timeout=[1])
            self.refuses("timeout", "-1", form, *arguments, timeout=-1)
            self.refuses("timeout", "1e+300", form, *arguments, timeout=1e300)
            self.refuses("priority", "'high'", form, *arguments, priority="high")
            if flags:
                self.refuses("match_id", "1.5", form, *arguments, match_id=1.5)
                self.refuses("match_id", "None", form, *arguments, match_id=None)
                self.refuses("flags", "'f'", form, *arguments, flags="f")
                self.refuses("flags", "None; allowed: nexar.FLAG_DETERMINISTIC", form, *arguments, flags=None)

    def test_messages(self):
        x = np.zeros(4)
        for forms, peer in ((self.forms("send", "_init"), "to"), (self.forms("recv", "_init"), "source")):
            for form in forms:
                for wrong in ("a", None, 1.5):
                    self.refuses(peer, repr(wrong), form, x, wrong)
                    self.refuses("tag", repr(wrong), form, x, 2, wrong)
                self.refuses(peer, "-1", form, x, -1)
                self.refuses("tag", str(1 << 64), form, x, 2, 1 << 64)
                self.refuses("values", "None", form, None, 2)
                self.refuses("values", "object", form, object(), 2)
                self.refuses("values", "complex128", form, np.zeros(3, complex), 2)
            self.options(forms, x, 2, flags=False)
        for form in (self.group.probe, self.group.probe_start, self.group.mprobe):
            self.refuses("source", "'a'", form, "a")
            self.refuses("tag", "1.5", form, 2, 1.5)
            self.refuses("timeout", "'soon'", form, 2, 1, timeout="soon")
        for form in self.forms("send"):
            self.refuses("values", "['a', [2]]", form, ["a", [2]], 2)

    def test_a_value_without_a_text_is_named_by_its_type(self):
        self.refuses("to", "of type Wordless", self.group.send, np.zeros(4), Wordless())
        self.refuses("to", "of type list", self.group.send, np.zeros(4), list(range(100)))

    def test_exchanges(self):
        x, out = np.zeros(4), np.zeros(4)
        for form, memory in ((self.group.sendrecv, (x, 2, out)), (self.group.sendrecv_replace, (x, 2))):
            self.refuses("to", "'a'", form, *((x, "a", out) if len(memory) == 3 else (x, "a")))
            for name in ("source", "send_tag", "tag", "timeout", "priority"):
                self.refuses(name, "'a'", form, *memory, **{name: "a"})
        self.refuses("out", "None", self.group.sendrecv, x, 2, None)
        self.refuses("values", "None", self.group.sendrecv, None, 2, out)
        self.refuses("values", "of type object", self.group.sendrecv_replace, object(), 2)

    def test_pieces(self):
        x = np.zeros(4)
        for form in (*self.forms("sendv"), *self.forms("recvv")):
            self.refuses("pieces", "5", form, 5, 2)
            self.refuses("pieces[1]", "None", form, [x, None], 2)
            self.refuses("pieces[1]", "float32", form, [x, np.zeros(3, np.float32)], 2)
            self.refuses("pieces", "[]", form, [], 2)
            self.refuses("tag", "'t'", form, [x], 2, "t")
        for form in self.forms("sendv"):
            self.refuses("to", "None", form, [x], None)
            self.refuses("pieces[0]", "['a', [2]]", form, [["a", [2]]], 2)
        for form in self.forms("recvv"):
            self.refuses("source", "None", form, [x], None)

    def of_row(self, row):
        """The collective's form with _start, and right arguments by name."""
        given = {} if row.memory == "nothing" else {"values": np.zeros(6)}
        if row.memory == "in_out_counts":
            given["counts"] = [2, 2, 2]
            given["values"] = np.zeros(2 if row.in_ == "own" else 6)
        if row.memory == "in_out_own_counts":
            given |= {"send_counts": [2, 2, 2], "receive_counts": [2, 2, 2]}
        if row.rooted:
            given["root"] = self.group.rank
        return self.forms(row.name), given

    def test_collectives(self):
        for row in _rows.ROWS.values():
            forms, given = self.of_row(row)
            with self.subTest(row.name):
                self.options([lambda form=form, **wrong: form(**given | wrong) for form in forms], flags=True)
                for form in forms:
                    wrongs = [("values", None, "None"), ("values", object(), "of type object"), ("values", [1, [2]], "[1, [2]]")]
                    wrongs += [(name, wrong, shown) for name in ("counts", "send_counts", "receive_counts")
                               for wrong, shown in ((5, "5"), (None, "None"), ([1, 1], "2 entries"))]
                    wrongs += [(name, wrong, shown) for name in ("root",) for wrong, shown in (
                        ("a", "'a'"), (None, "None"), (1.0, "1.0"), (-1, "-1"), (np.array([0, 1]), "array([0, 1])"))]
                    wrongs += [("op", wrong, repr(wrong)) for wrong in (None, ["sum"], 3, "mean")]
                    for name, wrong, shown in wrongs:
                        if name in given or (name == "op" and row.reduces):
                            self.refuses(name, shown, form, **given | {name: wrong})
                    for name in given:
                        if name.endswith("counts"):
                            self.refuses(f"{name}[1]", "2.0", form, **given | {name: [2, 2.0, 2]})
                            self.refuses(f"{name}[1]", "'2'", form, **given | {name: [2, "2", 2]})
                    if row.memory.startswith("in_out"):
                        self.refuses("out", "of type str", form, **given | {"out": "a" * 50})
                        self.refuses("out", "float32", form, **given | {"out": np.zeros(2 if row.out == "own" else 6, np.float32)})
        for wrong, shown in (([1, 2], "2 elements"), ("a", "'a'"), ([1, [2]], "[1, [2]]"), (1 << 70, "no value of int64: give a float")):
            for form in self.forms("all_reduce"):
                self.refuses("scalar", shown, form, np.zeros(4), op="premul_sum", scalar=wrong)

    def test_results_that_no_memory_has(self):
        for form in self.forms("all_gatherv", "_init"):
            self.refuses("out", f"shape ({1 << 61},)", form, np.zeros(0), [0, 0, 1 << 61])

    def test_tensors(self):
        class Elsewhere:
            device = (2, 0)

            def __dlpack_device__(self):
                return self.device

            def __dlpack__(self):
                raise BufferError("it is sparse")

        class Sparse(Elsewhere):
            device = (1, 0)

        x = np.zeros(4)
        for wrong, shown in ((Elsewhere(), "DLPack device (2, 0)"), (Sparse(), "gives no memory: it is sparse")):
            for form in self.forms("all_reduce", "_init"):
                for name, arguments in (("values", (wrong,)), ("out", (x, wrong))):
                    with self.subTest(form=form.__name__), self.assertRaises(ValueError) as caught:
                        form(*arguments)
                    self.assertTrue(str(caught.exception).startswith(f"{name} "), caught.exception)
                    self.assertIn(shown, str(caught.exception))
            for form in (*self.forms("sendv"), *self.forms("recvv")):
                with self.assertRaisesRegex(ValueError, r"^pieces\[1\] "):
                    form([x, wrong], 2)

    def test_groups(self):
        for form in self.forms("split"):
            self.refuses("colour", "'red'", form, "red")
            self.refuses("key", "1.5", form, 0, 1.5)
        for form in self.forms("create"):
            self.refuses("ranks", "5", form, 5)
            self.refuses("ranks[1]", "'b'", form, [0, "b"])
            self.refuses("ranks[0]", "-1", form, [-1])
            self.refuses("tag", "None", form, [0], None)
        for form in self.forms("dup"):
            for name in ("timeout", "collective_timeout", "barrier_timeout", "rpc_timeout"):
                self.refuses(name, "'soon'", form, **{name: "soon"})
        for form in (*self.forms("dup"), lambda **given: self.group.split(0, **given), lambda **given: self.group.split_start(0, **given)):
            self.refuses("match_id", "'m'", form, match_id="m")
            self.refuses("match_id", "None", form, match_id=None)
        self.refuses("rank", "'a'", self.group.node, "a")
        self.refuses("rank", "1.5", self.group.member, 1.5)
        self.refuses("ranks", "5", self.group.translate, 5, self.group)
        self.refuses("ranks[0]", "None", self.group.translate, [None], self.group)
        self.refuses("to", "None", self.group.translate, [0], None)
        self.refuses("reason", "5", self.group.abort, 5)
        self.refuses("reason", "None", self.group.abort, None)

    def test_sessions(self):
        for name in ("connect_timeout", "daemon_unresponsive", "slots", "scratch_limit", "spin_us"):
            self.refuses(name, "'a'", nexar.Session, **{name: "a"})
        self.refuses("slots", "1.5; allowed: a power of two", nexar.Session, slots=1.5)
        self.refuses("connect_timeout", "-1", nexar.Session, connect_timeout=-1)
        for form in (self.session.group, self.session.group_start):
            self.refuses("size", "1.5; allowed: an integer, 1 to 4096", form, "g", 1.5)
            self.refuses("rank", "'a'", form, "g", 3, "a")
            self.refuses("flags", "'a'", form, "g", 3, 1, flags="a")
            for name in ("timeout", "collective_timeout", "barrier_timeout", "rpc_timeout"):
                self.refuses(name, "'soon'", form, "g", 3, 1, **{name: "soon"})
            with self.assertRaisesRegex(TypeError, "group has no option colour; allowed: .*job_secret, timeout, .*flags"):
                form("g", 3, 1, colour=5)
        self.refuses("capacity", "'a'", self.session.poll, "a")
        self.refuses("capacity", "1.5", self.session.poll, 1.5)
        self.refuses("capacity", "-1", self.session.poll, -1)
        for wrong, shown in (("a", "'a'"), (1.5, "1.5"), ((2, None), "(2, None)"), (-1, "-1"), ((-1, -1), "(-1, -1)"),
                             ([[1], [1, 2]], "[[1], [1, 2]]"), (np.array([[1, 2]]), "array([[1, 2]])"), (True, "True"), ((True, 2), "(True, 2)"),
                             ((1,) * 65, "of type tuple")):
            self.refuses("shape", shown, self.session.alloc, wrong)
        self.refuses("dtype", "'float3'", self.session.alloc, 4, "float3")
        self.assertEqual(self.session.alloc(4, None).dtype, np.float32)
        x = np.zeros(4)
        self.refuses("array", "None", self.session.register_memfd, None, 3)
        self.refuses("array", "of type bytearray", self.session.register_memfd, bytearray(50), 3)
        self.refuses("fd", "'a'", self.session.register_memfd, x, "a")
        self.refuses("offset", "1.5", self.session.register_memfd, x, 3, 1.5)
        self.refuses("array", "None", self.session.unregister, None)
        for wrong in range(3):
            self.refuses(("count", "size", "rank")[wrong], "'a'", nexar.shard, *("a" if at == wrong else 1 for at in range(3)))

    def test_waits(self):
        next_op(NEVER_ENDS)
        request = self.group.barrier_start()
        self.refuses("timeout", "'soon'", request.wait, "soon")
        self.refuses("timeout", "nan", request.wait, float("nan"))
        for several in (nexar.wait_any, nexar.wait_some, nexar.wait_all):
            self.refuses("timeout", "'soon'", several, [request], "soon")
        for several in (nexar.wait_any, nexar.wait_some, nexar.wait_all, nexar.test_any, nexar.test_some, nexar.start_all):
            self.refuses("requests", "5", several, 5)
            self.refuses("requests[1]", "'b'", several, [None, "b"])
        with self.assertRaisesRegex(TypeError, "requests has .*barrier of group 'train/1.2'.*; allowed: "):
            nexar.start_all([request])
        request.cancel()
        self.assertRaises(nexar.Error, request.wait)

    def test_objects(self):
        for form in (self.group.bcast_object, self.group.gather_object, self.group.scatter_object):
            self.refuses("root", "'a'", form, [1, 2, 3], root="a")
        for form in (self.group.bcast_object, self.group.gather_object, self.group.scatter_object, self.group.all_gather_object):
            self.refuses("timeout", "'soon'", form, [1, 2, 3], timeout="soon")
        self.refuses("to", "'a'", self.group.send_object, 5, "a")
        self.refuses("tag", "1.5", self.group.send_object, 5, 2, 1.5)
        self.refuses("source", "'a'", self.group.recv_object, "a")
        self.refuses("tag", "1.5", self.group.recv_object, 2, 1.5)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
