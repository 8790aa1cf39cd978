"""Collectives, element types and reductions are asked for by name only where docs/adding.md says so: all other code reads the
columns of their tables, so that a new row needs no switch. Messages are not looked at: each is a protocol of its own."""

import re

import tidy

PAGE, OPERATIONS, TYPES = "docs/adding.md", "proto/operations.def", "proto/types.def"
KERNELS = "daemon/reduce/"
SUFFIXES = (".cpp", ".hpp", ".h")
OPERATION = re.compile(r"^NEXAR_(?:COLLECTIVE|GROUPING)\(\d+, (\w+), (\w+),", re.MULTILINE)
TYPE = re.compile(r"^NEXAR_(DTYPE|REDUCTION)\(\d+, (\w+), (\w+),", re.MULTILINE)
ALLOWED = re.compile(r"^\| names a row \|.*?(?=^$)", re.MULTILINE | re.DOTALL)  # a table of the page
PATH = re.compile(r"`((?:daemon|libnexar_c|tools)/[\w/.-]+)`")
INITIAL = re.compile(r"^\s*\w+ \w+ = [\w:]+;", re.MULTILINE)  # what a field has before it is set


def names_of(operations, types):
    out = []
    for name, constant in OPERATION.findall(operations):
        out += [f"OpKind::{name}", f"NEXAR_OP_{constant}"]
    for table, name, constant in TYPE.findall(types):
        out += [("Dtype::" if table == "DTYPE" else "ReduceOp::") + name, f"NEXAR_{constant}"]
    return out


def check(page, names, files):
    allowed = "".join(ALLOWED.findall(page))
    named = re.compile(rf"\b(?:{'|'.join(names)})\b")
    complaints, stale = [], set(PATH.findall(allowed))
    for path, text in files:
        if path.startswith(KERNELS):
            continue
        if f"`{path}`" in allowed:
            if named.search(tidy.code_only(text)):
                stale.discard(path)
            continue
        code = INITIAL.sub(lambda match: "\n" * match.group(0).count("\n"), tidy.code_only(text))
        complaints += [f"{path}:{tidy.line_of(code, match.start())}: {match.group(0)} by name: read a column of its table, or "
                       f"say why on {PAGE}" for match in named.finditer(code)]
    return complaints + [f"{PAGE}: {path} is not there, or names no row (any more): remove it" for path in sorted(stale)]


def check_repository():
    names = names_of(tidy.read(OPERATIONS), tidy.read(TYPES))
    paths = tidy.repository_files(*SUFFIXES, under=("daemon", "libnexar_c", "tools"))
    return check(tidy.read(PAGE), names, ((path, tidy.read(path)) for path in paths))


def self_test():
    names = names_of('NEXAR_COLLECTIVE(1, all, ALL, "It is.", x)\nNEXAR_GROUPING(2, dup, DUP, "Two.")\n',
                     "NEXAR_DTYPE(0, f32, F32, x)\nNEXAR_REDUCTION(0, sum, SUM, x)\n")
    tidy.expect(names, "OpKind::all", "NEXAR_OP_ALL", "OpKind::dup", "NEXAR_OP_DUP", "Dtype::f32", "NEXAR_F32", "ReduceOp::sum",
                "NEXAR_SUM")

    def complaints(text, path="daemon/a.cpp", page=""):
        return [line.split(" by name")[0] for line in check(page, names, [(path, text)])]

    asks = "int a;\nif (kind == OpKind::all) return;\n"
    tidy.expect(complaints(asks), "daemon/a.cpp:2: OpKind::all")
    tidy.expect(complaints(asks, page="| names a row | because |\n| `daemon/a.cpp` | x |\n\n"))
    stale = "| names a row | because |\n| `daemon/a.cpp`, `tools/b.cpp` | x |\n\n| reader | of |\n| `daemon/c.cpp` | x |\n\n"
    tidy.expect([line.split(" is not")[0] for line in check(stale, names, [("daemon/a.cpp", "// OpKind::all\nint a;\n")])],
                "docs/adding.md: daemon/a.cpp", "docs/adding.md: tools/b.cpp")
    tidy.expect(complaints(asks, page="| reader | of |\n| `daemon/a.cpp` | x |\n\n"), "daemon/a.cpp:2: OpKind::all")
    tidy.expect(complaints(asks, path="daemon/reduce/a.cpp"))
    tidy.expect(complaints("f(ReduceOp::sum, NEXAR_F32)"), "daemon/a.cpp:1: ReduceOp::sum", "daemon/a.cpp:1: NEXAR_F32")
    tidy.expect(complaints("f(OpKind::all_of, NEXAR_OP_ALL_OF, NEXAR_SUMS);  // OpKind::all\n"))
    tidy.expect(complaints("    ReduceOp op = ReduceOp::sum;\n    nexar_dtype dtype = NEXAR_F32;\n"))


if __name__ == "__main__":
    tidy.main(check_repository, self_test)
