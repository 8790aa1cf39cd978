"""A disk that hangs and fails on request, for one nexard: tests/support/faulty_disk.c is preloaded into it."""
import errno
import mmap
import os
import struct

CALLS, FAIL_FROM, FAIL_COUNT, ERROR, FAILED, DELAY_MS = range(6)


class FaultyDisk:
    """Of a node's state directory; `environment` is for the node's start()."""

    def __init__(self, node):
        path = node.folder / "faulty_disk"
        path.write_bytes(bytes(4096))
        with open(path, "r+b") as file:
            self._words = mmap.mmap(file.fileno(), 4096)
        self.environment = {"LD_PRELOAD": os.environ["NEXAR_TEST_FAULTY_DISK"], "FAULTY_DISK": str(path),
                            "FAULTY_DISK_UNDER": str(node.state)}

    def _set(self, word, value):
        struct.pack_into("=I", self._words, 4 * word, value)

    def _get(self, word):
        return struct.unpack_from("=I", self._words, 4 * word)[0]

    def fail(self, call, count=1, error=errno.ENOSPC):
        """The call with this number, counted from now on from 1, and so many in all, fail."""
        self.heal()
        for word, value in ((CALLS, 0), (FAILED, 0), (ERROR, error), (FAIL_COUNT, count), (FAIL_FROM, call)):
            self._set(word, value)

    def heal(self):
        self._set(FAIL_FROM, 0)

    def delay(self, seconds):
        """Of every fsync."""
        self._set(DELAY_MS, int(seconds * 1000))

    @property
    def calls(self):
        return self._get(CALLS)

    @property
    def failed(self):
        return self._get(FAILED)
