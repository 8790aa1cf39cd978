"""docs/seed-behaviours.md names, for each row, tests that exist, or who owes them."""

import re

import tidy

PAGE = "docs/seed-behaviours.md"
ROW = re.compile(r"^\| ([BXM]\d+) \| (.*) \| ([^|]*) \|$", re.MULTILINE)
FILE = re.compile(r"`([^`]*/[^`]*)`((?:[^`;\"]|\"[^\"]*\"|`[^`/]*`)*)")
NAME = re.compile(r'"([^"]+)"')
OWED = re.compile(r"\bowed by (operations|wire|recovery|memory|rpc|gpu)\b")


def compare(page, texts):
    """texts: what a path below tests/ has, None where there is no such file."""
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
            else:
                complaints += [f"{PAGE}: {name}: {path} has no \"{test}\"" for test in tests if test not in text]
    return complaints


def check_repository():
    page = tidy.read(PAGE)
    if len(ROW.findall(page)) < 50:
        return [f"{PAGE}: its tables are not read"]
    return compare(page, lambda path: tidy.read(f"tests/{path}") if (tidy.ROOT / "tests" / path).is_file() else None)


def self_test():
    texts = {"sim/a.cpp": 'TEST_CASE("it works, always")', "soak/b.py": ""}.get
    tidy.expect(compare('| B1 | fine | `sim/a.cpp` "it works, always"; `soak/b.py` |\n| M2 | later | owed by rpc |\n', texts))
    tidy.expect(compare('| B1 | x | `sim/a.cpp` "it works, always", "never"; `sim/c.cpp` |\n', texts),
                'sim/a.cpp has no "never"', "tests/sim/c.cpp does not exist")
    tidy.expect(compare("| B1 | x | somebody |\n| B1 | y | owed by memory |\n", texts), "twice", "neither a test nor")


if __name__ == "__main__":
    tidy.main(check_repository, self_test)
