#!/usr/bin/env python3
"""Makes bindings/python/nexar/_collectives.py from proto/operations.def, or checks that it is what it would make.

    generate.py [--check]
"""
import os
import re
import sys
import textwrap

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
TABLE = os.path.join(ROOT, "proto", "operations.def")
PYTHON = os.path.join(ROOT, "bindings", "python", "nexar", "_collectives.py")
COLUMNS = ("number", "name", "NAME", "summary", "memory", "in", "out", "in_place", "reduction", "root", "agreed")

HEAD = '''"""Collectives: made by bindings/generate.py from proto/operations.def."""
from typing import NamedTuple


class Row(NamedTuple):
    """What the binding must know of a collective; proto/operations.def says what the words mean."""
    name: str
    memory: str
    in_: str
    out: str
    in_place: str
    reduces: bool
    rooted: bool


'''

RETURNS = {  # by (memory, in_place, in, out): what comes back
    ("nothing", "never", "none", "none"): "",
    ("data", "never", "one_at_root", "one_elsewhere"): "Returns values.",
    ("in_out", "same", "one", "one"): "Returns out; None: values itself (in place).",
    ("in_out", "same", "all", "all"): "Returns out; None: values itself (in place).",
    ("in_out", "same", "one", "one_after_first"):
        "Returns out; None: values itself (in place). Rank 0 has no output: out, or values in place, stays as it is there.",
    ("in_out", "same", "one", "one_at_root"):
        "The root gets out (None: values itself); the others get None, and their out is not looked at.",
    ("in_out", "block_of_out", "one", "all"):
        "Returns out: size * values.size elements (None: a new array of shape (size, *values.shape)). In place: values is "
        "out[rank * n:(rank + 1) * n].",
    ("in_out_counts", "block_of_out", "own", "packed"):
        "counts: elements of each rank, the same list on all ranks. Returns out: sum(counts) elements, the blocks one after "
        "the other (None: a new array of shape (sum(counts),)). In place: values is this rank's part of out.",
    ("in_out", "block_of_in", "all", "one"):
        "Returns out: n = values.size / size elements (None: a new array of shape (n,)). In place: out is "
        "values[rank * n:(rank + 1) * n].",
    ("in_out", "block_of_out", "one", "all_at_root"):
        "The root gets out: size * values.size elements (None: a new array of shape (size, *values.shape)); the others get "
        "None, and their out is not looked at. In place, at the root: values is out[root * n:(root + 1) * n].",
    ("in_out", "block_of_in", "all_at_root", "one"):
        "Returns out. At the root it has n = values.size / size elements (None: a new array of shape (n,)); the others "
        "must give it, and their values are not looked at (None will do). In place, at the root: out is "
        "values[root * n:(root + 1) * n].",
}


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


def filled(text):
    lines = textwrap.wrap(text, 110)
    return '        """' + "\n        ".join(lines) + '"""\n'


def methods(row):
    """The blocking form and its start."""
    names = {"nothing": [], "data": ["values"], "in_out": ["values", "out"],
             "in_out_counts": ["values", "counts", "out"]}[row["memory"]]
    names += ["op"] * (row["reduction"] == "reduces") + ["root"] * (row["root"] == "rooted")
    defaults = {"values": "values", "counts": "counts", "out": "out=None", "op": 'op="sum"', "root": "root=0"}
    takes = ", ".join(["self", *(defaults[name] for name in names), "**options"])
    given, named = "".join(f", {name}" for name in names), "".join(f", {name}={name}" for name in names)
    doc = f"{row['summary']} {RETURNS[row['memory'], row['in_place'], row['in'], row['out']]}".strip()
    return (f"    def {row['name']}({takes}):\n{filled(doc)}"
            f"        return self._run(self.{row['name']}_start{given}, **options)\n\n"
            f"    def {row['name']}_start({takes}):\n        \"\"\"Begins {row['name']}.\"\"\"\n"
            f"        return self._begin(ROWS[\"{row['name']}\"]{named}, given=options)\n")


def python(rows):
    lines = [f'    Row("{row["name"]}", "{row["memory"]}", "{row["in"]}", "{row["out"]}", "{row["in_place"]}", '
             f'{row["reduction"] == "reduces"}, {row["root"] == "rooted"}),\n' for row in rows]
    return (HEAD + "ROWS = {row.name: row for row in (\n" + "".join(lines) + ")}\n\n\n"
            'class Collectives:\n    """Of a group; see nexar.Group."""\n\n' + "\n".join(map(methods, rows)))


def main():
    with open(TABLE, encoding="utf-8") as file:
        made = python(collectives(file.read()))
    if "--check" not in sys.argv:
        with open(PYTHON, "w", encoding="utf-8") as file:
            file.write(made)
        return 0
    with open(PYTHON, encoding="utf-8") as file:
        if file.read() == made:
            return 0
    print("bindings/python/nexar/_collectives.py is not what bindings/generate.py makes of proto/operations.def: run it")
    return 1


if __name__ == "__main__":
    sys.exit(main())
