"""The table of collectives: made by bindings/generate.py from proto/operations.def."""
from typing import NamedTuple


class Row(NamedTuple):
    """What the binding must know of a collective; proto/operations.def says what the words mean."""
    number: int
    name: str
    memory: str
    in_: str
    out: str
    in_place: str
    reduces: bool
    rooted: bool


ROWS = {row.name: row for row in (
    Row(0, "barrier", "nothing", "none", "none", "never", False, False),
    Row(1, "all_reduce", "in_out", "one", "one", "same", True, False),
    Row(2, "reduce", "in_out", "one", "one_at_root", "same", True, True),
    Row(3, "broadcast", "data", "one_at_root", "one_elsewhere", "never", False, True),
    Row(4, "all_gather", "in_out", "one", "all", "block_of_out", False, False),
    Row(5, "reduce_scatter", "in_out", "all", "one", "block_of_in", True, False),
    Row(8, "all_to_all", "in_out", "all", "all", "same", False, False),
    Row(9, "gather", "in_out", "one", "all_at_root", "block_of_out", False, True),
    Row(10, "scatter", "in_out", "all_at_root", "one", "block_of_in", False, True),
    Row(11, "scan", "in_out", "one", "one", "same", True, False),
    Row(12, "exclusive_scan", "in_out", "one", "one", "same", True, False),
    Row(13, "all_gatherv", "in_out_counts", "own", "packed", "block_of_out", False, False),
    Row(14, "gatherv", "in_out_counts", "own", "packed_at_root", "block_of_out", False, True),
    Row(15, "scatterv", "in_out_counts", "packed_at_root", "own", "block_of_in", False, True),
    Row(16, "all_to_allv", "in_out_own_counts", "sent", "received", "never", False, False),
    Row(17, "reduce_scatterv", "in_out_counts", "packed", "own", "block_of_in", True, False),
)}
