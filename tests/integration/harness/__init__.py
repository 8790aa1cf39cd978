"""The harness of the integration tests: `from harness import *` in a test file, then `main(globals())` at its end.

ctest says in variables where the programs are. By hand, from the folder of a build:
    NEXAR_BUILD_DIR=$PWD python3 .../tests/integration/test_links.py [words of names of tests]
"""
import os
import pathlib
import sys

_ROOT = pathlib.Path(__file__).resolve().parents[3]
# With _native where the build has made it.
_BUILT = pathlib.Path(os.environ.get("NEXAR_TEST_PYTHON", pathlib.Path(os.environ.get("NEXAR_BUILD_DIR", _ROOT / "build/dev")) / "bindings/python"))
sys.path.insert(0, str(_BUILT if list(_BUILT.glob("nexar/_native*.so")) else _ROOT / "bindings" / "python"))
os.environ.setdefault("NEXAR_MEMFDS_IN_PLACE", "true")  # of its daemons; tests of hostile users have the default
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # the ranks are the parallelism; read at import
for _variable, _path in {"NEXAR_TEST_NEXARD": "daemon/nexard", "NEXAR_LIBRARY": "libnexar_c/libnexar_c.so.0.2",
                         "NEXAR_TEST_NEXARCTL": "tools/nexarctl/nexarctl", "NEXAR_TEST_DIGITS": "examples/nexar_digits",
                         "NEXAR_TEST_ABI_FUTURE": "tests/abi/abi_future", "NEXAR_TEST_SIM_ENGINE": "tests/sim/sim_engine",
                         "NEXAR_TEST_RANK_CLIENT": "tests/integration/rank_client",
                         "NEXAR_TEST_HOSTILE_CLIENT": "tests/integration/hostile_client",
                         "NEXAR_TEST_STAGED_CLIENT": "tests/integration/staged_client",
                         "NEXAR_TEST_MEMBER_CLIENT": "tests/integration/member_client",
                         "NEXAR_TEST_HOSTILE_MEMBER": "tests/integration/hostile_member",
                         "NEXAR_TEST_FAULTY_DISK": "tests/integration/libfaulty_disk.so"}.items():
    os.environ.setdefault(_variable, str(pathlib.Path(os.environ.get("NEXAR_BUILD_DIR", _ROOT / "build/dev")) / _path))

from .system import SKIPPED, skip  # noqa: E402

try:
    import numpy as np
except ImportError:
    skip("numpy is missing for this Python")
import nexar  # noqa: E402

from . import cabi  # noqa: E402
from .cluster import (BUSY, COLLECTIVE_TIMEOUT, HEARTBEAT_INTERVAL, HEARTBEAT_TIMEOUT, PORT, Cluster,  # noqa: E402
                      Node, Refused, eventually)
from .expected import expected_failure  # noqa: E402
from .ranks import Failure, Job, Me, Rank, program, run  # noqa: E402
from .runner import contains, equal, main, same_failure  # noqa: E402

__all__ = ["BUSY", "COLLECTIVE_TIMEOUT", "Cluster", "Failure", "HEARTBEAT_INTERVAL", "HEARTBEAT_TIMEOUT", "Job", "Me",
           "Node", "PORT", "Rank", "Refused", "SKIPPED", "contains", "equal", "eventually", "expected_failure", "main", "cabi",
           "nexar", "np", "program", "run", "same_failure", "skip"]
