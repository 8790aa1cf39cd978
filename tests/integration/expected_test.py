"""A scenario with @expected_failure must fail, in the way that it says: the harness alone, without daemons."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "harness"))
from expected import UnexpectedPass, expected_failure, run_expected  # noqa: E402


class Cluster:
    def __init__(self, *crashed):
        self._crashed = crashed

    def crashed(self):
        return self._crashed


def fails(_):
    raise AssertionError("have 1, want 2")


def passes(_):
    pass


def broken(_):
    raise NameError("no such thing")


def outcome(scenario, *crashed, **named):
    marked = expected_failure("D6", owner="isolation", **named)(scenario)
    try:
        return run_expected(marked.expected_failure, marked, Cluster(*crashed))
    except Exception as error:
        return type(error)


def main():
    for have, want in ((outcome(fails), "have 1, want 2"), (outcome(passes), UnexpectedPass),
                       (outcome(broken), NameError), (outcome(fails, "node 1"), RuntimeError),
                       (outcome(passes, "node 1"), RuntimeError), (outcome(passes, "node 1", crash=True), "node 1"),
                       (outcome(fails, "node 1", crash=True), "node 1"), (outcome(passes, crash=True), UnexpectedPass)):
        if have != want:
            sys.exit(f"have {have!r}, want {want!r}")
    try:
        expected_failure("the ring", owner="isolation")
        sys.exit("'the ring' passed for an id")
    except ValueError:
        print("ok")


main()
