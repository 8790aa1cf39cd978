"""Collectives: made by bindings/generate.py from proto/operations.def."""
from typing import NamedTuple


class Row(NamedTuple):
    """What the binding must know of a collective; proto/operations.def says what the words mean."""
    name: str
    memory: str
    in_: str
    out: str
    in_place: str
    reduces: bool
    rooted: bool


ROWS = {row.name: row for row in (
    Row("barrier", "nothing", "none", "none", "never", False, False),
    Row("all_reduce", "in_out", "one", "one", "same", True, False),
    Row("reduce", "in_out", "one", "one_at_root", "same", True, True),
    Row("broadcast", "data", "one_at_root", "one_elsewhere", "never", False, True),
    Row("all_gather", "in_out", "one", "all", "block_of_out", False, False),
    Row("reduce_scatter", "in_out", "all", "one", "block_of_in", True, False),
    Row("all_to_all", "in_out", "all", "all", "same", False, False),
    Row("gather", "in_out", "one", "all_at_root", "block_of_out", False, True),
    Row("scatter", "in_out", "all_at_root", "one", "block_of_in", False, True),
    Row("scan", "in_out", "one", "one", "same", True, False),
    Row("exclusive_scan", "in_out", "one", "one_after_first", "same", True, False),
    Row("all_gatherv", "in_out_counts", "own", "packed", "block_of_out", False, False),
)}


class Collectives:
    """Of a group; see nexar.Group."""

    def barrier(self, **options):
        """Ends when every rank has started it."""
        return self._run(self.barrier_start, **options)

    def barrier_start(self, **options):
        """Begins barrier."""
        return self._begin(ROWS["barrier"], given=options)

    def all_reduce(self, values, out=None, op="sum", **options):
        """out[i] is the reduction of all ranks' values[i], on every rank. Returns out; None: values itself (in place)."""
        return self._run(self.all_reduce_start, values, out, op, **options)

    def all_reduce_start(self, values, out=None, op="sum", **options):
        """Begins all_reduce."""
        return self._begin(ROWS["all_reduce"], values=values, out=out, op=op, given=options)

    def reduce(self, values, out=None, op="sum", root=0, **options):
        """out[i] is the reduction of all ranks' values[i], on the root only. The root gets out (None: values itself);
        the others get None, and their out is not looked at."""
        return self._run(self.reduce_start, values, out, op, root, **options)

    def reduce_start(self, values, out=None, op="sum", root=0, **options):
        """Begins reduce."""
        return self._begin(ROWS["reduce"], values=values, out=out, op=op, root=root, given=options)

    def broadcast(self, values, root=0, **options):
        """The root's values arrive in values on every rank. Returns values."""
        return self._run(self.broadcast_start, values, root, **options)

    def broadcast_start(self, values, root=0, **options):
        """Begins broadcast."""
        return self._begin(ROWS["broadcast"], values=values, root=root, given=options)

    def all_gather(self, values, out=None, **options):
        """Every rank's values arrive in out on every rank, in rank order. Returns out: size * values.size elements
        (None: a new array of shape (size, *values.shape)). In place: values is out[rank * n:(rank + 1) * n]."""
        return self._run(self.all_gather_start, values, out, **options)

    def all_gather_start(self, values, out=None, **options):
        """Begins all_gather."""
        return self._begin(ROWS["all_gather"], values=values, out=out, given=options)

    def reduce_scatter(self, values, out=None, op="sum", **options):
        """Block r of the reduction of all ranks' values arrives in out of rank r. Returns out: n = values.size / size
        elements (None: a new array of shape (n,)). In place: out is values[rank * n:(rank + 1) * n]."""
        return self._run(self.reduce_scatter_start, values, out, op, **options)

    def reduce_scatter_start(self, values, out=None, op="sum", **options):
        """Begins reduce_scatter."""
        return self._begin(ROWS["reduce_scatter"], values=values, out=out, op=op, given=options)

    def all_to_all(self, values, out=None, **options):
        """Block r of rank s's values arrives in out of rank r, as block s. Returns out; None: values itself (in place)."""
        return self._run(self.all_to_all_start, values, out, **options)

    def all_to_all_start(self, values, out=None, **options):
        """Begins all_to_all."""
        return self._begin(ROWS["all_to_all"], values=values, out=out, given=options)

    def gather(self, values, out=None, root=0, **options):
        """Every rank's values arrive in out of the root, in rank order. The root gets out: size * values.size elements
        (None: a new array of shape (size, *values.shape)); the others get None, and their out is not looked at. In
        place, at the root: values is out[root * n:(root + 1) * n]."""
        return self._run(self.gather_start, values, out, root, **options)

    def gather_start(self, values, out=None, root=0, **options):
        """Begins gather."""
        return self._begin(ROWS["gather"], values=values, out=out, root=root, given=options)

    def scatter(self, values, out=None, root=0, **options):
        """Block r of the root's values arrives in out of rank r. Returns out. At the root it has n = values.size / size
        elements (None: a new array of shape (n,)); the others must give it, and their values are not looked at (None
        will do). In place, at the root: out is values[root * n:(root + 1) * n]."""
        return self._run(self.scatter_start, values, out, root, **options)

    def scatter_start(self, values, out=None, root=0, **options):
        """Begins scatter."""
        return self._begin(ROWS["scatter"], values=values, out=out, root=root, given=options)

    def scan(self, values, out=None, op="sum", **options):
        """out[i] is the reduction of values[i] of ranks 0 to this one. Returns out; None: values itself (in place)."""
        return self._run(self.scan_start, values, out, op, **options)

    def scan_start(self, values, out=None, op="sum", **options):
        """Begins scan."""
        return self._begin(ROWS["scan"], values=values, out=out, op=op, given=options)

    def exclusive_scan(self, values, out=None, op="sum", **options):
        """out[i] is the reduction of values[i] of all ranks below this one. Returns out; None: values itself (in place).
        Rank 0 has no output: out, or values in place, stays as it is there."""
        return self._run(self.exclusive_scan_start, values, out, op, **options)

    def exclusive_scan_start(self, values, out=None, op="sum", **options):
        """Begins exclusive_scan."""
        return self._begin(ROWS["exclusive_scan"], values=values, out=out, op=op, given=options)

    def all_gatherv(self, values, counts, out=None, **options):
        """Every rank's values, counts[r] of rank r, arrive in out on every rank, in rank order. counts: elements of each
        rank, the same list on all ranks. Returns out: sum(counts) elements, the blocks one after the other (None: a
        new array of shape (sum(counts),)). In place: values is this rank's part of out."""
        return self._run(self.all_gatherv_start, values, counts, out, **options)

    def all_gatherv_start(self, values, counts, out=None, **options):
        """Begins all_gatherv."""
        return self._begin(ROWS["all_gatherv"], values=values, counts=counts, out=out, given=options)
