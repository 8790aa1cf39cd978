"""The marks of tests that fail as expected agree with tests/expected_failures.txt, and every known defect has a test.

Marks: [!shouldfail] beside an id in a Catch2 test's tags, and @expected_failure("ID", owner="...") before an
integration scenario. A test carries the ids of its defects in square brackets: in its tags, or in its docstring.
"""

import ast
import collections
import re

import tidy

LIST = "tests/expected_failures.txt"
OWNERS = ("frame", "isolation", "operations", "wire")
DEFECTS = [f"D{i}" for i in range(1, 22)] + [f"H{i}" for i in range(1, 19)]
SUFFIXES = (".cpp", ".c", ".py", ".sh")

ID = r"[A-Z][0-9]+"
TAG = re.compile(rf"\[({ID})\]")
CATCH2 = re.compile(r"\b(?:TEST_CASE|TEST_CASE_METHOD|TEMPLATE_TEST_CASE|SCENARIO)\s*\(")
LITERAL = re.compile(r'"((?:\\.|[^"\\\n])*)"|[()]')

Mark = collections.namedtuple("Mark", "id owner path")  # owner: None where the mark does not say
Line = collections.namedtuple("Line", "id owner path what number")


def catch2_tests(text):
    """(offset, name and tags) of every test: all string literals between the macro's parentheses."""
    for match in CATCH2.finditer(text):
        depth, literals = 1, []
        for token in LITERAL.finditer(text, match.end()):
            depth += {"(": 1, ")": -1}.get(token.group(0), 0)
            if depth == 0:
                break
            literals += [token.group(1)] if token.group(1) is not None else []
        yield match.start(), " ".join(literals)


def read_cpp(path, text):
    ids, marks, complaints = set(), [], []
    tests = list(catch2_tests(text))
    for offset, words in tests:
        own = TAG.findall(words)
        ids.update(own)
        if "[!shouldfail]" in words:
            marks += [Mark(id, None, path) for id in own]
            if not own:
                complaints.append(f"{path}:{tidy.line_of(text, offset)}: [!shouldfail] without an id, such as [D6]")
    return ids if tests else set(TAG.findall(text)), marks, complaints


def mark_of(decorator):
    """(ids, owner) of an @expected_failure; None for another decorator."""
    if not (isinstance(decorator, ast.Call) and isinstance(decorator.func, ast.Name)
            and decorator.func.id == "expected_failure"):
        return None
    values = {keyword.arg: keyword.value for keyword in decorator.keywords}
    values.update(zip(("id", "owner"), decorator.args))
    given = [getattr(values.get(name), "value", None) or "" for name in ("id", "owner")]
    return given[0].split(), given[1]


def read_python(path, text):
    ids, marks, complaints = set(), [], []
    for function in ast.walk(ast.parse(text)):
        if not isinstance(function, ast.FunctionDef) or not function.name.startswith("test"):
            continue
        own = TAG.findall(ast.get_docstring(function) or "")
        ids.update(own)
        for marked, owner in filter(None, map(mark_of, function.decorator_list)):
            marks += [Mark(id, owner, path) for id in marked]
            if sorted(marked) != sorted(own):
                complaints.append(f"{path}:{function.lineno}: expected_failure names {marked}, the docstring {own}")
    return ids, marks, complaints


def read_test(path, text):
    """(ids that its tests carry, marks, complaints)."""
    if path.endswith(".py"):
        return read_python(path, text)
    if path.endswith(".sh"):
        return set(TAG.findall(text)), [], []
    return read_cpp(path, text)


def read_list(text):
    """(lines, pending ids, complaints)."""
    lines, pending, complaints = [], set(), []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split(maxsplit=3)
        if not words or words[0].startswith("#"):
            continue
        if words[0] == "pending:":
            pending.update(line.split()[1:])
        elif len(words) < 4 or not re.fullmatch(ID, words[0]) or words[1] not in OWNERS:
            complaints.append(f"{LIST}:{number}: want 'ID OWNER WHERE what', OWNER one of {', '.join(OWNERS)}")
        else:
            lines.append(Line(*words, number))
    return lines, pending, complaints


def compare(marks, lines):
    complaints = []
    for key in sorted({(m.id, m.path) for m in marks} | {(line.id, line.path) for line in lines}):
        there = [m for m in marks if (m.id, m.path) == key]
        listed = [line for line in lines if (line.id, line.path) == key]
        if len(there) > len(listed):
            complaints.append(f"{key[1]}: {len(there)} mark(s) of {key[0]}, {len(listed)} line(s) in {LIST}")
        elif len(there) < len(listed):
            complaints.append(f"{LIST}:{listed[-1].number}: {len(listed)} line(s) of {key[0]} in {key[1]}, "
                              f"{len(there)} mark(s) there")
        owners = {m.owner for m in there if m.owner is not None} - {line.owner for line in listed}
        if listed and owners:
            complaints.append(f"{key[1]}: {key[0]} is of {', '.join(sorted(owners))}, {LIST} says otherwise")
    return complaints


def uncovered(ids, pending):
    complaints = [f"no test carries [{defect}]" for defect in DEFECTS if defect not in ids | pending]
    return complaints + [f"{LIST}: pending: {id} is no known defect" for id in sorted(pending - set(DEFECTS))]


def check(files, text):
    """files: (path, text) of the tests; text: the list's."""
    ids, marks = set(), []
    lines, pending, complaints = read_list(text)
    for path, source in files:
        own_ids, own_marks, own_complaints = read_test(path, source)
        ids |= own_ids
        marks += own_marks
        complaints += own_complaints
    return complaints + compare(marks, lines) + uncovered(ids, pending), lines, pending, ids


def check_repository():
    paths = [path for path in tidy.repository_files(*SUFFIXES, under=("tests",)) if not path.startswith("tests/tidy/")]
    complaints, lines, pending, ids = check(((path, tidy.read(path)) for path in paths), tidy.read(LIST))
    print(f"{len(lines)} expected failure(s)")
    for line in lines:
        print(f"  {line.id:4} {line.owner:11} {line.path}  {line.what}")
    for words, which in (("no test yet", pending - ids), ("pending, and has a test: remove it there", pending & ids)):
        if which:
            print(f"{words}: {' '.join(sorted(which, key=lambda id: (id[0], int(id[1:]))))}")
    return complaints


PENDING = "pending: " + " ".join(DEFECTS)
SCENARIO = '@expected_failure({})\ndef test_x(cluster):\n    """{} what"""\n'


def complaints_about(path, source, text=PENDING):
    return check([(path, source)], text)[0]


def self_test():
    catch2 = 'TEST_CASE("a (b) [x]", "[ring][D6][!shouldfail]") {\n    f("[D7]");\n}\n'
    line = PENDING + "\nD6 isolation tests/a.{} more than 32 processes\n"
    scenario = SCENARIO.format('"D6", owner="isolation"', "[D6]")
    tidy.expect(complaints_about("tests/a.cpp", catch2, line.format("cpp")))
    tidy.expect(complaints_about("tests/a.py", scenario, line.format("py")))
    tidy.expect(complaints_about("tests/a.cpp", catch2), "tests/a.cpp: 1 mark(s) of D6, 0 line(s)")
    tidy.expect(complaints_about("tests/a.py", scenario), "tests/a.py: 1 mark(s) of D6, 0 line(s)")
    tidy.expect(complaints_about("tests/a.cpp", "", line.format("cpp")), "txt:2: 1 line(s) of D6 in tests/a.cpp, 0 mark")
    tidy.expect(complaints_about("tests/a.cpp", catch2 * 2, line.format("cpp")), "2 mark(s) of D6, 1 line(s)")
    tidy.expect(complaints_about("tests/a.cpp", 'TEST_CASE("x", "[!shouldfail]") {}'), "without an id")
    tidy.expect(complaints_about("tests/a.py", scenario.replace("isolation", "wire"), line.format("py")), "D6 is of wire")
    tidy.expect(complaints_about("tests/a.py", scenario.replace("[D6]", "[D7]"), line.format("py")), "docstring ['D7']")
    tidy.expect(complaints_about("", "", PENDING + "\nD6 somebody tests/a.cpp x\n"), "want 'ID OWNER WHERE what'")
    # Coverage: tags of tests and docstrings count, other words do not.
    tidy.expect(complaints_about("tests/a.cpp", 'TEST_CASE("x", "[D1]") { f("[D2]"); }', PENDING.replace("D1 D2 ", "")),
                "no test carries [D2]")
    both = SCENARIO.format('"D5 H3", "frame"', "[D5] [H3]").split("\n", 1)[1]
    tidy.expect(complaints_about("tests/a.py", both, PENDING.replace("D5 ", "").replace("H3 ", "")))
    tidy.expect(complaints_about("", "", "pending: X1 " + PENDING[9:]), "X1 is no known defect")


if __name__ == "__main__":
    tidy.main(check_repository, self_test)
