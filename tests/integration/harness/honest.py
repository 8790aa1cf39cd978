"""What honest ranks do while somebody does harm beside them."""
import time

import numpy as np

from .values import check, given, reduced


def works(me, seconds, largest=50_000):
    """Sums of all sizes until everybody's time is up and each was seen twice; the longest turn. Marked once all its memory
    has been registered."""
    group, end, turns, longest = me.group(), time.monotonic() + seconds, 0, 0
    while True:
        if turns == 3:
            me.mark()
        begin = time.monotonic()
        count = (1, 1000, largest)[turns % 3]
        check(group.all_reduce(given("float32", "sum", me.rank, count, salt=turns)),
              reduced("float32", "sum", me.size, count, salt=turns), f"turn {turns}")
        go_on = group.all_reduce(np.array([time.monotonic() < end or turns < 6]).astype("int32"), op="min")
        longest, turns = max(longest, time.monotonic() - begin), turns + 1
        if not go_on[0]:
            return longest
