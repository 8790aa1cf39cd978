"""Every status that a nexar call can return is provoked by a test: docs/abi.md has a table of them, which is compared with
include/nexar/status.h (a star marks the reserved ones) and with the tests that it names.

    provoked.py PROJECT_FOLDER
"""

import pathlib
import re
import sys


def codes(header):
    """{name: whether it is reserved}; those for "any of this class" are not returned by calls of this version."""
    found = {}
    for name, number, comment in re.findall(r"NEXAR_ERR_(\w+) = -(\d+),?\s*(/\*.*?\*/)?", header, re.DOTALL):
        if int(number) % 100:
            found[name] = comment.startswith("/* *")
    return found


def main():
    root = pathlib.Path(sys.argv[1])
    known = codes((root / "include/nexar/status.h").read_text(encoding="utf-8"))
    table = dict(re.findall(r"^\| ([A-Z_]+) \| (tests/\S+) \|$", (root / "docs/abi.md").read_text(encoding="utf-8"), re.MULTILINE))
    complaints = [f"{name}: no test in the table of docs/abi.md" for name, reserved in known.items()
                  if not reserved and name not in table]
    for name, test in table.items():
        text = (root / test).read_text(encoding="utf-8") if (root / test).exists() else ""
        if name not in known or known[name]:
            complaints.append(f"{name}: in the table, but {'reserved' if name in known else 'no code of status.h'}")
        elif not re.search(rf'"{name}"|NEXAR_ERR_{name}\b', text):
            complaints.append(f"{name}: {test} does not have it")
    print(*complaints or [f"{len(table)} codes"], sep="\n")
    return 1 if complaints or not known else 0


if __name__ == "__main__":
    sys.exit(main())
