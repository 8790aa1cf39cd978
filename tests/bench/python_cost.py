#!/usr/bin/env python3
"""What a call of the Python package costs above the same call in C: one process, one daemon of its own, a group of one rank,
8 bytes, both in alternation, medians; and, for a busy machine, where either may find the daemon asleep, the best round of Python above the best of C.
The C loops are compiled here, and work on the same group.

    NEXAR_LIBRARY=... NEXAR_NEXARD=... PYTHONPATH=BUILD/bindings/python python_cost.py [ROUNDS]
"""
import ctypes
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

import nexar
import nexar.testing

CALLS = 200  # of one round of one side

LOOPS = r"""
#include <nexar.h>
enum { N = 8 };
#define LOOP(name, body) \
    int name(nexar_session* s, nexar_group* g, double* x, double* y, nexar_request p, int n) { \
        nexar_op_options o = NEXAR_OP_OPTIONS_INIT; \
        o.timeout_ms = 5000; o.match_id = 0; o.priority = NEXAR_PRIORITY_DEFAULT; \
        nexar_request r, of[N]; nexar_message m; nexar_completion c = NEXAR_COMPLETION_INIT; \
        (void)r; (void)c; (void)o; (void)x; (void)y; (void)p; (void)s; (void)m; (void)of; \
        while (n-- > 0) { if (body) return 1; } \
        return 0; \
    }
LOOP(all_reduce, nexar_all_reduce(g, x, x, 1, NEXAR_F64, NEXAR_SUM, NULL))
LOOP(with_options, nexar_all_reduce(g, x, x, 1, NEXAR_F64, NEXAR_SUM, &o))
LOOP(to_out, nexar_all_reduce(g, x, y, 1, NEXAR_F64, NEXAR_MAX, NULL))
LOOP(broadcast, nexar_broadcast(g, x, 1, NEXAR_F64, 0, NULL))
LOOP(barrier, nexar_barrier(g, NULL))
LOOP(started, nexar_all_reduce_start(g, x, x, 1, NEXAR_F64, NEXAR_SUM, NULL, &r) || nexar_request_wait(r, -1, &c) || nexar_request_free(r))
LOOP(started_with_options, nexar_all_reduce_start(g, x, x, 1, NEXAR_F64, NEXAR_SUM, &o, &r) || nexar_request_wait(r, 5000, &c) || nexar_request_free(r))
LOOP(barrier_started, nexar_barrier_start(g, NULL, &r) || nexar_request_wait(r, -1, &c) || nexar_request_free(r))
static int eight(nexar_group* g, double* x, nexar_request* r) {
    int failed = 0;
    for (int i = 0; i < N; ++i) failed |= nexar_all_reduce_start(g, x, x, 1, NEXAR_F64, NEXAR_SUM, NULL, &r[i]);
    return failed;
}
static int all_of(nexar_request* r) {
    nexar_completion c[N] = {NEXAR_COMPLETION_INIT};
    for (int i = 0; i < N; ++i) c[i] = c[0];
    int failed = nexar_request_wait_all(r, N, -1, c, sizeof *c);
    for (int i = 0; i < N; ++i) failed |= nexar_request_free(r[i]);
    return failed;
}
static int some_of(nexar_request* r) {
    nexar_completion c[N] = {NEXAR_COMPLETION_INIT};
    uint64_t ended = 0, indices[N];
    int failed = 0;
    for (int i = 0; i < N; ++i) c[i] = c[0];
    for (uint64_t left = N; left > 0 && !failed; left -= ended) {
        failed = nexar_request_wait_some(r, N, -1, indices, &ended, c, sizeof *c);
        for (uint64_t k = 0; k < ended; ++k) failed |= nexar_request_free(r[indices[k]]), r[indices[k]] = 0;
    }
    return failed;
}
LOOP(wait_all, eight(g, x, of) || all_of(of))
LOOP(wait_some, eight(g, x, of) || some_of(of))
LOOP(in_ops, nexar_ops_begin(s) || eight(g, x, of) || nexar_ops_end(s) || all_of(of))
LOOP(probe, nexar_probe(g, 0, 7, &c, NULL))
LOOP(probe_now, (o.timeout_ms = 0, nexar_probe(g, 0, 7, &c, &o)))
LOOP(probe_started, nexar_probe_start(g, 0, 7, NULL, &r) || nexar_request_wait(r, -1, &c) || nexar_request_free(r))
LOOP(put_back, nexar_mprobe(g, 0, 7, &m, &c, NULL) || nexar_message_free(g, m))
LOOP(set_apart, nexar_send_start(g, x, 1, NEXAR_F64, 0, 3, NULL, &r) || nexar_mprobe(g, 0, 3, &m, &c, NULL) || nexar_mrecv(g, m, y, 1, NEXAR_F64, &c, NULL) || nexar_request_wait(r, -1, &c) || nexar_request_free(r))
LOOP(persistent, nexar_request_start(p) || nexar_request_wait(p, -1, &c))
LOOP(messages, nexar_recv_start(g, y, 1, NEXAR_F64, 0, 3, NULL, &r) || nexar_send(g, x, 1, NEXAR_F64, 0, 3, NULL) || nexar_request_wait(r, -1, &c) || nexar_request_free(r))
LOOP(received, nexar_send_start(g, x, 1, NEXAR_F64, 0, 3, NULL, &r) || nexar_recv(g, y, 1, NEXAR_F64, 0, 3, &c, NULL) || nexar_request_wait(r, -1, &c) || nexar_request_free(r))
LOOP(exchange, nexar_sendrecv(g, x, 1, NEXAR_F64, 0, 3, y, 1, NEXAR_F64, 0, 3, &c, NULL))
LOOP(replace, nexar_sendrecv_replace(g, x, 1, NEXAR_F64, 0, 3, 0, 3, &c, NULL))
"""


def loops():
    include = pathlib.Path(__file__).resolve().parents[2] / "include"
    with tempfile.TemporaryDirectory() as folder:
        target = os.path.join(folder, "loops.so")
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", f"-I{include}", "-x", "c", "-", "-o", target], input=LOOPS, text=True, check=True)
        ctypes.CDLL(os.environ["NEXAR_LIBRARY"], ctypes.RTLD_GLOBAL)
        return ctypes.CDLL(target)


EIGHT = range(8)


def several(session, group, x):
    """Lists of requests, and op groups."""
    def eight():
        return [group.all_reduce_start(x) for _ in EIGHT]

    def wait_some():
        requests, left = eight(), 8
        while left:
            left -= len(nexar.wait_some(requests))

    def in_ops():
        with session.ops():
            requests = eight()
        nexar.wait_all(requests)

    return {
        "8 x all_reduce_start, wait_all": ("wait_all", lambda: nexar.wait_all(eight())),
        "8 x all_reduce_start, wait_some": ("wait_some", wait_some),
        "ops(), 8 x all_reduce_start, wait_all": ("in_ops", in_ops)}


def probes(group, x, y):
    """Of a message with tag 7 that is there all the time; and of one each."""
    def set_apart():
        request = group.send_start(x, 0, 3)
        group.mprobe(0, 3).recv(y)
        request.wait()

    return {
        "probe(0, 7)": ("probe", lambda: group.probe(0, 7)),
        "probe(0, 7, timeout=0)": ("probe_now", lambda: group.probe(0, 7, timeout=0)),
        "probe_start(0, 7).wait()": ("probe_started", lambda: group.probe_start(0, 7).wait()),
        "mprobe(0, 7), free": ("put_back", lambda: group.mprobe(0, 7).free()),
        "send_start, mprobe, recv, wait": ("set_apart", set_apart)}


def pairs(group, x, y):
    """name: (C loop, the call in Python)."""
    prepared = group.all_reduce_init(x)

    def started():
        group.all_reduce_start(x).wait()

    def persistent():
        prepared.start()
        prepared.wait()

    def messages():
        request = group.recv_start(y, 0, 3)
        group.send(x, 0, 3)
        request.wait()

    def received():
        request = group.send_start(x, 0, 3)
        group.recv(y, 0, 3)
        request.wait()

    return prepared, {
        "all_reduce(x)": ("all_reduce", lambda: group.all_reduce(x)),
        "all_reduce(values=x, op='sum')": ("all_reduce", lambda: group.all_reduce(values=x, op="sum")),
        "all_reduce(x, out=y, op='max')": ("to_out", lambda: group.all_reduce(x, out=y, op="max")),
        "all_reduce(x, timeout=5)": ("with_options", lambda: group.all_reduce(x, timeout=5)),
        "all_reduce(x, priority=0)": ("with_options", lambda: group.all_reduce(x, priority=0)),
        "broadcast(x, root=0)": ("broadcast", lambda: group.broadcast(x, root=0)),
        "barrier()": ("barrier", lambda: group.barrier()),
        "all_reduce_start(x).wait()": ("started", started),
        "all_reduce_start(x, timeout=5).wait(5)": ("started_with_options", lambda: group.all_reduce_start(x, timeout=5).wait(5)),
        "barrier_start().wait()": ("barrier_started", lambda: group.barrier_start().wait()),
        "persistent start(), wait()": ("persistent", persistent),
        "recv_start, send, wait": ("messages", messages),
        "send_start, recv, wait": ("received", received),
        "sendrecv(x, 0, y)": ("exchange", lambda: group.sendrecv(x, 0, y, 0, 3, 3)),
        "sendrecv_replace(x, 0)": ("replace", lambda: group.sendrecv_replace(x, 0, 0, 3, 3))}


def check(session, group):
    """What is measured gives what it should: of one rank every reduction is its own values."""
    x, y = np.array([2.5, -1.0]), np.zeros(2)
    assert group.all_reduce_start(x).wait() is x and group.all_reduce_start(x, y, timeout=5).wait(5) is y
    assert group.all_gatherv_start(x, [2]).wait().tolist() == group.all_gather(x).ravel().tolist() == y.tolist() == [2.5, -1.0]
    sending = group.send_start(x, 0, 5)
    assert group.probe(0, 5) == group.probe(0, 5, timeout=0) == group.probe_start(0, 5).wait() == (0, 5, 16)
    y[:] = 0
    assert group.mprobe(0, 5).recv(y) == (0, 5, 2) and y.tolist() == x.tolist() and sending.wait() is None
    with session.ops():
        requests = [group.all_reduce_start(np.array([n])) for n in EIGHT]
    found = set()
    while len(found) < len(requests):
        found |= set(nexar.wait_some(requests))
    assert [int(request.wait()[0]) for request in requests] == list(EIGHT)


def seconds(function):
    begin = time.perf_counter()
    for _ in range(CALLS):
        function()
    return (time.perf_counter() - begin) / CALLS


def work(group, rounds):
    x, y = np.zeros(1), np.zeros(1)
    c = loops()
    prepared, cases = pairs(group, x, y)
    session = nexar.Session.__new__(nexar.Session)
    session._connection = group._connection  # the one that the group has
    check(session, group)
    waits = group.send_start(x, 0, 7)
    cases |= probes(group, x, y) | several(session, group, x)
    rows = []
    for name, (loop, call) in cases.items():
        function = getattr(c, loop)
        function.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_uint64, ctypes.c_int]
        arguments = group._connection.handle, group._handle, x.ctypes.data, y.ctypes.data, prepared._number
        in_c, in_python = [], []
        for _ in range(rounds):
            begin = time.perf_counter()
            assert function(*arguments, CALLS) == 0
            in_c.append((time.perf_counter() - begin) / CALLS)
            in_python.append(seconds(call))
        a, b = statistics.median(in_c) * 1e6, statistics.median(in_python) * 1e6
        above = statistics.median(p - q for p, q in zip(in_python, in_c)) * 1e6
        rows.append((name, a, b, above, (min(in_python) - min(in_c)) * 1e6))
    group.recv(y, 0, 7)
    waits.wait()
    return rows


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    with nexar.testing.cluster() as cluster:
        rows, = cluster.run(work, rounds, timeout=300)
    print("| call | in C | in Python | above C | best of both |\n|---|---|---|---|---|")
    for name, a, b, above, least in rows:
        print(f"| `{name}` | {a:.1f} | {b:.1f} | {above:.2f} | {least:.2f} |")


if __name__ == "__main__":
    main()
