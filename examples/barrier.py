"""Ranks come 50 ms apart, and leave the barrier together: none before the last one has come.

    nexarctl run -n 4 -- python3 barrier.py
"""
import time

import nexar

APART_SECONDS = 0.05

with nexar.Session() as session, session.group() as group:
    group.barrier()  # all begin at the same time
    begin = time.monotonic()
    time.sleep(group.rank * APART_SECONDS)  # sleep: the example's staggered arrivals
    came = time.monotonic() - begin
    try:
        group.barrier(timeout=5)
    except nexar.TimedOut as late:
        raise SystemExit(f"rank {late.rank} on {late.host} has not come") from None
    print(f"rank {group.rank}: came after {came * 1000:.0f} ms, left after {(time.monotonic() - begin) * 1000:.0f} ms")
