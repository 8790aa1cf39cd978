"""Daemons of other versions beside a real one, played by a member with a valid certificate (harness/hostile.py): one that
is a feature behind, one that is ahead, and one that has no version in common (docs/protocol/wire.md [V1] to [V6]).

    node 1, node 2: real daemons             node 3: only its place and its key are left, for the member of another version
"""
import contextlib

from harness import *
from harness.hostile import Ended, HostileMember
from harness.ranks import SECRET
from nexar._collectives import ROWS

MESSAGES = 2  # rows of operations.def below the collectives of ROWS; the later ones of messages have no bit
OPERATIONS = ((1 << len(ROWS) + MESSAGES - 8) - 1) << 24  # their feature bits: 24 + the number in operations.def - 8
OPERATIONS |= 3 << 38  # group_split and group_dup
OPERATIONS |= 3 << 40  # the flags for partial results
OPERATIONS |= 0b11 << 16  # plan functions 2 and 3
OPERATIONS |= 1 << 42  # the question about lists of ranks (children.md [Y13])
OURS = OPERATIONS | 1 << 56  # and that of the types and reductions which came later
TCP = 1  # bulk data over it, of two nodes: no matter of groups
EVERYTHING = (1 << 64) - 1
AHEAD = {"version_max": 3, "features": EVERYTHING, "bytes": 48 + 200, "tail": 200}


@contextlib.contextmanager
def a_member(cluster):
    """(member, node): of another version, and the real daemon that leads its groups."""
    if not hasattr(cluster, "place"):
        cluster.place = max(cluster, key=lambda node: node.id)
        cluster.place_counter = 1_000_000
        cluster.place.kill()
        del cluster.nodes[cluster.place.number]
    member = HostileMember(cluster.place, cluster.place_counter)
    try:
        yield member, min(cluster, key=lambda node: node.id)
    finally:
        cluster.place_counter = member.incarnation[0]
        member.close()


def calls(me):
    """An operation that the other rank's daemon may lack, and one that all have; the other rank comes to none."""
    group = me.group(size=2)
    missing = me.fails(group.all_to_all, np.zeros(8, "int32"), np.zeros(8, "int32"), timeout=2)
    return missing, me.fails(group.barrier, timeout=2)


def group_with(member, node, features):
    """A job of which the member is rank 1: (what rank 0 got, GroupPrepare, the first OpAnnounce)."""
    job = Job([node, None], calls, without=(1,))
    prepare = member.join_group(node, job.name, SECRET, 2, 1, features=features)
    _, announced = member.received(node, "opAnnounce", where=lambda message: message["group"] == prepare["group"])
    return job.outcomes(seconds=20)[0], prepare, announced


def test_a_member_that_is_a_feature_behind_is_named_to_those_who_call_it(cluster):
    """[V5] [V6] The operation is refused before anything of it is sent, and takes no sequence number."""
    with a_member(cluster) as (member, node):
        member.enter(node, features=0)
        (missing, barrier), prepare, announced = group_with(member, node, 0)
        equal((missing.name, missing.rank, missing.node), ("UNSUPPORTED", 1, member.id), "the error")
        contains(missing.text, "all_to_all", member.id[:12], "hostile")
        equal(missing.error.host, "hostile", "the host that the error names")
        equal((barrier.name, announced["kind"], int(announced["seq"])), ("TIMED_OUT", 0, 0), "the barrier behind it")
        equal(sorted(int(bits) for bits in prepare["members"]["features"]), [0, OURS], "features in GroupPrepare")


def test_a_member_that_is_ahead_works_with_what_both_have(cluster):
    """[V1] [V2] [V3] [V5] Its preamble and its frames are longer, and it has versions and features that nobody else knows."""
    with a_member(cluster) as (member, node):
        member.enter(node, **AHEAD)
        peer, = [peer for peer in node.status()["peers"] if peer["node"] == member.id]
        equal((peer["version"], peer["features"] & ~TCP), (2, OURS), "what both have")
        (other, barrier), prepare, announced = group_with(member, node, EVERYTHING)
        equal((other.name, barrier.name), ("TIMED_OUT", "TIMED_OUT"), "operations that the member does not come to")
        equal((announced["kind"], int(announced["seq"])), (8, 0), "the operation that both have was begun")
        equal(sorted(int(bits) for bits in prepare["members"]["features"]), [OURS, EVERYTHING],
              "features in GroupPrepare")
        equal(prepare["plan"]["version"], 2, "the plan function of a leader that was not tuned")
        assert member.id in node.peers_up(), "the member is not connected any more"


def test_without_a_common_version_the_reason_names_both_ranges(cluster):
    """[V1] On the connection, and in the daemon's log; the same member in a version of both is let in."""
    with a_member(cluster) as (member, node):
        for versions, stated, older in (({"version_min": 3, "version_max": 4}, "nexar/3 to nexar/4", node),
                                        ({"version_min": 1, "version_max": 1}, "nexar/1", member)):
            before = len(node.log())
            try:
                member.enter(node, **versions)
                raise AssertionError(f"a member that speaks {stated} was let in")
            except Ended as ended:
                words = (f"node {member.id[:12]} speaks {stated}, node {node.id[:12]} speaks nexar/2",
                         f"upgrade node {older.id[:12]}")
                contains(str(ended), *words)
            eventually(lambda: "peer_refused" in node.log()[before:], "the refusal in the log")
            contains(node.log()[before:], *words)
        member.enter(node, version_min=2, version_max=3)


if __name__ == "__main__":
    main(globals())
