"""Every invariant of docs/protocol/ has a test that carries its tag, [W3]: in a Catch2 test's name or tags, or in an
integration scenario's docstring. No two invariants have one number. A tag in the sources' comments is one that a page states.
"""

import ast
import collections
import re

import tidy
from expected_failures import catch2_tests

INVARIANT = re.compile(r"^[ \t]*- (?:\*\*)?\[([A-Z]\d+)\]", re.MULTILINE)
TAG = re.compile(r"\[([A-Z]\d+)\]")
COMMENT = re.compile(r"//.*")

# Without a test, and why.
WITHOUT = {}


def tags_of(path, text):
    if path.endswith(".py"):
        functions = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef))
        words = [ast.get_docstring(node) or "" for node in functions if node.name.startswith("test_")]
    else:
        words = [literals for _, literals in catch2_tests(text)]
    return {tag for each in words for tag in TAG.findall(each)}


def cited(sources, names):
    """The tags that comments of the sources cite, and that `names` lacks."""
    complaints = []
    for path, text in sorted(sources.items()):
        for match in COMMENT.finditer(text):
            for tag in TAG.finditer(match.group()):
                if tag.group(1) not in names:
                    line = tidy.line_of(text, match.start() + tag.start())
                    complaints.append(f"{path}:{line}: no page of docs/protocol/ states [{tag.group(1)}]")
    return complaints


def compare(pages, tests, without, sources):
    """pages, tests, sources: {path: text}."""
    stated = collections.defaultdict(list)
    for path, text in sorted(pages.items()):
        for match in INVARIANT.finditer(text):
            stated[match.group(1)].append(f"{path}:{tidy.line_of(text, match.start())}")
    complaints = [f"{places[1]}: [{name}] is stated at {places[0]} already" for name, places in stated.items() if places[1:]]
    tagged = set().union(*(tags_of(path, text) for path, text in tests.items()), without)
    complaints += [f"{places[0]}: no test carries [{name}]" for name, places in stated.items() if name not in tagged]
    complaints += [f"tests/tidy/invariants.py: there is no [{name}]" for name in without if name not in stated]
    return complaints + cited(sources, stated)


def check_repository():
    pages = tidy.repository_files(".md", under=("docs/protocol",))
    tests = tidy.repository_files(".cpp", ".py", under=("tests",))
    sources = tidy.repository_files(".hpp", ".cpp", ".h", under=("daemon", "libnexar_c", "proto", "include", "tools"))
    texts = [{path: tidy.read(path) for path in paths} for paths in (pages, tests, sources)]
    return compare(texts[0], texts[1], WITHOUT, texts[2])


def self_test():
    page = {"docs/protocol/a.md": "- **[W1]** a\n- [W2] b [W9]\n  - [W3] c\n- [W4] d\n"}
    tests = {"a.cpp": 'TEST_CASE("one",\n "[x][W1]") {}\nTEST_CASE("[W2] two") {}  // [W4]',
             "b.py": 'def test_x(c):\n    """[W3] x"""\ndef y():\n    """[W4]"""\n'}
    tidy.expect(compare(page, tests, {"W4": "later"}, {}))
    tidy.expect(compare(page, tests, {}, {}), "docs/protocol/a.md:4: no test carries [W4]")
    tidy.expect(compare(page, tests, {"W4": "later", "W5": "gone"}, {}), "there is no [W5]")
    source = {"daemon/a.cpp": "int x[W9];  // as [W1]\n\nint y;  // and [W8]\n"}
    tidy.expect(compare(page, tests, {"W4": "later"}, source), "daemon/a.cpp:3: no page of docs/protocol/ states [W8]")
    page["docs/protocol/b.md"] = "\n- [W1] again\n"
    tidy.expect(compare(page, tests, {"W4": ""}, {}), "docs/protocol/b.md:2: [W1] is stated at docs/protocol/a.md:1 already")


if __name__ == "__main__":
    tidy.main(check_repository, self_test)
