"""No word that docs/glossary.md lists as never right, in comments, texts, documents or parts of names.

tests/tidy/words_allowed.txt has the exceptions, one a line: `not-yet PREFIX` for a room that is not revised, and
`allow PREFIX NAME reason` for one name or word under a path.
"""

import collections
import re

import tidy

GLOSSARY, ALLOWED = "docs/glossary.md", "tests/tidy/words_allowed.txt"
# They hold the words themselves.
EXCEPT = {GLOSSARY, ALLOWED, "tests/tidy/words.py"}
SUFFIXES = (".h", ".hpp", ".c", ".cpp", ".cu", ".py", ".sh", ".cmake", "CMakeLists.txt", ".capnp", ".md", ".txt", ".toml",
            ".in", ".json", ".yml", ".rs", ".jl", ".def")
SCRIPTS_WITHOUT_SUFFIX = ("tools", ".ci", "tests")

MARK = re.compile(r"<!-- never-right:.*?-->\n(.*?)(?:\n\n|\Z)", re.DOTALL)
NAME = re.compile(r"[A-Za-z0-9_]+")
PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")

Entry = collections.namedtuple("Entry", "number prefix name")  # name: None for a whole room


def read_glossary(text):
    """{word: what to say}; a phrase has spaces, an open ending a star."""
    table = MARK.search(text)
    if not table:
        raise SystemExit(f"{GLOSSARY}: the table of words that are never right is missing")
    words = {}
    for row in table.group(1).strip().split("\n")[2:]:
        never, instead = (cell.strip() for cell in row.strip("|").split("|"))
        words.update((word.strip(), instead) for word in never.split(","))
    return words


def expression_of(word):
    """A listed word as a pattern over lower-case parts: "stash*" takes any ending, "last words" also last_words."""
    return word.replace("*", "[a-z]*").replace(" ", "[ _]+")


def pattern_of(words):
    longest_first = sorted(words, key=lambda word: (-len(word), word))
    return re.compile("|".join(rf"(?<![a-z])(?:{expression_of(word)})(?![a-z])" for word in longest_first))


def parts_of(line):
    """The line with every name cut into lower-case parts (lastHeardAt: last heard at), and for each part's offset
    there the whole name."""
    out, names = "", []
    end = 0
    for match in NAME.finditer(line):
        out += line[end:match.start()]
        for part in PART.finditer(match.group(0)):
            names.append((len(out), match.group(0)))
            out += part.group(0).lower() + ("_" if part.end() < len(match.group(0)) else "")
        end = match.end()
    return out + line[end:], dict(names)


def never_right(text, pattern):
    """(line's number, name or word as it stands, what matched) of each use."""
    for number, line in enumerate(text.split("\n"), 1):
        parts, names = parts_of(line)
        for match in pattern.finditer(parts):
            yield number, names.get(match.start(), match.group(0)), match.group(0)


def instead_of(word, words):
    return next(instead for known, instead in words.items() if re.fullmatch(expression_of(known), word))


def read_allowed(text):
    entries, complaints = [], []
    for number, line in enumerate(text.split("\n"), 1):
        fields = line.split()
        if not fields or fields[0].startswith("#"):
            continue
        if fields[0] == "not-yet" and len(fields) == 2:
            entries.append(Entry(number, fields[1], None))
        elif fields[0] == "allow" and len(fields) > 3:
            entries.append(Entry(number, fields[1], fields[2]))
        else:
            complaints.append(f"{ALLOWED}:{number}: `not-yet PREFIX`, or `allow PREFIX NAME reason`")
    return entries, complaints


def check(files, words, entries):
    """Complaints about (path, text) pairs, and the entries that no file needs."""
    pattern, complaints, unused = pattern_of(words), [], set(entries)
    for path, text in files:
        own = [entry for entry in entries if path.startswith(entry.prefix)]
        for number, name, word in never_right(text, pattern):
            matching = [entry for entry in own if entry.name in (None, name)]
            unused.difference_update(matching)
            if not matching:
                where = f" in {name}" if name.lower() != word else ""
                complaints.append(f"{path}:{number}: \"{word}\"{where} is never right; say: {instead_of(word, words)}")
    return complaints, sorted(unused)


def check_repository():
    words = read_glossary(tidy.read(GLOSSARY))
    entries, complaints = read_allowed(tidy.read(ALLOWED))
    names = set(tidy.repository_files(*SUFFIXES))
    names |= {name for name in tidy.repository_files("", under=SCRIPTS_WITHOUT_SUFFIX)
              if "." not in name.split("/")[-1] and not name.startswith("tests/fuzz/")}
    found, unused = check(((name, tidy.read(name)) for name in sorted(names - EXCEPT)), words, entries)
    for entry in unused:
        if entry.name is None:  # A note only: several branches revise rooms at once.
            print(f"{ALLOWED}:{entry.number}: {entry.prefix} is revised: delete the line")
        else:
            complaints.append(f"{ALLOWED}:{entry.number}: nothing under {entry.prefix} needs it: delete the line")
    return complaints + found


def self_test():
    glossary = ("text\n<!-- never-right: here -->\n| never | say instead |\n|---|---|\n| heard, hears | received |\n"
                "| stash* | buffer |\n| last words | final messages |\n\n| told | x |\n")
    words = read_glossary(glossary)
    assert words == {"heard": "received", "hears": "received", "stash*": "buffer", "last words": "final messages"}, words

    def complaints(text, allowed=()):
        return check([("a/bad.cpp", text)], words, list(allowed))[0]

    tidy.expect(complaints("sheard heardx told // she ard\nint the_words = last; the_last, words\n"))
    for bad, fragment in (
        ("x\n// It HEARD it.\n", 'a/bad.cpp:2: "heard" is never right; say: received'),
        ("int last_heard_at;", '"heard" in last_heard_at is never right'),
        ("int heard_;", '"heard" in heard_'),
        ("setHeardAt(1)", '"heard" in setHeardAt'),
        ("MAX_HEARD_AGE", '"heard" in MAX_HEARD_AGE'),
        ('"who hears"', '"hears" is never right; say: received'),
        ("stashed", '"stashed" is never right; say: buffer'),
        ("its last  words", "say: final messages"),
        ("last_words()", '"last_words" is never right'),
    ):
        tidy.expect(complaints(bad), fragment)
    tidy.expect(complaints("heard hears"), "heard", "hears")

    allowed, wrong = read_allowed("# note\nnot-yet b/\nallow a/ heardAt a wire field\nallow a/ heard\n")
    tidy.expect(wrong, f"{ALLOWED}:4")
    tidy.expect(complaints("heardAt heard_at", allowed), "heard_at")
    found, unused = check([("b/x", "heard"), ("c/x", "fine")], words, allowed)
    tidy.expect(found)
    assert [entry.prefix for entry in unused] == ["a/"], unused


if __name__ == "__main__":
    tidy.main(check_repository, self_test)
