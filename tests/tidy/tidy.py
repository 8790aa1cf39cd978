"""What the tidy scripts share: the repository's files, text without comments and strings, reports, self-tests.

Each script is a list of rules over (path, text) pairs. `main` runs them on the repository, or with --self-test on
the script's own bad and good examples, which proves that it catches what it should and nothing else.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def repository_files(*suffixes, under=()):
    """Tracked and new files that git does not ignore, as paths relative to the root."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *under]
    try:
        listed = subprocess.run(command, capture_output=True, check=False)
    except FileNotFoundError:
        listed = None
    if listed and listed.returncode == 0:
        names = [name for name in listed.stdout.decode().split("\0") if name]
    else:  # An unpacked archive, or no git: everything but what builds and runs leave.
        names = [str(path.relative_to(ROOT)) for path in ROOT.rglob("*") if path.is_file()]
        names = [name for name in names if not name.startswith(("build/", ".git/")) and "__pycache__/" not in name]
        names = [name for name in names if not under or name.startswith(tuple(f"{folder}/" for folder in under))]
    return sorted(name for name in set(names) if name.endswith(suffixes) and (ROOT / name).is_file())


def read(name):
    return (ROOT / name).read_text(encoding="utf-8", errors="replace")


_TOKENS = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<tag>[^(\s]{0,16})\(.*?\)(?P=tag)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'',
    re.DOTALL,
)


def _blank(match):
    text = match.group(0)
    if text[0] == "'" and len(text) > 4 and "\\" not in text:
        return text  # Digit separators (1'000'000), not a character.
    lines = text.count("\n")
    if text.startswith("/"):
        return " " + "\n" * lines
    return '""' + "\n" * lines if text[0] != "'" else "' '"


def code_only(text):
    """The text with comments removed and literals emptied; line numbers stay."""
    return _TOKENS.sub(_blank, re.sub(r"(?<=[0-9a-fA-F])'(?=[0-9a-fA-F])", "", text))


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


def main(check_repository, self_test):
    """Runs one or the other; prints complaints; the exit status says whether there were any."""
    if sys.argv[1:] == ["--self-test"]:
        self_test()
        print("self-test passed")
        return
    if sys.argv[1:]:
        sys.exit(f"usage: {sys.argv[0]} [--self-test]")
    complaints = check_repository()
    for complaint in complaints:
        print(complaint)
    if complaints:
        sys.exit(f"{len(complaints)} complaint(s)")


def expect(complaints, *fragments):
    """For self-tests: exactly one complaint per fragment, in order."""
    matched = len(complaints) == len(fragments) and all(f in c for f, c in zip(fragments, complaints))
    if not matched:
        sys.exit(f"self-test: expected complaints with {fragments}, got {complaints}")
