"""Prints "passed failed skipped" of a ctest JUnit file. A test that could not be started counts as failed."""

import sys
import xml.etree.ElementTree


def outcome(case):
    status = case.get("status")
    if status == "run":
        return 0
    skipped = case.find("skipped")
    message = skipped.get("message", "") if skipped is not None else ""
    if status == "disabled" or message.startswith("SKIP_"):
        return 2
    return 1


def main():
    counts = [0, 0, 0]
    for case in xml.etree.ElementTree.parse(sys.argv[1]).iter("testcase"):
        counts[outcome(case)] += 1
    print(*counts)


if __name__ == "__main__":
    main()
