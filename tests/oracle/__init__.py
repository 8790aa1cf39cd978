"""The oracle: random programs of random ranks on real daemons, and what numpy and include/nexar.h say must come of them.

program.py says what a program is, draw.py draws one from a seed, and data.py its inputs; reference.py says what each rank's
output is; rank.py performs it (thread.py, calls.py, memory.py, messages.py, early.py, creates.py, waits.py); allowed.py judges the
ends over all ranks, and creates_allowed.py those of creates (judge_test.py); runner.py has the daemons and processes.
tests/oracle/run.py is the command. simulator.py hands programs to the simulator, which performs them over worse networks.
"""
