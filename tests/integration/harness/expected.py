"""Scenarios that show a known defect: they must fail until the work that removes its cause is done."""
import dataclasses
import re


@dataclasses.dataclass(frozen=True)
class Expected:
    """How a marked scenario has to fail. crash: a daemon may be dead afterwards."""
    ids: tuple
    owner: str
    why: str
    crash: bool

    def __str__(self):
        return f"{' '.join(self.ids)}, {self.owner}"


def expected_failure(id, owner, why="", crash=False):
    """Turns a scenario's result round: an AssertionError is "ok", the end of the function is a failure.

        @expected_failure("D6", owner="isolation")
        def test_512_processes_start_together(cluster):
            '''[D6] ...'''

    id: one, or several separated by blanks; each has a line in tests/expected_failures.txt. Any other exception is a
    mistake of the scenario, and fails. So does a daemon that is dead at the end, unless crash=True, which makes the
    dead daemon the failure that is expected."""
    ids = tuple(id.split())
    if not ids or not all(re.fullmatch(r"[A-Z][0-9]+", one) for one in ids):
        raise ValueError(f"expected_failure: '{id}' is no id, want for example 'D6' or 'D5 H3'")

    def mark(scenario):
        scenario.expected_failure = Expected(ids, owner, why, crash)
        return scenario
    return mark


class UnexpectedPass(Exception):
    pass


def run_expected(expected, scenario, cluster):
    """Runs a marked scenario; raises when it does not fail as its mark says."""
    try:
        scenario(cluster)
        failure = None
    except AssertionError as error:
        failure = error
    crashed = "; ".join(cluster.crashed())
    if crashed and not expected.crash:
        raise RuntimeError(f"{crashed}; a crash is expected only with crash=True") from failure
    if not failure and not crashed:
        raise UnexpectedPass("unexpectedly passes: remove its mark, and its line in tests/expected_failures.txt")
    return crashed or (str(failure).strip().splitlines() or ["an assertion"])[-1]
