"""The programs of test_oracle.py in the simulator, with all that a network can do; and that it finds what is wrong."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from harness import *
from oracle import simulator

assert simulator.main(["--seed", "4", "--programs", "1", "--sabotage"]) != 0, "a wrong bit was not found"
print("ok      a wrong bit is found", flush=True)
sys.exit(simulator.main(["--seed", "1", "--programs", "200"]))
