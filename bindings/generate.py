#!/usr/bin/env python3
"""Makes _rows.py and _collectives.py in bindings/python/nexar from proto/operations.def, or checks that they are what it
would make.

    generate.py [--check]

An operation is its row of the table there; how Python calls it is the entry of its shape in SHAPES.
"""
import os
import re
import sys
import textwrap
from typing import NamedTuple

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
TABLE = os.path.join(ROOT, "proto", "operations.def")
PACKAGE = os.path.join(ROOT, "bindings", "python", "nexar")
COLUMNS = ("number", "name", "NAME", "summary", "memory", "in", "out", "in_place", "reduction", "root", "agreed")

ROWS_HEAD = '''"""The table of collectives: made by bindings/generate.py from proto/operations.def."""
from typing import NamedTuple


class Row(NamedTuple):
    """What the binding must know of a collective; proto/operations.def says what the words mean."""
    number: int
    name: str
    memory: str
    in_: str
    out: str
    in_place: str
    reduces: bool
    rooted: bool


ROWS = {row.name: row for row in (
'''
HEAD = '''"""Collectives: made by bindings/generate.py from proto/operations.def."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import _quick
from ._arrays import ARRAYS, COPIED, Memory, Number, Values, copy_of
from ._calls import Calls, as_given
from ._library import Root, checked
from ._requests import Persistent, Request
from ._rows import ROWS


class Collectives(Calls):
    """Of a group; see nexar.Group."""

'''


class Shape(NamedTuple):
    """How Python calls the operations of one (memory, in_place, in, out)."""
    returns: str
    quick: str = ""  # the call of _quick that takes plain memory; "": there is none
    only_if: str = ""  # when it may be tried
    result: str = ""  # what it gives; the Request of one that is only begun must know
    room: str = ""  # an array for the result where none was given; "": there is none
    has_out: str = ""  # whether this rank has an output; "": it has


OPTIONS = "timeout, match_id, priority, flags, {request}"


def sides(blocks_in, blocks_out):
    return f"sides({{number}}, self._gate, self._handle, {{values}}, {{out}}, {{op}}, {{scalar}}, {{root}}, {blocks_in}, {blocks_out}, {OPTIONS})"


def packed(side_in, side_out, counts="counts, None"):
    return (f"packed({{number}}, self._gate, self._handle, {{values}}, {{out}}, {counts}, {{op}}, {{scalar}}, {{root}}, self.rank, self.size, {side_in}, "
            f"{side_out}, {OPTIONS})")


OWN, ALL = 1, 2  # as in _native.c
GIVEN_OUT = "{out} is not None"
IS_ROOT = "root == self.rank"
IN_PLACE = "{values} if out is None else out"
AT_ROOT = "({}) if root == self.rank else None"
SHAPES = {
    ("nothing", "never", "none", "none"): Shape("", f"nothing({{number}}, self._gate, self._handle, {OPTIONS})", result="None"),
    ("data", "never", "one_at_root", "one_elsewhere"): Shape(
        "Returns values.", f"data({{number}}, self._gate, self._handle, values, root, root != self.rank, {OPTIONS})", result="values"),
    ("in_out", "same", "one", "one"): Shape("Returns out; None: values itself (in place).", sides(1, 1), result=IN_PLACE),
    ("in_out", "same", "all", "all"): Shape(
        "Returns out; None: values itself (in place).", sides("self.size", "self.size"), result=IN_PLACE),
    ("in_out", "same", "one", "one_at_root"): Shape(
        "The root gets out (None: values itself); the others get None, and their out is not looked at.",
        sides(1, IS_ROOT), result=AT_ROOT.format(IN_PLACE)),
    ("in_out", "block_of_out", "one", "all"): Shape(
        "Returns out: size * values.size elements (None: a new array of shape (size, *values.shape)). In place: values is "
        "out[rank * n:(rank + 1) * n].", sides(1, "self.size"), GIVEN_OUT, "{out}",
        "self._room({values}, self.size)"),
    ("in_out_counts", "block_of_out", "own", "packed"): Shape(
        "counts: elements of each rank, the same list on all ranks. Returns out: sum(counts) elements, the blocks one after "
        "the other (None: a new array of shape (sum(counts),)). In place: values is this rank's part of out.",
        packed(OWN, ALL), GIVEN_OUT, "{out}", "self._packed_room({values}, counts)"),
    ("in_out_counts", "block_of_out", "own", "packed_at_root"): Shape(
        "counts: elements of each rank, the same list on all ranks. The root gets out: sum(counts) elements, the blocks one "
        "after the other (None: a new array of shape (sum(counts),)); the others get None, and their out is not looked at. "
        "In place, at the root: values is its part of out.", packed(OWN, f"{ALL} * ({IS_ROOT})"), f"({GIVEN_OUT} or root != self.rank)",
        AT_ROOT.format("{out}"), "self._packed_room({values}, counts)", IS_ROOT),
    ("in_out_counts", "block_of_in", "packed_at_root", "own"): Shape(
        "counts: elements of each rank, the same list on all ranks. Returns out: counts[rank] elements. At the root None is a "
        "new array; the others must give it, and their values are not looked at (None will do). In place, at the root: out "
        "is its part of values.", packed(f"{ALL} * ({IS_ROOT})", OWN), GIVEN_OUT, "{out}", "self._packed_room({values}, counts, True)", IS_ROOT),
    ("in_out_counts", "block_of_in", "packed", "own"): Shape(
        "counts: elements of each rank, the same list on all ranks. values has sum(counts) elements. Returns out: "
        "counts[rank] elements (None: a new array). In place: out is this rank's part of values.",
        packed(ALL, OWN), GIVEN_OUT, "{out}", "self._packed_room({values}, counts, True)"),
    ("in_out_own_counts", "never", "sent", "received"): Shape(
        "send_counts, receive_counts: elements to and from each rank; what rank s sends to rank r is what r receives from s. "
        "Returns out: sum(receive_counts) elements, the blocks one after the other (None: a new array of that shape).",
        packed(ALL, ALL, "send_counts, receive_counts"), GIVEN_OUT, "{out}", "self._packed_room({values}, receive_counts)"),
    ("in_out", "block_of_in", "all", "one"): Shape(
        "Returns out: n = values.size / size elements (None: a new array of shape (n,)). In place: out is "
        "values[rank * n:(rank + 1) * n].", sides("self.size", 1), GIVEN_OUT, "{out}", "self._room({values}, 0)"),
    ("in_out", "block_of_out", "one", "all_at_root"): Shape(
        "The root gets out: size * values.size elements (None: a new array of shape (size, *values.shape)); the others get "
        "None, and their out is not looked at. In place, at the root: values is out[root * n:(root + 1) * n].",
        sides(1, "self.size * (root == self.rank)"), f"({GIVEN_OUT} or root != self.rank)",
        AT_ROOT.format("{out}"), "self._room({values}, self.size)", IS_ROOT),
    ("in_out", "block_of_in", "all_at_root", "one"): Shape(
        "Returns out. At the root it has n = values.size / size elements (None: a new array of shape (n,)); the others "
        "must give it, and their values are not looked at (None will do). In place, at the root: out is "
        "values[root * n:(root + 1) * n].", sides("self.size * (root == self.rank)", 1), GIVEN_OUT, "{out}",
        "self._room({values}, 0)", IS_ROOT),
}
RAISES = "Raises ValueError for memory that does not fit, and nexar.Error."
RAISES_WITHOUT_MEMORY = "Raises nexar.Error."
PARAMETERS = {"values": "values: Values", "counts": "counts: Sequence[int]", "send_counts": "send_counts: Sequence[int]",
              "receive_counts": "receive_counts: Sequence[int]", "out": "out: Memory | None = None",
              "op": 'op: str = "sum"', "root": "root: int = 0"}
COMMON = {"timeout": "float | None = None", "match_id": "int = 0", "user_data": "int = 0", "priority": "int | None = None",
          "flags": "int = 0"}


def collectives(text):
    """The rows as dictionaries."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    text = re.sub(r"^#.*$", "", text, flags=re.MULTILINE)
    rows = []
    for row in re.findall(r"^NEXAR_COLLECTIVE\((.*?)\)$", text, re.MULTILINE | re.DOTALL):
        words = [word.strip() for word in re.findall(r'\s*("[^"]*"|[^,"]+)\s*(?:,|$)', row)]
        rows.append(dict(zip(COLUMNS, words)))
        rows[-1]["summary"] = rows[-1]["summary"].strip('"')
    if len(rows) != len(re.findall(r"^NEXAR_COLLECTIVE\b", text, re.MULTILINE)):
        sys.exit(f"{TABLE}: a row of NEXAR_COLLECTIVE does not end with a parenthesis at the end of a line")
    return rows


def shape_of(row):
    words = row["memory"], row["in_place"], row["in"], row["out"]
    if words not in SHAPES:
        sys.exit(f"bindings/generate.py: SHAPES has no entry {words}, of {row['name']}")
    return SHAPES[words]


def filled(text):
    lines = textwrap.wrap(text, 110)
    return '        """' + "\n        ".join(lines) + '"""\n'


def signature(name, takes, result):
    text = f"    def {name}("
    each = ", ".join(word.replace(" ", "\0") for word in ["self", *takes])  # no line ends within a parameter
    lines = textwrap.wrap(each, 119 - len(text))
    return (text + ("\n" + " " * len(text)).join(lines)).replace("\0", " ") + f") -> {result}:\n"


def methods(row):
    """The blocking form and its start."""
    shape, reduces, rooted = shape_of(row), row["reduction"] != "moves", row["root"] == "rooted"
    names = {"nothing": [], "data": ["values"], "in_out": ["values", "out"],
             "in_out_counts": ["values", "counts", "out"],
             "in_out_own_counts": ["values", "send_counts", "receive_counts", "out"]}[row["memory"]] + ["op"] * reduces + ["root"] * rooted
    options = {**({"scalar": "Number | None = None"} if reduces else {}), **COMMON}
    takes = [*(PARAMETERS[name] for name in names), "*", *(f"{name}: {kind}" for name, kind in options.items())]
    given = ", ".join(["self", "row", *("values" if n == "values" else f"{n}={n}" for n in names), *(f"{n}={n}" for n in options)])[len("self, row"):]
    raises = RAISES if names else RAISES_WITHOUT_MEMORY
    doc = " ".join(f"{row['summary']} {shape.returns} {raises}".split())
    # What else may raise, as the truth of an array does, is compared below.
    checks_root = "        root = root if type(root) is int else checked(Root, root)\n"
    out = signature(row["name"], takes, "Any") + filled(doc)
    out += checks_root if rooted and shape.room else ""
    out += room_for(shape, "values")
    if shape.quick:
        out += wrapped(f"if {quick_when(shape, 'not self._dropped')}:\n")
        out += wrapped(f"done = {quick_call(row, shape, 'None', 'values')}\n", 12)
        out += "            if done is not NotImplemented:\n                return done\n"
    out += wrapped(f"        return self._blocking(ROWS[\"{row['name']}\"]{given})\n\n")
    out += signature(f"{row['name']}_start", takes, "Request") + f'        """Begins {row["name"]}: the Request\'s wait() returns what it returns."""\n'
    copies = bool(names) and row["memory"] != "data"
    memory = "given" if copies else "values"
    out += checks_root if rooted and copies else ""
    if copies:
        looked_at = f"{IS_ROOT} and " if row["in"].endswith("_at_root") else ""
        out += wrapped(f"        given = copy_of(values) if {looked_at}type(values) not in ARRAYS and isinstance(values, COPIED) else values\n")
    out += room_for(shape, memory)
    if shape.quick:
        kept = "".join(f", {name}" for name in [memory] * bool(names) + [out_of(shape)] * ("out" in names)) or ","
        made = "as_given if given is not values and out is None else None" if copies else "None"
        result = shape.result.format(values=memory, out=out_of(shape))
        out += f"        if {quick_when(shape, '(not self._dropped or self._may_start())')}:\n"
        out += wrapped(f"request = Request(self._connection, \"{row['name']}\", self._weak, (self{kept}), {result}, {made}, user_data)\n", 12)
        out += wrapped(f"begun = {quick_call(row, shape, 'request', memory)}\n", 12)
        out += "            if begun is not NotImplemented:\n                return begun  # type: ignore[no-any-return]\n"
    out += wrapped(f"        return self._begin(ROWS[\"{row['name']}\"]{given})\n\n")
    out += signature(f"{row['name']}_init", takes, "Persistent")
    out += filled(f"Prepares {row['name']}: each start() begins it, with what its memory holds then, and wait() returns what it returns. {'Lists and numbers are a TypeError. ' if names else ''}{raises}")
    return out + wrapped(f"        return self._init(ROWS[\"{row['name']}\"]{given})\n")


def out_of(shape):
    return "into" if shape.room else "out"


def room_for(shape, memory):
    wanted = " and ".join(["out is None"] + [shape.has_out] * bool(shape.has_out))
    return wrapped(f"        into = {shape.room.format(values=memory)} if {wanted} else out\n") if shape.room else ""


def quick_when(shape, ready):
    return " and ".join([ready] + [shape.only_if.format(out=out_of(shape))] * bool(shape.only_if))


def quick_call(row, shape, request, memory):
    reduces = row["reduction"] != "moves"
    return "_quick." + shape.quick.format(
        number=row["number"], op="op" if reduces else "None", scalar="scalar" if reduces else "None",
        root="root" if row["root"] == "rooted" else "0", request=request, values=memory, out=out_of(shape))


def wrapped(line, indent=8):
    end = "\n" * (len(line) - len(line.rstrip("\n")))
    return "\n".join(textwrap.wrap(line.strip(), 140, initial_indent=" " * indent, subsequent_indent=" " * (indent + 4))) + end


def python(rows):
    """The files, by name."""
    lines = [f'    Row({row["number"]}, "{row["name"]}", "{row["memory"]}", "{row["in"]}", "{row["out"]}", "{row["in_place"]}", '
             f'{row["reduction"] != "moves"}, {row["root"] == "rooted"}),\n' for row in rows]
    return {"_rows.py": ROWS_HEAD + "".join(lines) + ")}\n", "_collectives.py": HEAD + "\n".join(map(methods, rows))}


def main():
    with open(TABLE, encoding="utf-8") as file:
        made = python(collectives(file.read()))
    old = []
    for name, text in made.items():
        path = os.path.join(PACKAGE, name)
        if "--check" not in sys.argv:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            continue
        with open(path, encoding="utf-8") as file:
            if file.read() != text:
                old.append(name)
    if old:
        print(f"bindings/python/nexar: {', '.join(old)} is not what bindings/generate.py makes of proto/operations.def: run it")
    return 1 if old else 0


if __name__ == "__main__":
    sys.exit(main())
