"""Rank 0 sends four floats with tag 42, rank 1 receives them.

    nexarctl run -n 2 -- python3 send_recv.py
"""
import nexar
import numpy as np

TAG = 42

with nexar.Session() as session, session.group() as group:
    if group.rank == 0:
        group.send(np.array([1.5, 2.5, 3.5, 4.5], np.float32), to=1, tag=TAG)  # ends when rank 1 has them
    elif group.rank == 1:
        values = np.empty(8, np.float32)  # room for more than will come
        source, tag, count = group.recv(values, nexar.ANY_SOURCE, TAG)
        print(*(f"{value:g}" for value in values[:count]), end="")
        print(f": {count} values with tag {tag} from rank {source}")
