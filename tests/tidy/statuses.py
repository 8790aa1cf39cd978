"""docs/errors.md has a remedy for each status of include/nexar/status.h, in its order, and none for another one."""

import re

import tidy

HEADER, PAGE = "include/nexar/status.h", "docs/errors.md"
# NEXAR_ERR_CALL = -100 and the other hundreds are classes, which no function returns.
STATUS = re.compile(r"\bNEXAR_ERR_([A-Z_]+) = -(\d+)")
ROW = re.compile(r"^\| `([A-Z_]+)` \| *(\S.*)? *\|$", re.MULTILINE)


def statuses_of(header):
    return [name for name, number in STATUS.findall(header) if int(number) % 100]


def check(header, page):
    known, rows = statuses_of(header), ROW.findall(page)
    listed = [name for name, _ in rows]
    complaints = [f"{PAGE}: {name} has no row" for name in known if name not in listed]
    complaints += [f"{PAGE}: {name} is no status of {HEADER}" for name in listed if name not in known]
    complaints += [f"{PAGE}: {name} has no remedy" for name, remedy in rows if not remedy]
    if not complaints and listed != known:
        complaints.append(f"{PAGE}: its rows are not in the order of {HEADER}")
    return complaints


def check_repository():
    return check(tidy.read(HEADER), tidy.read(PAGE))


def self_test():
    header = "NEXAR_ERR_CALL = -100,\nNEXAR_ERR_A = -101,\nNEXAR_ERR_B_C = -202, /* * */"
    tidy.expect(check(header, "| `A` | do |\n| `B_C` | this |\n"))
    tidy.expect(check(header, "| `B_C` | do |\n| `A` | this |\n"), f"{PAGE}: its rows are not in the order of {HEADER}")
    tidy.expect(check(header, "| `A` | |\n| `D` | x |\n"), f"{PAGE}: B_C has no row", f"{PAGE}: D is no status of {HEADER}",
                f"{PAGE}: A has no remedy")


if __name__ == "__main__":
    tidy.main(check_repository, self_test)
