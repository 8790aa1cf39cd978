#!/usr/bin/env python3
"""The same training as nexar_digits, in Python: numpy for the arithmetic, nexar for the gradients.

Start it alone (nexarctl run -n 4 -- python3 digits.py --check-reference) or mixed with nexar_digits in one
group: same images, same batches, same initial parameters, and the same update with the same bits. Only a
rank's own gradient may differ from the C++ one in rounding, and that is summed once, for all ranks.

With --sharded each rank updates its share of the parameters, and has the velocity of that share only: reduce_scatterv,
update, all_gatherv. With NEXAR_DETERMINISTIC=1 the parameters have the same bits as without, on any placement.
"""
import argparse
import json
import os
import struct
import sys
import time

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # the ranks are the parallelism; read at import
import numpy as np

PIXELS, HIDDEN, CLASSES = 64, 128, 10
W1, B1, W2, B2 = 0, 64 * 128, 64 * 128 + 128, 64 * 128 + 128 + 128 * 10
PARAMETERS = B2 + CLASSES
LOSS_AT, IMAGES_AT, REDUCED = PARAMETERS, PARAMETERS + 1, PARAMETERS + 2
BATCH, SEED, RATE, MOMENTUM = 96, 7, np.float32(0.1), np.float32(0.9)
ACCURACY_WANTED, REFERENCE_TOLERANCE = 0.95, 1e-4  # report.hpp says why this tolerance
MASK = 0xFFFFFFFFFFFFFFFF


class Random:
    """SplitMix64, as in random.hpp."""

    def __init__(self, seed):
        self.state = seed

    def next(self):
        self.state = z = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
        z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
        return z ^ z >> 31

    def symmetric(self):
        return (self.next() >> 40) * 2.0**-23 - 1.0  # exact in float32

    def shuffled(self, count):
        items = list(range(count))
        for left in range(count, 1, -1):
            other = self.next() % left
            items[left - 1], items[other] = items[other], items[left - 1]
        return items


def fnv1a(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & MASK
    return value


def load(path):
    """((training images, digits), (held-out images, digits)); DATA.md describes the file."""
    data = open(path, "rb").read()
    count, pixels = struct.unpack_from("<II", data, 8) if len(data) >= 16 else (0, 0)
    if data[:8] != b"NXDIGIT1" or pixels != PIXELS or len(data) != 16 + count * 65 + 8:
        sys.exit(f"{path}: not a data file as DATA.md describes it")
    if fnv1a(data[:-8]) != struct.unpack("<Q", data[-8:])[0]:
        sys.exit(f"{path}: its checksum does not match its content")
    images = np.frombuffer(data, np.uint8, count * 64, 16).reshape(count, 64).astype(np.float32) / np.float32(16)
    digits = np.frombuffer(data, np.uint8, count, 16 + count * 64)
    order, held = Random(1).shuffled(count), (count + 4) // 5
    return (images[order[held:]], digits[order[held:]]), (images[order[:held]], digits[order[:held]])


def initial_parameters(seed):
    parameters, random = np.zeros(PARAMETERS, np.float32), Random(seed)
    for begin, end, inputs in ((W1, B1, PIXELS), (W2, B2, HIDDEN)):
        uniform = np.array([random.symmetric() for _ in range(begin, end)], np.float32)
        parameters[begin:end] = uniform * np.sqrt(np.float32(6) / np.float32(inputs))
    return parameters


def forward(p, x):
    h = x @ p[W1:B1].reshape(PIXELS, HIDDEN) + p[B1:W2]
    h /= 1 + np.abs(h)
    return h, h @ p[W2:B2].reshape(HIDDEN, CLASSES) + p[B2:]


def gradient_into(sums, p, x, digits):
    """The gradient summed over the images, their loss and their number, into `sums`."""
    h, z = forward(p, x)
    rows = np.arange(len(x))
    z -= z.max(axis=1, keepdims=True, initial=-np.inf)
    target = z[rows, digits]
    np.exp(z, out=z)
    total = z.sum(axis=1, keepdims=True)
    z /= total
    z[rows, digits] -= 1
    dh = (z @ p[W2:B2].reshape(HIDDEN, CLASSES).T) * np.square(1 - np.abs(h))
    sums[W1:B1] = (x.T @ dh).ravel()
    sums[B1:W2] = dh.sum(axis=0)
    sums[W2:B2] = (h.T @ z).ravel()
    sums[B2:PARAMETERS] = z.sum(axis=0)
    sums[LOSS_AT] = (np.log(total[:, 0]) - target).sum()
    sums[IMAGES_AT] = len(x)


def update(parameters, velocity, gradient_sum, batch):
    """v = momentum v - rate (g / batch);  p = p + v. Each numpy call rounds once to float32, in the same order
    as update() in model.cpp, so the bits are the same."""
    step = RATE * (gradient_sum / np.float32(batch))
    np.multiply(velocity, MOMENTUM, out=velocity)
    np.subtract(velocity, step, out=velocity)
    np.add(parameters, velocity, out=parameters)


def update_sharded(peers, state, velocity, sums, batch):
    """The same update, of this rank's share. `state` is the parameters and, behind them, the last sums."""
    counts, begin, end = peers.shards(REDUCED)
    last = max(begin, min(end, PARAMETERS))
    peers.reduce_scatterv(sums, counts, sums[begin:end])
    update(state[begin:last], velocity[begin:last], sums[begin:last], batch)
    state[last:end] = sums[last:end]
    peers.all_gatherv(state[begin:end], counts, state)
    sums[PARAMETERS:] = state[PARAMETERS:]


class Alone:
    rank, size = 0, 1

    def alloc(self, count):
        return np.zeros(count, np.float32)

    def all_reduce(self, values):
        pass

    def broadcast(self, values):
        pass

    def all_gather(self, value):
        return [value]


class Peers:
    """The other ranks, through nexar."""

    Error = ()  # nexar.Error, once there is one to catch

    def __init__(self):
        here = os.path.dirname(os.path.abspath(__file__))
        sys.path += [os.path.join(here, "../../bindings/python"), os.path.join(here, "../../python")]  # source, installed
        import nexar

        Peers.Error = nexar.Error
        self.shard, self.session = nexar.shard, nexar.Session()
        self.group = self.session.group()  # name, size, rank and secret from the environment
        self.rank, self.size = self.group.rank, self.group.size

    def alloc(self, count):
        return self.session.alloc(count, np.float32)

    def all_reduce(self, values):
        self.group.all_reduce(values)  # sum, in place

    def shards(self, count):
        """(the lengths of all ranks' shares, where this rank's begins, where it ends)"""
        begin, length = self.shard(count, self.size, self.rank)
        return [self.shard(count, self.size, rank)[1] for rank in range(self.size)], begin, begin + length

    def reduce_scatterv(self, values, counts, own):
        self.group.reduce_scatterv(values, counts, own)

    def all_gatherv(self, own, counts, values):
        self.group.all_gatherv(own, counts, values)

    def broadcast(self, values):
        self.group.broadcast(values, root=0)

    def all_gather(self, value):
        return self.group.all_gather(np.array([value], np.uint64)).ravel().tolist()


def train(data, peers, epochs, show, sharded=False):
    """(parameters, losses, seconds in all_reduce, calls, seconds)"""
    begin, (images, digits) = time.perf_counter(), data
    state, sums = peers.alloc(REDUCED), peers.alloc(REDUCED)
    parameters = state[:PARAMETERS]
    velocity = np.zeros(PARAMETERS, np.float32)
    if peers.rank == 0:
        parameters[:] = initial_parameters(SEED)
    peers.broadcast(parameters)
    losses, reducing, calls = [], 0.0, 0
    for epoch in range(epochs):
        order, loss = Random(1000 + epoch).shuffled(len(images)), 0.0
        for at in range(0, len(order), BATCH):
            batch = order[at : at + BATCH]
            mine = batch[len(batch) * peers.rank // peers.size : len(batch) * (peers.rank + 1) // peers.size]
            gradient_into(sums, parameters, images[mine], digits[mine])
            start = time.perf_counter()
            if sharded:
                update_sharded(peers, state, velocity, sums, len(batch))
            else:
                peers.all_reduce(sums)
            reducing, calls = reducing + time.perf_counter() - start, calls + 1
            if sums[IMAGES_AT] != len(batch):
                sys.exit(f"all_reduce counted {sums[IMAGES_AT]} images in a batch of {len(batch)}")
            if not sharded:
                update(parameters, velocity, sums[:PARAMETERS], len(batch))
            loss += float(sums[LOSS_AT])
        losses.append(loss / len(order))
        if show:
            print(f"epoch {epoch + 1:3}            loss {losses[-1]:.4f}", flush=True)
    return parameters, losses, reducing, calls, time.perf_counter() - begin


def main():
    options = parse()
    training, (images, digits) = load(options.data)
    peers = Alone() if options.reference else Peers()
    parameters, losses, reducing, calls, seconds = train(
        training, peers, options.epochs, peers.rank == 0 and not options.json, options.sharded and peers.size > 1)

    hashes = peers.all_gather(fnv1a(parameters.tobytes()))
    accuracy = float((forward(parameters, images)[1].argmax(axis=1) == digits).mean())
    report = {"ranks": peers.size, "loss": losses, "accuracy": accuracy, "parameters_hash": f"{hashes[0]:016x}",
              "identical": len(set(hashes)) == 1, "seconds": seconds,
              "all_reduce": {"calls": calls, "bytes": calls * REDUCED * 4, "seconds": reducing,
                             "gigabytes_per_second": calls * REDUCED * 4 / reducing / 1e9 if reducing else 0}}
    passed = report["identical"] and accuracy >= ACCURACY_WANTED
    if options.check_reference and peers.rank == 0:
        reference = train(training, Alone(), options.epochs, False)[0]
        difference = float(np.abs(parameters.astype(np.float64) - reference).max())
        report |= {"reference_difference": difference, "reference_tolerance": REFERENCE_TOLERANCE}
        passed = passed and difference <= REFERENCE_TOLERANCE  # false for NaN
    report["passed"] = passed
    if peers.rank == 0:
        print(json.dumps(report)) if options.json else show_report(report, len(images))
    return 0 if passed else 1


def show_report(report, held_out):
    yes_no, calls = (lambda value: "yes" if value else "NO"), report["all_reduce"]
    print(f"held-out accuracy   {100 * report['accuracy']:.2f} % of {held_out} images; at least "
          f"{100 * ACCURACY_WANTED:.0f} %: {yes_no(report['accuracy'] >= ACCURACY_WANTED)}")
    print(f"parameters          hash {report['parameters_hash']}, bit-identical on all {report['ranks']} ranks: "
          f"{yes_no(report['identical'])}")
    if "reference_difference" in report:
        print(f"single process      largest difference of a parameter {report['reference_difference']:.1e}, "
              f"tolerance {REFERENCE_TOLERANCE:.0e}: "
              f"{yes_no(report['reference_difference'] <= REFERENCE_TOLERANCE)}")
    if report["ranks"] > 1:
        print(f"all_reduce          {calls['calls']} calls, {calls['bytes'] / 1e6:.1f} MB in {calls['seconds']:.3f} s "
              f"of {report['seconds']:.3f} s: {calls['gigabytes_per_second']:.3f} GB/s\n"
              "                    (vector bytes / time in the calls, which includes waiting for slower ranks)")
    print(f"result              {'passed' if report['passed'] else 'FAILED'}")


def parse():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=25, choices=range(1, 100001), metavar="N")
    parser.add_argument("--reference", action="store_true", help="train in this process alone, without nexar")
    parser.add_argument("--check-reference", action="store_true",
                        help="rank 0 then trains alone on the same batches and compares the parameters")
    parser.add_argument("--sharded", action="store_true", help="each rank updates its share of the parameters")
    parser.add_argument("--data", default=os.environ.get("NEXAR_DIGITS_DATA") or os.path.join(here, "digits.bin"))
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    return parser.parse_args()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Peers.Error as error:
        blamed = "" if error.rank is None else f" [rank {error.rank}]"
        sys.exit(f"digits.py (pid {os.getpid()}): {error}{blamed}")
    except ImportError as error:
        sys.exit(f"digits.py: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
