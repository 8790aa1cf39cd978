#!/usr/bin/env python3
"""digits.py gives the bits that golden_bits.hpp promises for C++: initial parameters, order, update."""
import os
import re
import sys

here = os.path.dirname(os.path.abspath(__file__))
digits_folder = os.path.join(here, "..", "..", "..", "examples", "digits")
sys.path.insert(0, digits_folder)
try:
    import numpy as np
except ImportError:
    print("numpy is not installed: skipped")
    sys.exit(77)
import digits

golden = dict(re.findall(r"uint64_t (\w+) = 0x([0-9a-f]{16})", open(os.path.join(here, "golden_bits.hpp")).read()))


def uniform(random, count):
    return np.array([random.symmetric() for _ in range(count)], np.float32)


def hash_of(array):
    return f"{digits.fnv1a(array.tobytes()):016x}"


def updated():
    random = digits.Random(42)
    p, v = uniform(random, 4096), uniform(random, 4096)
    for batch in (96, 93, 7, 1, 96, 96, 13, 50):
        digits.update(p, v, uniform(random, 4096) * np.float32(batch), batch)
    return p, v


(train, train_digits), (held, held_digits) = digits.load(os.path.join(digits_folder, "digits.bin"))
p, v = updated()
seen = {
    "initial_hash": hash_of(digits.initial_parameters(7)),
    "updated_parameters_hash": hash_of(p),
    "updated_velocity_hash": hash_of(v),
    "epoch_order_hash": hash_of(np.array(digits.Random(1003).shuffled(1437), np.uint32)),
    "train_images_hash": hash_of(train),
    "held_out_digits_hash": hash_of(held_digits),
}
assert seen == golden, f"\nPython: {seen}\ngolden: {golden}"

peers = digits.Alone()
parameters, losses, *_ = digits.train((train, train_digits), peers, 25, False)
accuracy = (digits.forward(parameters, held)[1].argmax(axis=1) == held_digits).mean()
assert accuracy >= digits.ACCURACY_WANTED, accuracy
print(f"same bits as C++; accuracy {accuracy:.4f}, loss {losses[0]:.4f} to {losses[-1]:.4f}")
