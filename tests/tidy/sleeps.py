"""No test sleeps to guess a state: it waits for one. A sleep that is right says why in a comment on its line:
`sleep: between two looks`, `sleep: the time over which it is measured`.
"""

import re

import tidy

UNDER = ("tests",)
CALL = re.compile(r"\btime\.sleep\(|\b(?:sleep_for|sleep_until|usleep|nanosleep)\(|(?<![\w.:])(?:::)?sleep\(\s*\d")
IN_SHELL = re.compile(r"^\s*sleep\s", re.MULTILINE)
REASON = re.compile(r"(?:#|//|/\*) ?(?:.*\W)?sleep: \w")
# They hold the patterns themselves.
EXCEPT = {"tests/tidy/sleeps.py"}


def check_file(path, text):
    pattern = IN_SHELL if path.endswith(".sh") else CALL
    complaints = []
    for number, line in enumerate(text.splitlines(), 1):
        code = re.split(r"#" if path.endswith((".py", ".sh")) else r"//", line, maxsplit=1)[0]
        if pattern.search(code) and not REASON.search(line):
            complaints.append(f"{path}:{number}: a sleep without its reason; wait for a state, or say `sleep: why`")
    return complaints


def check_repository():
    files = tidy.repository_files(".py", ".cpp", ".hpp", ".h", ".c", ".sh", under=UNDER)
    return [complaint for path in files if path not in EXCEPT for complaint in check_file(path, tidy.read(path))]


def self_test():
    tidy.expect(check_file("good.py", "time.sleep(1)  # sleep: between two looks\n# time.sleep(1)\nasleep(3)\n"))
    tidy.expect(check_file("good.cpp", "::usleep(5);  // sleep: a moment\nn.announce_sleep();\nasleep(7);\n"))
    for path, line in (
        ("bad.py", "time.sleep(0.3)  # they wait by now"),
        ("bad.cpp", "std::this_thread::sleep_for(50ms);"),
        ("bad.cpp", "  ::usleep(1000);"),
        ("bad.cpp", "  ::sleep(30);"),
        ("bad.hpp", "nanosleep(&nap, nullptr);"),
        ("bad.sh", "sleep 1"),
    ):
        tidy.expect(check_file(path, f"\n{line}\n"), f"{path}:2: a sleep without its reason")


if __name__ == "__main__":
    tidy.main(check_repository, self_test)
