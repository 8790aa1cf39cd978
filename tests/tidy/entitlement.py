"""docs/protocol/entitlement.md has a row for each message of the schema, in its order, and the scenarios that it names exist.

That the places exist which its rows name is checked by places.py, as on every page."""

import re

import tidy

PAGE, SCHEMA = "docs/protocol/entitlement.md", "proto/wire.capnp"
UNION = re.compile(r"struct Message \{\s*union \{(.*?)\}", re.DOTALL)
MEMBER = re.compile(r"^\s*(\w+) @\d+ :", re.MULTILINE)
ROW = re.compile(r"^\| (\w+) \|(.*)\|$", re.MULTILINE)
SCENARIO = re.compile(r'"([^"]+)" in `([\w./-]+)`')
JOINED = re.compile(r'"\s*\n\s*"')


def scenario_in(name, path, text):
    if path.endswith(".py"):
        return re.search(rf"^def {re.escape(name)}\(", text, re.MULTILINE)
    return re.search(rf'TEST_CASE\(\s*"{re.escape(name)}"', JOINED.sub("", text))


def check(page, schema, exists, read):
    messages = MEMBER.findall(UNION.search(schema).group(1))
    rows = [(match.group(1), match.group(2).split("|"), tidy.line_of(page, match.start()))
            for match in ROW.finditer(page) if match.group(1) != "message"]
    named = [name for name, _, _ in rows]
    complaints = [f"{PAGE}: no row for {name}" for name in messages if name not in named]
    complaints += [f"{PAGE}: {name} has {named.count(name)} rows" for name in sorted(set(named)) if named.count(name) > 1]
    for name, cells, line in rows:
        if name not in messages:
            complaints.append(f"{PAGE}:{line}: {SCHEMA} has no message {name}")
        scenarios = SCENARIO.findall(cells[-1])
        if len(cells) != 3 or not scenarios or "`" not in cells[1]:
            complaints.append(f"{PAGE}:{line}: {name} needs who may send it, where that is checked, and a scenario")
        complaints += [f"{PAGE}:{line}: {path} has no scenario \"{scenario}\"" for scenario, path in scenarios
                       if not exists(path) or not scenario_in(scenario, path, read(path))]
    return complaints


def check_repository():
    return check(tidy.read(PAGE), tidy.read(SCHEMA), lambda path: (tidy.ROOT / path).is_file(), tidy.read)


def self_test():
    schema = "struct Message {\n  union {\n    hello @0 :Hello;\n    goodbye @1 :Goodbye;\n  }\n}\nstruct Hello {\n  x @0 :Int8;\n}"
    files = {"tests/a.cpp": 'TEST_CASE("it is long "\n          "enough", "[a]")', "tests/b.py": "def test_b(me):"}

    def complaints(*rows):
        page = "\n".join(("| message | who | where | scenario |", *rows))
        return check(page, schema, lambda path: path in files, files.get)

    hello = '| hello | itself | `a` in `b` | "it is long enough" in `tests/a.cpp` |'
    goodbye = '| goodbye | itself | `a` in `b` | "test_b" in `tests/b.py` |'
    tidy.expect(complaints(hello, goodbye))
    tidy.expect(complaints(hello), f"{PAGE}: no row for goodbye")
    tidy.expect(complaints(hello, hello, goodbye), f"{PAGE}: hello has 2 rows")
    tidy.expect(complaints(hello, goodbye, goodbye.replace("goodbye", "other")),
                f"{PAGE}:4: {SCHEMA} has no message other")
    tidy.expect(complaints(hello, goodbye.replace("test_b", "test_c")),
                f'{PAGE}:3: tests/b.py has no scenario "test_c"')
    tidy.expect(complaints(hello, "| goodbye | itself | here | none |"),
                f"{PAGE}:3: goodbye needs who may send it, where that is checked, and a scenario")


if __name__ == "__main__":
    tidy.main(check_repository, self_test)
