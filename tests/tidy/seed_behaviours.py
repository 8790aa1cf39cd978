"""docs/seed-behaviours.md names, for each row, tests that exist and are run, or who owes them.

A name is that of a Catch2 test case which no tag hides, or of a function of a scenario; of other files, a text that they have. A file
is run when the CMakeLists.txt beside it names it, itself or with all of its kind, or when tools/nightly does.
"""

import re
from pathlib import PurePath

import tidy
from expected_failures import catch2_tests

PAGE = "docs/seed-behaviours.md"
ROW = re.compile(r"^\| ([BXM]\d+) \| (.*) \| ([^|]*) \|$", re.MULTILINE)
FILE = re.compile(r"`([^`]*/[^`]*)`((?:[^`;\"]|\"[^\"]*\"|`[^`/]*`)*)")
NAME = re.compile(r'"([^"]+)"')
SCENARIO = re.compile(r"^def (test_\w+)\(", re.MULTILINE)
OWED = re.compile(r"\bowed by (operations|wire|recovery|memory|rpc|gpu)\b")


def has(path, text, name):
    """Whether the file has the test, and no tag hides it."""
    if path.endswith(".py"):
        return name in SCENARIO.findall(text)
    if path.endswith(".cpp"):
        tests = (re.sub(r"\s+", " ", words) for _, words in catch2_tests(text))
        return any((words + " ").startswith(name + " ") and "[." not in words for words in tests)
    return name in text


def is_run(path, texts, nightly):
    file = PurePath(path)
    lists = texts(str(file.parent / "CMakeLists.txt")) or ""
    names = (file.name, f"({file.stem.removeprefix('test_')} ", f"/{file.stem}.")
    return (any(name in lists for name in names) or (path.endswith("_test.cpp") and "*_test.cpp" in lists)
            or f"tests/{path}" in nightly)


def compare(page, texts, nightly=""):
    """texts: what a path below tests/ has, None where there is no such file. nightly: that program."""
    complaints, ids = [], [row.group(1) for row in ROW.finditer(page)]
    complaints += [f"{PAGE}: {name} stands there twice" for name in sorted({each for each in ids if ids.count(each) > 1})]
    for row in ROW.finditer(page):
        name, cell = row.group(1), row.group(3)
        named = [(path, NAME.findall(rest)) for path, rest in FILE.findall(cell)]
        if not named and not OWED.search(cell):
            complaints.append(f"{PAGE}: {name} has neither a test nor who owes it")
        for path, tests in named:
            text = texts(path)
            if text is None:
                complaints.append(f"{PAGE}: {name}: tests/{path} does not exist")
                continue
            complaints += [f"{PAGE}: {name}: {path} has no test \"{test}\" that is run" for test in tests if not has(path, text, test)]
            if not is_run(path, texts, nightly):
                complaints.append(f"{PAGE}: {name}: nothing runs tests/{path}")
    return complaints


def check_repository():
    page = tidy.read(PAGE)
    if len(ROW.findall(page)) < 50:
        return [f"{PAGE}: its tables are not read"]
    return compare(page, lambda path: tidy.read(f"tests/{path}") if (tidy.ROOT / "tests" / path).is_file() else None,
                   tidy.read("tools/nightly"))


def self_test():
    files = {"sim/a_test.cpp": 'TEST_CASE(\n    "it works, "\n    "always", "[X1]") {}\nTEST_CASE("by hand", "[.slow]") {}',
             "sim/CMakeLists.txt": "file(GLOB sim_tests *_test.cpp)", "soak/b.py": "", "integration/test_c.py": "def test_it(): pass",
             "integration/CMakeLists.txt": "nexar_integration_test(d 1)"}
    tidy.expect(compare('| B1 | fine | `sim/a_test.cpp` "it works, always"; `soak/b.py` |\n| M2 | later | owed by rpc |\n', files.get,
                        'python "$top/tests/soak/b.py"'))
    tidy.expect(compare('| B1 | x | `sim/a_test.cpp` "it works, always", "it works", "always", "by hand"; `sim/c.cpp` |\n', files.get),
                'no test "it works"', 'no test "always"', 'no test "by hand"', "tests/sim/c.cpp does not exist")
    tidy.expect(compare('| B1 | x | `integration/test_c.py` "test_it", "test"; `soak/b.py` |\n', files.get),
                'no test "test"', "nothing runs tests/integration/test_c.py", "nothing runs tests/soak/b.py")
    tidy.expect(compare("| B1 | x | somebody |\n| B1 | y | owed by memory |\n", files.get), "twice", "neither a test nor")


if __name__ == "__main__":
    tidy.main(check_repository, self_test)
