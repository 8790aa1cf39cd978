"""States of processes and operations that can be seen from outside: what a test waits for instead of a while."""
import contextlib
import pathlib


def asleep(pid):
    """Every thread of the process waits for something."""
    states = []
    for stat in pathlib.Path(f"/proc/{pid}/task").glob("*/stat"):
        with contextlib.suppress(OSError):  # a thread that has ended meanwhile
            states.append(stat.read_text().rsplit(")", 1)[1].split()[0])
    return bool(states) and set(states) <= {"S"}


def asleep_in_threads(pid, count):
    """Every thread of the process waits for something, and it has so many besides its first."""
    return len(list(pathlib.Path(f"/proc/{pid}/task").iterdir())) > count and asleep(pid)


def in_collective(job, *ranks):
    """Each of these ranks (none: all) has started a collective of the job's group that is in flight, and sleeps."""
    return all(rank in arrived(job[rank].node, job.name) and asleep(job[rank].pid) for rank in ranks or job.ranks)


def receiving(job, *ranks):
    """Each of these ranks (none: all) sleeps, and a receive of it waits on its node."""
    here = [job[rank] for rank in ranks or job.ranks]
    return all(waiting_receives(node, job.name) >= sum(rank.node is node for rank in here)
               for node in {rank.node for rank in here}) and all(asleep(rank.pid) for rank in here)


def forming(node, group):
    """The ranks of a node's processes that wait for this group to form; None: it takes any."""
    return [waits["rank"] for one in node.ask("groups")["forming"] if one["name"] == group for waits in one["here"]]


def descriptors_of(node):
    """How many descriptors its daemon holds."""
    return len(list(pathlib.Path(f"/proc/{node.pid}/fd").iterdir()))


def sockets_of(pid):
    """How many sockets the process holds."""
    found = 0
    for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            found += str(fd.readlink()).startswith("socket:")
    return found


def arrived(node, group):
    """The ranks that have started the collectives that a group has in flight, as the node knows; rank by rank once. Without
    those that are ending: all ranks of the node have their results, and only what it sends is on its way."""
    return {rank for op in node.ask("ops")["ops"] if op["group"] == group and op["phase"] != "ending" for rank in op["arrived"]}


def ends_before(job, rank):
    """The node of this rank, which has not called it, knows that a collective of the job's group has ended."""
    return any(op["group"] == job.name and op["phase"] == "ending" and rank not in op["arrived"] for op in job[rank].node.ask("ops")["ops"])


def waiting_receives(node, groups):
    """How many receives wait on a node for a message, in the groups whose names begin so."""
    return sum(message["group"].startswith(groups) for message in node.ask("ops")["messages"])


def failed(node, group):
    """The node knows that the group has failed."""
    return any(shown["name"] == group and shown["failed"] for shown in node.ask("groups")["groups"])


def datagrams_sent(node):
    """By all processes of the node's host."""
    lines = pathlib.Path(f"/proc/{node.pid}/net/snmp").read_text().splitlines()
    names, values = [line.split() for line in lines if line.startswith("Udp:")]
    return int(values[names.index("OutDatagrams")])
