"""bindings/python over fake_nexar.c, for the tests beside this file: X_test.py FAKE_LIBRARY BINDINGS_FOLDER"""
import ctypes
import gc
import os
import sys
import unittest

try:
    import numpy as np
except ImportError:
    print("numpy is not installed: skipped")
    sys.exit(77)

os.environ["NEXAR_LIBRARY"], folder = os.path.abspath(sys.argv[1]), sys.argv[2]
sys.path.insert(0, folder)
import nexar
from nexar import _library

fake = ctypes.CDLL(os.environ["NEXAR_LIBRARY"])
SUCCEEDS, START_FAILS, LOSES_RANK, NEVER_ENDS = range(4)


def number(name):
    return ctypes.c_int.in_dll(fake, name).value


def seen(struct, name):
    return type(struct.__name__, (ctypes.Structure,), {"_fields_": struct._fields_}).in_dll(fake, name)


def op_options():
    return seen(_library.OpOptions, "fake_op_options")


def next_op(what):
    ctypes.c_int.in_dll(fake, "fake_next").value = what


class OverFake(unittest.TestCase):
    def setUp(self):
        os.environ.update(NEXAR_RANK="1", NEXAR_WORLD_SIZE="3")
        self.session = nexar.Session()
        self.group = self.session.group()

    def tearDown(self):
        self.session.close()
        del self.session, self.group
        gc.collect()
        counts = {name: number(name) for name in ("fake_open_requests", "fake_open_groups", "fake_open_sessions",
                                                  "fake_memories")}
        self.assertEqual(set(counts.values()), {0}, counts)
