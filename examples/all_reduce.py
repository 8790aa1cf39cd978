"""Every rank adds its vector; all get the sum, in memory that the daemon uses in place.

    nexarctl run -n 4 -- python3 all_reduce.py
"""
import nexar
import numpy as np

COUNT = 1000

with nexar.Session() as session, session.group() as group:
    x = session.alloc(COUNT, np.float32)
    x[:] = group.rank * COUNT + np.arange(COUNT)
    group.all_reduce(x)
    # 0 + 1000 + 2000 + ... and i from each rank
    assert (x == COUNT * group.size * (group.size - 1) // 2 + group.size * np.arange(COUNT)).all(), x
    print(f"rank {group.rank} of {group.size}: x[0] = {x[0]:g}, x[{COUNT - 1}] = {x[-1]:g}")
