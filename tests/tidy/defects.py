"""docs/defects.md names, for each defect, exactly the tests that carry its id."""

import re

import tidy

PAGE = "docs/defects.md"
ROW = re.compile(r"^\| ([DHU]\d+) \|.*\| ([^|]*) \|$", re.MULTILINE)
TEST = re.compile(r"`([^`]+)`")
ENDINGS = (".cpp", ".hpp", ".py", ".c", ".sh")
# They write about ids, and hold none off.
EXCEPT = ("tests/tidy/", "tests/integration/harness/", "tests/integration/expected_test.py")


def compare(page, tests):
    """tests: {path below tests/: text}."""
    complaints = []
    for row in ROW.finditer(page):
        name, named = row.group(1), set(TEST.findall(row.group(2)))
        carry = {path for path, text in tests.items() if re.search(rf"\b{name}\b", text)}
        complaints += [f"{PAGE}: {name}: {path} does not carry it" for path in sorted(named - carry)]
        complaints += [f"{PAGE}: {name}: {path} is missing" for path in sorted(carry - named)]
        if not named:
            complaints.append(f"{PAGE}: {name} has no test")
    return complaints


def check_repository():
    paths = [path for path in tidy.repository_files(*ENDINGS, under=("tests",)) if not path.startswith(EXCEPT)]
    return compare(tidy.read(PAGE), {path.removeprefix("tests/"): tidy.read(path) for path in paths})


def self_test():
    page = "| D1 | it broke | `a.cpp`, `b.py` |\n"
    tidy.expect(compare(page, {"a.cpp": "[D1]", "b.py": "D1 too", "c.cpp": "[D11]"}))
    tidy.expect(compare(page, {"a.cpp": "[D1]", "b.py": ""}), "b.py does not carry it")
    tidy.expect(compare(page, {"a.cpp": "[D1]", "b.py": "[D1]", "c.cpp": "D1"}), "c.cpp is missing")
    tidy.expect(compare("| H2 | it broke |  |\n", {}), "has no test")


if __name__ == "__main__":
    tidy.main(check_repository, self_test)
