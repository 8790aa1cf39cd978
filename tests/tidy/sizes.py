"""No source file over 600 lines: split the object that owns the state first."""

import tidy

LIMIT = 600
SUFFIXES = (".h", ".hpp", ".c", ".cpp", ".cu", ".py", ".sh", ".cmake", "CMakeLists.txt", ".capnp", ".rs", ".jl")
SCRIPTS_WITHOUT_SUFFIX = ("tools", ".ci")


def check_file(path, text):
    lines = len(text.splitlines())
    return [f"{path}: {lines} lines, the limit is {LIMIT}"] if lines > LIMIT else []


def check_repository():
    files = set(tidy.repository_files(*SUFFIXES))
    files |= {name for name in tidy.repository_files("", under=SCRIPTS_WITHOUT_SUFFIX) if "." not in name.split("/")[-1]}
    return [complaint for path in sorted(files) for complaint in check_file(path, tidy.read(path))]


def self_test():
    tidy.expect(check_file("good.cpp", "x\n" * LIMIT))
    tidy.expect(check_file("bad.cpp", "x\n" * (LIMIT + 1)), "bad.cpp: 601 lines")


if __name__ == "__main__":
    tidy.main(check_repository, self_test)
