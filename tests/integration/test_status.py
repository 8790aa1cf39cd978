"""[U12] What users without any rights see of the daemon: their own sessions, groups and operations, through the status socket."""
import contextlib
import json
import os
import pathlib
import shutil
import socket
import subprocess

from harness import *
from harness.system import die_with_parent
from harness.users import become, open_to_all

ONE, OTHER, FLOODER = 2001, 2002, 2003
OWN_LINE = "only your own sessions, groups and operations are shown"


def open_ctl_to_all(cluster):
    """Other users may come to the sockets, and may run nexarctl."""
    open_to_all(cluster)
    if not (cluster.folder / "nexarctl").exists():
        shutil.copy(os.environ["NEXAR_TEST_NEXARCTL"], cluster.folder / "nexarctl")


def ctl(cluster, uid, *words, admin=None, expect=0, **environment):
    """(standard output, standard error) of a nexarctl that a user runs."""
    def prepare():
        die_with_parent()
        become(uid)

    inherited = {k: v for k, v in os.environ.items() if not k.startswith("NEXAR_")}
    done = subprocess.run([cluster.folder / "nexarctl", "--socket", admin or cluster[1].admin, *words], text=True,
                          capture_output=True, timeout=20, preexec_fn=prepare, stdin=subprocess.DEVNULL,
                          env={**inherited, **environment}, cwd="/")
    equal(done.returncode, expect, f"exit status of nexarctl {' '.join(words)} ({done.stderr})")
    return done.stdout, done.stderr


def own(cluster, uid, *words):
    return json.loads(ctl(cluster, uid, *words, "--json")[0])


def ask(path, *lines):
    """The answers to requests on a connection of this process's user."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
        s.settimeout(20)
        s.connect(str(path))
        s.sendall(b"".join(lines))
        s.shutdown(socket.SHUT_WR)
        return [json.loads(line) for line in s.makefile()]


def line(command, **arguments):
    return json.dumps({"command": command, "arguments": arguments}).encode() + b"\n"


def hangs(me, uid):
    """Rank 1 of two does not come to the barrier; and a group of three waits for two ranks."""
    become(uid)
    session = me.session()
    group = me.group(session)
    if me.rank == 0:
        started = group.barrier_start()
    me.mark(os.getpid())
    me.wait_for_go(60)
    if me.rank == 1:
        started = group.barrier_start()
    started.wait()


def hanging(cluster, uid, name):
    job = Job([cluster[1], cluster[1]], hangs, uid, name=name)
    job.await_marks()
    return job


def names(answer, key):
    return sorted({one["group"] if key == "ops" else one["name"] for one in answer[key]})


def test_each_user_sees_his_own_hung_operations_and_nobody_elses(cluster):
    open_ctl_to_all(cluster)
    jobs = {uid: hanging(cluster, uid, f"of-{uid}") for uid in (ONE, OTHER)}
    for uid, job in jobs.items():
        other = f"of-{OTHER if uid == ONE else ONE}"
        op, = eventually(lambda uid=uid: own(cluster, uid, "ops")["ops"], "the op to be known")
        equal((op["group"], op["arrived"], [rank["pid"] for rank in op["missing"]]), (job.name, [0], [job[1].pid]), "the op")
        group, = own(cluster, uid, "groups")["groups"]
        equal([rank["pid"] for rank in group["ranks"]], [job[0].pid, job[1].pid], "ranks")
        status = own(cluster, uid, "status")
        equal((status["own"], status["sessions"], status["groups"], status["ops_in_flight"]),
              ({"uid": uid, "label": ""}, 2, 1, 1), "status")
        equal({process["pid"] for process in status["processes"]}, {job[0].pid, job[1].pid}, "processes")
        text, complaint = ctl(cluster, uid, "ops")
        contains(text, job.name, "not arrived: rank 1", f"pid {job[1].pid}")
        contains(complaint, OWN_LINE)
        equal(complaint.count("\n"), 1, "lines on stderr")
        for words in (("status",), ("groups",), ("ops",)):
            assert other not in "".join(ctl(cluster, uid, *words)), f"{words} shows a group of another user"
        contains(ctl(cluster, uid, "groups", other, expect=1)[1], "there is no group", f"there is: {job.name}")
        contains(ctl(cluster, uid, "plan", "--op", "all_reduce", "--bytes", "8", "--group", job.name)[0], "all_reduce")
    equal(names(cluster[1].ask("groups"), "groups"), [f"of-{ONE}", f"of-{OTHER}"], "groups on the admin socket")
    for job in jobs.values():
        job.go()
        job.outcomes()


def waits(me, uid):
    become(uid)
    me.mark()
    with contextlib.suppress(nexar.Error):
        me.group(me.session(), timeout=60)


def test_a_user_sees_the_groups_that_his_processes_wait_for(cluster):
    open_ctl_to_all(cluster)
    for uid in (ONE, OTHER):
        Job([cluster[1], cluster[2]], waits, uid, name=f"awaited-by-{uid}", without={1}).await_marks()
    for uid in (ONE, OTHER):
        forming = eventually(lambda uid=uid: [one for one in own(cluster, uid, "groups")["forming"] if one["reported"]],
                             "the group to be known", 10)
        equal([(one["name"], one["missing"]) for one in forming], [(f"awaited-by-{uid}", [1])], "forming")


def test_a_status_socket_answers_no_more_than_that_to_anybody(cluster):
    """Changes, questions of administrators, garbage; from a user, and from root."""
    open_ctl_to_all(cluster)
    path = cluster[1].folder / "status.sock"
    equal(path.stat().st_mode & 0o777, 0o666, "mode")
    job = hanging(cluster, ONE, "hidden")
    eventually(lambda: own(cluster, OTHER, "status")["sessions"] + ask(path, line("status"))[0]["result"]["sessions"] == 0,
               "sessions of the tests before this one to have gone")

    def hostile(me, uid):
        if uid:
            become(uid)
        refused = ask(path, *(line(command) for command in (
            "token_create", "token_list", "token_revoke", "cluster_init", "cluster_join", "cluster_leave", "cluster_show",
            "doctor", "config", "", "nothing")))
        named = ask(path, line("groups", group="hidden"), line("plan", group="hidden"), line("ops", group="hidden"),
                    line("groups", uid=ONE), line("status", own={"uid": ONE, "label": ""}), b"{{{\n",
                    b'{"command":"groups","uid":2001}\n')
        return refused, named, ask(path, line("status"))[0]["result"], b"hidden" in repr(ask(path, line("groups"))).encode()

    for uid in (OTHER, 0):
        (refused, named, status, shown), = Job([cluster[1]], hostile, uid).outcomes()
        equal({answer["error"]["name"] for answer in refused}, {"PERMISSION", "PROTOCOL_ERROR"}, "what is refused")
        equal([answer["error"]["name"] for answer in named],
              ["NOT_FOUND"] * 3 + ["INVALID_ARGUMENT"] * 2 + ["PROTOCOL_ERROR"] * 2, "questions about another user's group")
        equal((status["own"]["uid"], status["sessions"], shown), (uid, 0, False), "status")
        assert not {"users", "limits", "addresses", "listen", "certificate"} & set(status), status
        assert cluster[2].endpoint not in json.dumps(status), "an address of a peer"
    assert cluster[1].ask("token_list")["tokens"] is not None
    job.go()
    job.outcomes()


def floods(me):
    """As many connections as it gets, each with requests that nobody reads, and again and again. Its mark: one was refused."""
    become(FLOODER)
    path = me.node.folder / "status.sock"
    connections, is_refused = [], False
    while not me.is_released():
        s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        s.setblocking(False)
        connections.append(s)
        with contextlib.suppress(OSError):  # its queue is full
            s.connect(str(path))
            s.send(line("groups") * 100)
        if len(connections) <= 64:
            continue
        with contextlib.suppress(OSError), connections.pop(0) as oldest:
            if not is_refused and b"TABLE_FULL" in oldest.recv(4096):
                is_refused = True
                me.mark()
    return is_refused


def reduces(me):
    become(OTHER)
    group = me.group(me.session())
    for _ in range(200):
        values = np.full(1000, me.rank + 1)
        group.all_reduce(values)
        assert (values == 3).all()
    return "right"


def test_a_flood_by_one_user_hurts_nobody(cluster):
    """Another user's questions, the administrator's, and operations go on; the daemon keeps nothing for the flooder."""
    open_ctl_to_all(cluster)
    flood = Job([cluster[1]], floods)
    flood.await_marks()
    before = anonymous_mib(cluster[1])
    for _ in range(10):
        equal(own(cluster, OTHER, "status")["own"]["uid"], OTHER, "another user's question")
        equal(cluster[1].ask("status")["state"], "running", "the administrator's question")
    equal(Job([cluster[1], cluster[1]], reduces).outcomes(), ["right"] * 2, "operations of another user")
    grown = anonymous_mib(cluster[1]) - before
    flood.go()
    equal(flood.outcomes(), [True], "whether one was refused")
    assert grown < 16, f"the daemon grew by {grown} MiB"


def anonymous_mib(node):
    """The daemon's own memory: what clients share with it is not in it."""
    status = pathlib.Path(f"/proc/{node.pid}/status").read_text()
    return int(status.split("RssAnon:")[1].split()[0]) // 1024


def test_without_a_status_socket_a_user_learns_what_he_may_do(cluster):
    open_ctl_to_all(cluster)
    for words in (("token", "list"), ("config",), ("cluster", "show")):
        contains(ctl(cluster, ONE, *words, expect=1)[1], "you may not use", "sudo")
    node = cluster[1]
    node.end()
    node.start(NEXAR_STATUS_SOCKET="off")
    assert not (node.folder / "status.sock").exists(), "a status socket"
    contains(ctl(cluster, ONE, "status", expect=1)[1], "you may not use", "sudo")
    equal(json.loads(ctl(cluster, 0, "status", "--json")[0])["state"], "running", "root's status")


def labelled(me, path):
    become(ONE)
    group = nexar.Session(path).group(me.name, size=1, rank=0, timeout=10, job_secret=me.secret)
    me.mark()
    me.wait_for_go()
    group.barrier()


def test_the_users_of_a_label_have_a_status_socket_of_their_own(cluster):
    """A container that has that folder only needs nothing else: there is no admin socket in it."""
    open_ctl_to_all(cluster)
    node = cluster[1]
    pod = node.folder / "pod"
    pod.mkdir()
    os.chmod(pod, 0o755)
    node.end()
    node.start(NEXAR_SESSION_SOCKETS=f"{pod}/nexard.sock label=pod status={pod}/status.sock")
    job = Job([node], labelled, pod / "nexard.sock", name="of-the-pod")
    job.await_marks()
    equal(names(own(cluster, ONE, "groups"), "groups"), [], "groups without the label")
    text, complaint = ctl(cluster, ONE, "groups", admin=pod / "admin.sock")
    contains(text, "of-the-pod")
    contains(complaint, OWN_LINE)
    contains(ctl(cluster, ONE, "groups", NEXAR_STATUS_SOCKET=str(pod / "status.sock"))[0], "of-the-pod")
    assert "of-the-pod" not in ctl(cluster, OTHER, "groups", admin=pod / "admin.sock")[0], "another uid's"
    job.go()
    job.outcomes()


if __name__ == "__main__":
    main(globals(), nodes=2)
