"""The harness of the integration tests: `from harness import *` in a test file, then `main(globals())` at its end.

ctest sets the variables NEXAR_TEST_... that name the programs, and NEXAR_LIBRARY; by hand: see run.sh beside this.
"""
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "bindings" / "python"))
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # the ranks are the parallelism; read at import

from .system import SKIPPED, skip  # noqa: E402

try:
    import numpy as np
except ImportError:
    skip("numpy is missing for this Python")
import nexar  # noqa: E402

from .cluster import (COLLECTIVE_TIMEOUT, HEARTBEAT_INTERVAL, HEARTBEAT_TIMEOUT, PORT, Cluster, Node,  # noqa: E402
                      Refused, eventually)
from .ranks import Failure, Job, Me, Rank, program, run  # noqa: E402
from .runner import contains, equal, main, same_failure  # noqa: E402

__all__ = ["COLLECTIVE_TIMEOUT", "Cluster", "Failure", "HEARTBEAT_INTERVAL", "HEARTBEAT_TIMEOUT", "Job", "Me", "Node",
           "PORT", "Rank", "Refused", "SKIPPED", "contains", "equal", "eventually", "main", "nexar", "np",
           "program", "run",
           "same_failure", "skip"]
