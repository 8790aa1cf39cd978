"""Rank 0 has the settings, all others get them: once as a Python object, once as an array.

    nexarctl run -n 4 -- python3 broadcast.py
"""
import nexar
import numpy as np

with nexar.Session() as session, session.group() as group:
    settings = {"rate": 0.1, "epochs": 25} if group.rank == 0 else None
    settings = group.bcast_object(settings, root=0)
    weights = np.linspace(0, 1, 5) if group.rank == 0 else np.empty(5)
    group.broadcast(weights, root=0)
    print(f"rank {group.rank}: rate {settings['rate']}, {settings['epochs']} epochs, weights {weights.tolist()}")
