"""The programs of test_oracle.py in the simulator, with all that a network can do, and ranks that cancel, are late, die, leave or abort;
and that it finds what is wrong."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from harness import *
from oracle import simulator

for kind, seed in (("plain", 4), ("ends", 149), ("death", 8), ("leave", 1), ("exception", 1)):
    failed = simulator.main(["--seed", str(seed), "--programs", "1", "--kind", kind, "--sabotage"])
    assert failed != 0, f"{kind}: a wrong bit, or a wrong error, was not found"
    print(f"ok      a wrong bit, or a wrong error, is found: {kind}", flush=True)
plain = simulator.main(["--seed", "1", "--programs", "200", "--kind", "plain"])
sys.exit(plain or simulator.main(["--seed", "1", "--programs", "60", *(word for kind in simulator.KINDS[1:] for word in ("--kind", kind))]))
