"""Nothing in the repository that belongs to one person's machine or to an unfinished day: TODO(now), merge marks,
home folders, this machine's name, binaries."""

import re
import socket

import tidy

# This file holds the patterns themselves.
EXCEPT = {"tests/tidy/no_leftovers.py"}
LARGEST = 1 << 20
# Where binary files may be: fuzzing corpora, the data of the training example, pictures of what tools/bench measured.
BINARY = ("tests/fuzz/", "examples/digits/", "docs/performance/peers/")

PATTERNS = (
    (re.compile(r"TODO\(now\)"), "TODO(now): finish it or say TODO(soon)"),
    (re.compile(r"^(<{7}|>{7}) ", re.MULTILINE), "a merge mark"),
    (re.compile(r"/home/[a-z]|/root/(?!\.\.)|/Users/[A-Za-z]"), "a path in somebody's home folder"),
    (re.compile(r"(?<![\w./$}~-])/(work|mnt|srv)/"), "a path of one machine"),
)


def host_pattern(name):
    """Only names that cannot be words of the text: with a digit and a few characters."""
    distinct = len(name) >= 6 and any(c.isdigit() for c in name)
    return re.compile(rf"\b{re.escape(name)}\b") if distinct else None


def check_file(path, text, host=None):
    complaints = []
    for pattern, what in (*PATTERNS, (host, "the name of this machine")):
        for match in pattern.finditer(text) if pattern else ():
            complaints.append(f"{path}:{tidy.line_of(text, match.start())}: {what}")
    return complaints


def check_repository():
    host = host_pattern(socket.gethostname().split(".")[0])
    complaints = []
    for path in tidy.repository_files(""):
        if path in EXCEPT:
            continue
        data = (tidy.ROOT / path).read_bytes()
        if len(data) > LARGEST:
            complaints.append(f"{path}: {len(data)} bytes; nothing that large belongs here")
        elif b"\0" in data:
            if not path.startswith(BINARY):
                complaints.append(f"{path}: a binary file")
        else:
            complaints += check_file(path, data.decode("utf-8", "replace"), host)
    return complaints


def self_test():
    good = "// TODO(soon): later\ncd build/srv/x; ls ~/.cache ${HOME}/srv/x\na >> b\n"
    tidy.expect(check_file("good.cpp", good, host_pattern("builder7")))
    for bad, fragment in (
        ("a\n// TODO(now): fix\n", "bad.cpp:2: TODO(now)"),
        ("<<<<<<< HEAD\n", "merge mark"),
        ('"/home/ann/x"', "home folder"),
        ("cd /root/nexar", "home folder"),
        ("ls /srv/nexar", "one machine"),
        ("ssh builder7 ls", "name of this machine"),
    ):
        tidy.expect(check_file("bad.cpp", bad, host_pattern("builder7")), fragment)
    assert host_pattern("debian") is None and host_pattern("vm1") is None


if __name__ == "__main__":
    tidy.main(check_repository, self_test)
