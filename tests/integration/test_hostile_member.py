"""A member of the cluster that lies: it has a valid certificate, speaks the real protocol, and says what nobody honest
would (harness/hostile.py). It may deny service to groups that it is in, and nothing else: no daemon dies of it, and
nothing that the others do between themselves is wrong, late or missing.

    node 1, node 2: honest, with all ranks             node 3: only its place and its key are left, for the liar

By hand: test_hostile_member.py [words of names]; NEXAR_HOSTILE_FIRST=s NEXAR_HOSTILE_SEEDS=n for other seeds.
"""
import contextlib
import os
import time

from harness import *
from harness.hostile import Ended, HostileMember, group_key, kinds, local_group_key, members, position_of
from harness.proofs import tag
from harness.ranks import SECRET
from harness.states import forming
from harness.values import check, given, reduced

SEEDS = range(int(os.environ.get("NEXAR_HOSTILE_FIRST", "1")),
              int(os.environ.get("NEXAR_HOSTILE_FIRST", "1")) + int(os.environ.get("NEXAR_HOSTILE_SEEDS", "2")))
STEP = int(os.environ.get("NEXAR_HOSTILE_STEP", "11"))  # of the extremes of each field, one of so many is sent
BELIEVED_SECONDS = 0.7  # a loss of a process ends its group after a short grace
TIMEOUTS = {"collective": 5000, "barrier": 5000, "rpc": 5000}
LOST = {"code": -601, "text": "a lie", "rank": 1}


@contextlib.contextmanager
def a_liar(cluster, place=max):
    """(liar, leader, other): the liar in a new incarnation, and the honest nodes, of which the first leads every group."""
    if not hasattr(cluster, "place"):
        cluster.place = place(cluster, key=lambda node: node.id)  # max: it leads nobody
        cluster.liar_counter = 1_000_000
        cluster.place.kill()
        del cluster.nodes[cluster.place.number]
    liar = HostileMember(cluster.place, cluster.liar_counter)
    try:
        leader, other = sorted(cluster, key=lambda node: node.id)
        for node in (leader, other):
            liar.enter(node)
        yield liar, leader, other
    finally:
        cluster.liar_counter = liar.incarnation[0]
        liar.close()


def works(me, group, go_on):
    """Until rank 0 says so: sums of numbers that differ by rank and position, compared exactly. Returns how many."""
    turns, last = 0, False
    while not last:
        count = (1, 1000, 50_000)[turns % 3]
        check(group.all_reduce(given("float32", "sum", me.rank, count, salt=turns)),
              reduced("float32", "sum", me.size, count, salt=turns), f"turn {turns}")
        last = not group.all_reduce(np.array([go_on()]).astype("int32"), op="max")[0]
        turns += 1
    return turns


def until(end):
    return lambda: time.monotonic() < end


def opens_and_works(me, groups=3):
    """Group after group; in the last one until a loss that somebody claimed would have been believed."""
    session = me.session()
    for turn in range(groups):
        with me.group(session, name=f"{me.name}-{turn}", timeout=10) as group:
            works(me, group, until(time.monotonic() + (BELIEVED_SECONDS if turn == groups - 1 else 0)))
            group.barrier()
    return groups


def works_until_released(me):
    group = me.group()
    me.mark()
    return works(me, group, lambda: me.rank == 0 and not me.is_released()) + \
        works(me, group, until(time.monotonic() + BELIEVED_SECONDS))


@contextlib.contextmanager
def unharmed(leader, other):
    """Around lies: a group of honest ranks works all the time, and others are opened afterwards."""
    job = Job([leader, other, other, leader], works_until_released)
    job.await_marks()
    yield job
    job.go(0)
    for turns in job.outcomes():
        assert isinstance(turns, int) and turns > 1, f"an honest rank beside the lies: {turns}"
    equal(run([leader, other, other], opens_and_works), [3] * 3, "groups opened after the lies")


def group_of(node, counter):
    """The id of a group that this node has made or will make."""
    return {"creator": int.from_bytes(bytes.fromhex(node.id)[:8], "little"), "incarnation": node.incarnation[1],
            "counter": counter}


def groups_to_come(liar, leader, victim, count):
    """Ids of the next groups of a leader. Only a member of one of its groups knows them [G12], so the liar joins one."""
    job, prepare = in_a_group_with(liar, leader, victim)
    job[0].dispose()
    first = int(prepare["group"]["counter"]) + 1
    return [group_of(leader, first + at) for at in range(count)]


# ---- By name

def test_decisions_about_groups_to_come_end_nothing(cluster):
    """[H6] The first decision about a group that a node does not know yet was kept, of any sender."""
    with a_liar(cluster) as (liar, leader, other):
        coming = groups_to_come(liar, leader, other, 100)
        for node in (leader, other):
            for group in coming:
                for epoch in (0, 1):
                    liar.say(node, "groupEnd", group=group, epoch=epoch,
                             cut={"failed": {"error": {**LOST, "node": other.id}, "excluded": [1]}})
        equal(run([leader, other], opens_and_works), [3] * 2, "groups")


def test_a_node_outside_the_group_cannot_disown_it_for_a_member(cluster):
    """[H6] GroupRefused with another node as its origin ended a group that its sender was not in."""
    with a_liar(cluster) as (liar, leader, other):
        coming = groups_to_come(liar, leader, other, 100)
        with unharmed(leader, other):
            for node in (leader, other):
                for origin in (leader, other):
                    for group in coming:
                        liar.say(node, "groupRefused", id={"origin": bytes.fromhex(origin.id)}, group=group, error=LOST)


def test_questions_about_groups_to_come_bind_nobody(cluster):
    """[H6] A node that was asked about an attempt that it did not know refused it when it came."""
    with a_liar(cluster) as (liar, leader, other):
        for group in groups_to_come(liar, leader, other, 300):
            liar.say(other, "groupQuery", group=group)
        equal(run([leader, other], opens_and_works), [3] * 2, "groups")


def test_an_open_of_a_made_up_incarnation_shuts_nobody_out(cluster):
    """[H6] A GroupOpen in another node's name, of an incarnation that it will never have, made its own opens those of a
    past incarnation."""
    with a_liar(cluster) as (liar, leader, other):
        for origin in (leader, other):
            liar.say(leader, "groupOpen", id={"origin": bytes.fromhex(origin.id), "number": 1 << 60}, key=bytes(32),
                     name="x", size=2, incarnation={"counter": (1 << 64) - 1, "nonce": 1}, nonce=bytes(16))
        equal(run([leader, other], opens_and_works), [3] * 2, "groups")


def opens_a_local_group(me):
    """A group of one node without a secret; the second rank comes when the test releases it."""
    if me.rank == 1:
        me.wait_for_go()
    with me.session().group(name="local", size=2, rank=me.rank, timeout=60) as group:
        nodes = {group.node(rank) for rank in range(group.size)}
        check(group.all_reduce(given("int64", "sum", me.rank, 1000)), reduced("int64", "sum", 2, 1000), "the sum")
        return nodes


def test_a_local_group_is_never_led_from_outside(cluster):
    """[H2] GroupPrepare for an open that was never listed with its sender; the key of a local group is no secret."""
    with a_liar(cluster) as (liar, leader, victim):
        job = Job([victim, victim], opens_a_local_group)
        eventually(lambda: forming(victim, "local") == [0], "rank 0 to wait")
        key, asked, since = local_group_key("local", victim.id, os.getuid()), 0, len(liar.lines)
        while asked < 8 * 64:
            for number in range(1, 65):
                asked += 1
                liar.say(victim, "groupPrepare", key=key, name="local", epoch=1, plan=liar.PLAN,
                         group=group_of(liar, asked),
                         members=members((victim.id, victim.incarnation, (victim.incarnation[0] << 32) + number, 1),
                                         (liar.id, liar.incarnation, asked, 1)), timeouts=TIMEOUTS)
            liar.received(victim, "groupPrepared", since, where=lambda message: int(message["group"]["counter"]) == asked)
            taken = [message for message in liar.all_received(victim, "groupPrepared", since) if message["error"]["code"] == 0]
            assert not taken, f"the victim's daemon lets another node lead its local group: {taken[0]}"
            since = len(liar.lines)
        equal(forming(victim, "local"), [0], "who waits")
        job.go(1)
        equal(job.outcomes(), [{victim.id}] * 2, "nodes of the local group")


def opens_with_the_secret(me):
    with me.group(timeout=4) as group:
        return sorted({group.node(rank) for rank in range(group.size)})


def test_a_leader_without_the_secret_gets_into_no_group(_):
    """[H2] The lowest NodeId leads, and what an open sends its leader was all that a member had to know."""
    own = Cluster(3)
    try:
        with a_liar(own, place=min) as (liar, *victims):
            for forged in ("none", "nothing", "reflected", "of another secret"):
                job = Job(victims, opens_with_the_secret)
                for rank, victim in enumerate(victims):
                    forge(liar, victim, rank, job.name, forged)
                for outcome in job.outcomes():
                    assert isinstance(outcome, Failure), f"{forged}: a group with the liar: {outcome}"
                    contains(outcome.text, "did not prove that it has the job's secret")
    finally:
        Job.dispose_all()
        own.close()


def forge(liar, victim, rank, name, forged):
    """The liar leads a group of this rank and itself, and proves itself with what it has."""
    number = len(liar.lines) + 1
    _, wish = liar.received(victim, "groupOpen", where=lambda m: m["name"] == name)
    here = (victim.id, victim.incarnation, int(wish["id"]["number"]), wish["pid"])
    both = [here, (liar.id, liar.incarnation, number, 1)]
    group = group_of(liar, number)
    prepare = dict(group=group, epoch=1, key=wish["key"], name=wish["name"], plan=liar.PLAN, timeouts=TIMEOUTS,
                   members=members(*both[::1 if rank == 0 else -1], nonces={victim.id: wish["nonce"]}))
    liar.say(victim, "groupPrepare", **prepare)
    _, answer = liar.received(victim, "groupPrepared", where=lambda m: int(m["group"]["counter"]) == number)
    equal(answer["error"]["code"], 0, f"the victim's answer: {answer}")
    mine = {"none": None, "nothing": bytes(32), "reflected": answer["tag"],
            "of another secret": tag(prepare, "a secret that the liar made up", liar.id, liar.incarnation)}[forged]
    tags = dict(sorted({victim.id: answer["tag"], liar.id: mine}.items()))
    liar.say(victim, "groupCommit", group=group, tags=[one for one in tags.values() if one is not None])


def opens_with_the_secret_in_turn(me):
    if me.rank == 1:
        me.wait_for_go()
    session = me.session()
    me.mark()
    with me.group(session, timeout=20) as group:
        return sorted({group.node(rank) for rank in range(group.size)})


def test_a_member_that_has_only_the_key_gets_into_no_group_and_takes_no_place(cluster):
    """[H2] It led once, so it has a group's key. It opens under it as a rank that is still to come."""
    with a_liar(cluster) as (liar, leader, other):
        job = Job([leader, other], opens_with_the_secret_in_turn)
        job[0].await_mark()
        wish = {"origin": bytes.fromhex(liar.id), "number": 77}
        liar.say(leader, "groupOpen", id=wish, key=group_key(job.name, SECRET), name=job.name, size=2, rank=1, pid=1,
                 incarnation={"counter": liar.incarnation[0], "nonce": liar.incarnation[1]}, nonce=os.urandom(16))
        _, prepare = liar.received(leader, "groupPrepare", where=lambda message: message["name"] == job.name)
        liar.say(leader, "groupPrepared", group=prepare["group"],
                 tag=tag(prepare, "a secret that the liar made up", liar.id, liar.incarnation))
        _, refused = liar.received(leader, "groupRefused", where=lambda message: int(message["id"]["number"]) == 77)
        contains(refused["error"]["text"], "did not prove that it has the job's secret")
        eventually(lambda: "proof_refused" in leader.log(), "the leader to log it")
        job.go(1)
        equal(job.outcomes(), [sorted([leader.id, other.id])] * 2, "nodes of the group")


DEADLINE = 5.0  # of an operation that the liar does not come to


def waits_for_the_liar(me, size=2, deadline=DEADLINE):
    group = me.group(size=size)
    me.mark()
    return me.fails(group.all_reduce, np.arange(5, dtype="float32") + me.rank, timeout=deadline)


def keeps_trying(me):
    """Operation after operation with the liar, as long as the group works, and messages from and to it."""
    group = me.group(size=2)
    waiting = group.recv_start(np.zeros(8), 1), group.send_start(np.zeros(8), 1)
    me.mark()
    while True:
        outcome = me.fails(group.all_reduce, np.arange(5, dtype="float32"), timeout=0.5)
        if outcome.name not in ("MISMATCH", "TIMED_OUT", "ABORTED", "CANCELLED"):
            del waiting
            return outcome


def in_a_group_with(liar, leader, victim, rank_0=waits_for_the_liar):
    """A job of which the liar is rank 1: (job, the leader's prepare)."""
    job = Job([victim, None], rank_0, without=(1,))
    prepare = liar.join_group(leader, job.name, SECRET, 2, 1)
    leader.newest_group = int(prepare["group"]["counter"])
    job.await_marks()
    return job, prepare


def test_an_announcement_of_what_does_not_exist_ends_no_daemon(cluster):
    """[H1] A dtype, op or kind beyond the known ones was looked up in a table of names."""
    with a_liar(cluster) as (liar, leader, victim), unharmed(leader, victim):
        for wrong in ({"dtype": 63}, {"dtype": 19}, {"op": 63}, {"kind": 63}, {"dtype": 255, "op": 255, "kind": 255}):
            job, prepare = in_a_group_with(liar, leader, victim)
            words = {"kind": 1, "dtype": 0, "op": 0, "count": 5, "firstRank": 1, **wrong}
            for seq in (0, 1):
                liar.say(victim, "opAnnounce", group=prepare["group"], epoch=prepare["epoch"], seq=seq, **words)
            outcome = job.outcomes(seconds=DEADLINE + 10)[0]
            assert isinstance(outcome, Failure), outcome
            assert victim.alive(), f"{victim} ended with {victim.process.returncode} of {wrong}"
            if victim.number not in {node.number for node in (leader, victim) if liar.id in node.peers_up()}:
                liar.enter_again(victim)


def test_an_abort_that_says_pending_does_not_outlive_the_deadline(cluster):
    """[H13] The operation was ended with a code that says that it had not ended."""
    with a_liar(cluster) as (liar, leader, victim):
        job, prepare = in_a_group_with(liar, leader, victim)
        with contextlib.suppress(Ended):
            liar.say(victim, "opAbort", group=prepare["group"], epoch=prepare["epoch"], error={"code": 1})
        began = time.monotonic()
        outcome = job.outcomes(seconds=DEADLINE + 10)[0]
        assert isinstance(outcome, Failure) and outcome.name != "PENDING", outcome
        assert outcome.at - began < DEADLINE + BUSY, f"it ended after {outcome.at - began:.1f} s: {outcome}"


# ---- By reflection

def teach(liar, leader, *others):
    """What a liar may know of groups that it is not in, to mix it into its lies: their numbers are near its own group's."""
    near = getattr(leader, "newest_group", 20)
    for counter in range(near - 19, near + 20):
        liar.learn("groupCommit", group=group_of(leader, counter))
    for node in (leader, *others):
        own = {"counter": node.incarnation[0], "nonce": node.incarnation[1]}
        for number in range(1, 20):
            liar.learn("groupOpen", id={"origin": bytes.fromhex(node.id), "number": (node.incarnation[0] << 32) + number},
                       key=group_key("job1", SECRET), name="job1", size=2, incarnation=own, nonce=bytes(16))
        liar.learn("suspicionReport", group=group_of(leader, near - 1), reporter=bytes.fromhex(node.id), proof=True,
                   suspect=bytes.fromhex(node.id), reason="none")


@contextlib.contextmanager
def in_a_group(liar, leader, victim):
    """Lies are sent while an operation waits for the liar, if it still is let into a group."""
    job = None
    with contextlib.suppress(Ended, AssertionError):
        job, _ = in_a_group_with(liar, leader, victim, keeps_trying)
    teach(liar, leader, victim)
    yield
    if job:
        job[0].dispose()


def say_each(liar, leader, to, kind, step):
    """Each field of one kind of message, extreme by extreme, and again from there when the daemon has hung up. Returns
    how many lies."""
    sent, next_one = 0, 0
    while True:
        liar.enter_again(to)
        with in_a_group(liar, leader, to):
            since = len(liar.lines)
            with contextlib.suppress(Ended):
                liar.do(f"each {liar.name_of(to)} {kind} {next_one} {step}")
                return sent + len([line for line in liar.lines[since:] if line.startswith("lied ")])
            lines = [position_of(line) for line in liar.lines[since:] if line.startswith("lied ")]
            sent, next_one = sent + len(lines), lines[-1][0] if lines else next_one
        assert to.alive(), f"{to} ended with {to.process.returncode} after {lines[-1:]}"


def test_no_field_of_any_message_is_taken_at_its_word(cluster):
    """[H1] [H6] Every kind of message that the schema has."""
    messages, _ = kinds()
    sent = {}
    with a_liar(cluster) as (liar, leader, other), unharmed(leader, other):
        for at, kind in enumerate(sorted(messages)):
            sent[kind] = say_each(liar, leader, (leader, other)[at % 2], kind, STEP)
    equal({kind for kind, count in sent.items() if count}, messages, "kinds of messages that were lied about")
    print(f"        {sum(sent.values())} lies about {len(sent)} kinds of messages")


def test_no_frame_of_any_kind_is_taken_at_its_word(cluster):
    """Every kind of frame that the link knows, on control and bulk connections."""
    _, frames = kinds()
    sent = set()
    with a_liar(cluster) as (liar, leader, other), unharmed(leader, other):
        for turn, kind in enumerate(sorted(frames) * 4):
            to = (leader, other)[turn % 2]
            liar.do(f"seed {turn + SEEDS[0]}")
            with contextlib.suppress(Ended):
                liar.enter_again(to)
                name, honest = liar.name_of(to), "op=0 epoch=0"
                with contextlib.suppress(Ended, AssertionError):
                    _, prepare = in_a_group_with(liar, leader, to, keeps_trying)
                    group = prepare["group"]
                    honest += f" creator={group['creator']} key_incarnation={group['incarnation']}" \
                              f" counter={group['counter']}"
                if turn % 4 == 3:
                    name = liar.connect(to, PORT + 1)
                    liar.do(f"preamble {name} 1")
                    liar.do(f"switch {name}")
                sent.add(kind)
                liar.do(f"lie_frames {name} {kind} 50 {honest}")
            assert to.alive(), f"{to} ended with {to.process.returncode}: kind {kind}, turn {turn}"
    equal(sent, frames, "kinds of frames that were lied about")


def lie_at_random(liar, leader, to, turn):
    """In one of the states of a connection: before its hello, idle, or with a group that waits for the liar."""
    liar.enter_again(to)
    if turn % 3 == 0:
        name = liar.connect(to)
        liar.do(f"preamble {name} 0")
        liar.do(f"lie {name} * 5")
    elif turn % 3 == 1:
        liar.do(f"lie {liar.name_of(to)} * 60")
    else:
        with in_a_group(liar, leader, to):
            liar.do(f"lie {liar.name_of(to)} * 60")


def test_random_lies_harm_nobody_else(cluster):
    """[H1] [H6] By seed."""
    for seed in SEEDS:
        print(f"        seed {seed}", flush=True)
        with a_liar(cluster) as (liar, leader, other), unharmed(leader, other):
            liar.do(f"seed {seed}")
            teach(liar, leader, other)
            for turn in range(12):
                to = (leader, other)[turn % 2]
                with contextlib.suppress(Ended):
                    lie_at_random(liar, leader, to, turn)
                for node in (leader, other):
                    assert node.alive(), f"{node} ended with {node.process.returncode}"


# ---- Connections

SILENT, SILENT_MAX = 24, 8  # for each port
REFUSED_SECONDS, SILENCE_SECONDS = 3 + BUSY, 15 + BUSY


def test_connections_without_a_word_do_not_stay(cluster):
    """[H10] A member connection that never sent its preamble kept its place and its windows for a day."""
    with a_liar(cluster) as (liar, leader, other), unharmed(leader, other):
        before = len(liar.lines)
        silent = []
        for port in (PORT, PORT + 1):
            for _ in range(SILENT):
                with contextlib.suppress(Ended):  # more than one node may have are refused at once
                    silent.append(liar.connect(other, port))
        began = time.monotonic()

        def still_there():
            closed = {line.split()[1] for line in liar.lines[before:] if line.startswith("closed ")}
            return [name for name in silent if name not in closed]

        eventually(lambda: len(still_there()) <= 2 * SILENT_MAX, f"{SILENT_MAX} of {SILENT} to be left", REFUSED_SECONDS)
        eventually(lambda: not still_there(), "none to be left", SILENCE_SECONDS - (time.monotonic() - began))


if __name__ == "__main__":
    main(globals())
